"""Numbers that describe a pattern of scores: its rank, and how it depends on the distance."""

from typing import Any

import numpy as np


def numerical_rank(scores: Any, tolerance: float | None = None) -> np.ndarray:
    """Return the numerical rank of score matrices.

    The rank is the number of singular values `s_1 >= s_2 >= ...` of a matrix with

        s_k > tolerance * s_1

    computed in float64. A product such as `P_Q P_K^T` is rounded to float32. Rounding turns
    singular values of zero into about `s_1` times the machine epsilon of float32 (`1.2e-7`). The
    default tolerance is `max(T, S)` times this epsilon, which is larger: 3e-5 for 256 positions.
    `numpy.linalg.matrix_rank` uses the same rule, but with the precision of the stored array.

    Scores in half precision (`mixed_bfloat16`) are rounded much more, so their rank is full with
    this tolerance. Load the model with `dtype="float32"` instead.

    Args:
        scores: Array of shape `(..., T, S)`, such as the result of `attention_scores` or
            `position_scores`.
        tolerance: float or `None`. Relative to the largest singular value of its matrix, a
            singular value up to this size counts as zero. With 0.01 or 0.1, the result tells how
            many directions matter. Defaults to `None`, which means `max(T, S)` times the machine
            epsilon of float32.

    Returns:
        Integer array of shape `(...)`. The rank of a matrix of zeros is 0.

    Example:

    ```python
    query, key = np.random.normal(size=(2, 3, 20, 4)).astype("float32")
    keras_diet.analysis.numerical_rank(query @ key.swapaxes(1, 2))  # array([4, 4, 4])
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Theorem 1, Figures 2
       and 8
    """
    scores = np.asarray(scores)
    if tolerance is None:
        tolerance = max(scores.shape[-2:]) * np.finfo("float32").eps
    # One matrix at a time, because a copy of all matrices in float64 would be large.
    matrices = scores.reshape(-1, *scores.shape[-2:])
    return np.array([_rank(matrix, tolerance) for matrix in matrices]).reshape(scores.shape[:-2])


def _rank(matrix, tolerance):
    singular_values = np.linalg.svd(matrix.astype("float64"), compute_uv=False)
    return np.count_nonzero(singular_values > tolerance * singular_values[0])


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
    scores = _square(scores)
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


def attended_distance(scores: Any, signed: bool = False) -> np.ndarray:
    """Return the mean distance of the keys that queries attend to, given only these scores.

    With the probabilities `a_ij = softmax_j(A_ij)` of keys `j`, the mean distance is

        (1 / T) sum_i sum_j a_ij |j - i|

    With `signed`, it is the mean of `j - i`. This is positive for a head that attends to later
    tokens (Figure 7 (a) of the paper) and negative for a head that attends to previous tokens
    (Figure 7 (b)). If all scores are equal, the result is `(T^2 - 1) / (3 T)`, about a third of the
    length, and 0 with `signed`.

    Args:
        scores: Array of shape `(..., T, T)` with the axes of queries and keys last, such as the
            result of `position_scores`.
        signed: bool. Whether the distance of keys before the query is negative. Defaults to
            `False`.

    Returns:
        float64 array of shape `(...)`, in tokens.

    Raises:
        ValueError: If the last two axes differ. Linformer's projected keys do not have a distance.

    Example:

    ```python
    # Every query attends to the token before it, and the first one to itself.
    scores = np.where(np.eye(16, k=-1), 100.0, 0.0)
    scores[0, 0] = 100.0
    keras_diet.analysis.attended_distance(scores, signed=True)  # -15 / 16
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), Figure 7
    """
    scores = _square(scores)
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    position = np.arange(scores.shape[-1])
    distance = position[None, :] - position[:, None]
    distance = distance if signed else np.abs(distance)
    return np.mean(np.sum(probabilities * distance, axis=-1), axis=-1)


def _square(scores: Any) -> np.ndarray:
    """Return scores of shape `(..., T, T)` in float64, or raise a `ValueError`."""
    scores = np.asarray(scores, dtype="float64")
    if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2] or not scores.shape[-1]:
        raise ValueError(
            "`scores` must have the shape (..., T, T) with T > 0. Projected keys, such as "
            f"Linformer's, do not have a distance from a query. Received: shape={scores.shape}"
        )
    return scores
