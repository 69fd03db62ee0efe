"""The mean distance between a query and the keys that a head attends to."""

from typing import Any

import numpy as np

from keras_diet.analysis._distances import checked_square


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
    scores = checked_square(scores)
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    position = np.arange(scores.shape[-1])
    distance = position[None, :] - position[:, None]
    distance = distance if signed else np.abs(distance)
    return np.mean(np.sum(probabilities * distance, axis=-1), axis=-1)
