"""The share of a pattern of scores that the distance of query and key explains."""

from typing import Any

import numpy as np

from keras_diet.analysis._distances import checked_square


def distance_variance(scores: Any) -> np.ndarray:
    """Return the share of the scores' variance that the distance `i - j` alone explains.

    The share is 1 for scores that are a function of the distance, such as the scores of DIET-REL
    and T5. This is the "shifting pattern" of Figure 7 of the paper. Random scores have a share of
    about `2 / T`, and DIET-ABS can learn anything in between. The share is the `R^2` of the best
    approximation by a relative pattern `f`:

        1 - min_{f, c} sum_ij (A_ij - f(i-j) - c_i)^2 / sum_ij (A_ij - mean_k A_ik)^2

    Adding a constant `c_i` to all scores of a query does not change the softmax. The approximation
    may therefore choose `c_i` freely, and the variance is measured within each query.

    Args:
        scores: Array of shape `(..., T, T)` with the axes of queries and keys last, such as the
            result of `position_scores`.

    Returns:
        float64 array of shape `(...)`, in `[0, 1]`. The share is NaN if each query has the same
        score for all keys, because the variance is then 0.

    Raises:
        ValueError: If the last two axes differ. Linformer's projected keys do not have a distance.

    Example:

    ```python
    distance = np.arange(16)[:, None] - np.arange(16)
    scores = np.stack([np.cos(distance), np.random.normal(size=(16, 16))])
    keras_diet.analysis.distance_variance(scores)  # 1 and about 0.13
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Figures 4 and 7
    """
    scores = checked_square(scores)
    length = scores.shape[-1]
    centred = scores - scores.mean(axis=-1, keepdims=True)
    total = np.sum(centred**2, axis=(-2, -1))
    # Least squares for f, after inserting c_i = mean_j (A_ij - f(i-j)): normal @ f = sums.
    offsets = range(length - 1, -length, -1)
    sums = np.stack([np.trace(centred, k, axis1=-2, axis2=-1) for k in offsets], axis=-1)
    # Row i has one entry on each diagonal that it crosses.
    crosses = np.stack([np.eye(length, k=k).sum(axis=1) for k in offsets], axis=1)
    normal = np.diag(crosses.sum(axis=0)) - crosses.T @ crosses / length
    # A constant f has the same effect as the constants c_i. This makes the solution unique.
    normal += 1.0
    solution = np.linalg.solve(normal, sums.reshape(-1, len(offsets)).T).T.reshape(sums.shape)
    explained = np.sum(solution * sums, axis=-1)
    rounding = np.finfo("float32").eps * np.max(np.abs(scores), axis=(-2, -1))
    has_variance = total > rounding**2 * length**2
    shares = np.clip(explained / np.where(has_variance, total, 1.0), 0.0, 1.0)
    return np.where(has_variance, shares, np.nan)
