"""How much of a pattern of scores the distance of query and key explains."""

import numpy as np

from keras_diet.analysis._distances import checked_square


def distance_variance(scores):
    """Return the share of the scores' variance that the distance `i - j` alone explains.

    1 for scores that are a function of the distance, the "shifting pattern" of Figure 7 of the
    paper: those of DIET-REL and T5. About `2 / T` for random scores. DIET-ABS can learn anything
    in between. It is the `R^2` of the best approximation by a relative pattern,

        1 - min_{f, c} sum_ij (A_ij - f(i-j) - c_i)^2 / sum_ij (A_ij - mean_k A_ik)^2

    Softmax removes what all keys of a query have in common, so a constant `c_i` for each query is
    free, and takes no part in the variance.

    Args:
        scores: Array of shape `(..., T, T)`, query and key last, e.g. from `position_scores`.

    Returns:
        float64 array of shape `(...)`, in `[0, 1]`; NaN where the scores of each query are all the
        same, so that there is nothing to explain.

    Raises:
        ValueError: If the last two axes differ: the projected keys of Linformer have no distance.

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
    # Least squares for f, with c_i = mean_j (A_ij - f(i-j)) put in: normal @ f = sums.
    offsets = range(length - 1, -length, -1)
    sums = np.stack([np.trace(centred, k, axis1=-2, axis2=-1) for k in offsets], axis=-1)
    # Row i has one entry on each of the diagonals that it crosses.
    crosses = np.stack([np.eye(length, k=k).sum(axis=1) for k in offsets], axis=1)
    normal = np.diag(crosses.sum(axis=0)) - crosses.T @ crosses / length
    # A constant f is a constant for each query: it explains nothing, and any multiple will do.
    normal += 1.0
    solution = np.linalg.solve(normal, sums.reshape(-1, len(offsets)).T).T.reshape(sums.shape)
    explained = np.sum(solution * sums, axis=-1)
    rounding = np.finfo("float32").eps * np.max(np.abs(scores), axis=(-2, -1))
    has_variance = total > rounding**2 * length**2
    shares = np.clip(explained / np.where(has_variance, total, 1.0), 0.0, 1.0)
    return np.where(has_variance, shares, np.nan)
