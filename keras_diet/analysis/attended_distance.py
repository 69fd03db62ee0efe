"""How far from its query a head looks."""

import numpy as np

from keras_diet.analysis._distances import checked_square


def attended_distance(scores, signed=False):
    """Return the mean distance of the keys that are attended to, by these scores alone.

    With the probabilities `a_ij = softmax_j(A_ij)` of keys `j`,

        (1 / T) sum_i sum_j a_ij |j - i|

    and with `signed` the mean of `j - i`: positive for a head that looks at later tokens
    (Figure 7 (a) of the paper), negative for one that looks at previous ones (Figure 7 (b)). Equal
    scores give `(T^2 - 1) / (3 T)`, about a third of the length, and 0 with `signed`.

    Args:
        scores: Array of shape `(..., T, T)`, query and key last, e.g. from `position_scores`.
        signed: bool. Whether keys before the query count negative. Defaults to `False`.

    Returns:
        float64 array of shape `(...)`, in tokens.

    Raises:
        ValueError: If the last two axes differ: the projected keys of Linformer have no distance.

    Example:

    ```python
    # Every query looks at the token before it, the first one at itself.
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
