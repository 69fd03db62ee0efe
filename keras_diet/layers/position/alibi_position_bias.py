"""ALiBi: scores that decrease linearly with the distance."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import distances_of_pairs, scores_of_distances
from keras_diet.types import Integer, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class AlibiPositionBias(PositionBias):
    """A fixed penalty for the distance, added to the attention scores (ALiBi).

    For each head `h`, with query `i` and key `j`:

        B_ij = -m_h |i - j|

    The slopes `m_h` are fixed: `2^(-8 h / H)` for `h = 1, ..., H` if the number of heads `H` is a
    power of two. For another `H`, the first heads have the slopes of the largest power of two below
    `H`. The remaining heads have every other slope of the next power of two. The layer has
    no weights and takes sequences of any length. In a causal model the keys after the query are
    masked, so that the bias is the one of the paper.

    Args:
        num_heads: int. Number of attention heads `H`.
        max_length: int or `None`. Longest sequence, in tokens. Defaults to `None`, which means any;
            `cache_positions` needs a number.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(B, T, ...)`. Only its length is read.
        key: Tensor of shape `(B, S, ...)`, or `None` for `query`. Only its length is read.
        start_index: int or scalar tensor. Position of the first query. Defaults to `0`.

    Returns:
        Scores of shape `(1, num_heads, T, S)`.

    Raises:
        ValueError: If a size is not a positive integer or a sequence is too long.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.AlibiPositionBias(num_heads=4)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=position_bias(x))

    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="alibi")
    y = encoder(x)
    ```

    References:
     - [Press et al., 2022](https://arxiv.org/abs/2108.12409), section 3
    """

    any_length = True
    distance_only = True

    def __init__(self, num_heads: int, max_length: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_heads, max_length, None, False, None, **kwargs)
        self.slopes = alibi_slopes(self.num_heads)

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return `-m_h |i - j|` of the given positions."""
        distances = distances_of_pairs(query_length, key_length, start_index)
        distances = ops.cast(ops.expand_dims(ops.abs(distances), 1), self.score_dtype)
        by_distance = -distances * ops.cast(self.slopes, self.score_dtype)
        return scores_of_distances(by_distance, query_length, key_length)


def alibi_slopes(num_heads: int) -> np.ndarray:
    """Return the slope of each head, a float32 array of shape `(num_heads,)`."""
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = 2.0 ** (-8.0 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-8.0 * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between])[:num_heads].astype("float32")


# The slopes are different for each head, and the same in all layers.
ALIBI = PositionEncoding(AlibiPositionBias, sharing_modes=("layer-wise",))
