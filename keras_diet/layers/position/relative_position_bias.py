"""DIET-REL: relative positions in the attention scores."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.initializers import add_weight, score_initializer
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import scores_of_distances
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class RelativePositionBias(PositionBias):
    """One learned scalar per head and distance, added to the attention scores (DIET-REL).

    Equation 3 of the paper without its token and segment terms, for each head:

        B_ij = R_{i-j}

    for query `i` and key `j`. Every distance from `-(n - 1)` to `n - 1` has its own scalar, while
    T5 has logarithmic bins. Row `i - j + n - 1` of `relative_embedding` holds `R_{i-j}`. The layer
    does not scale the term. Moving query and key by the same distance does not change it.

    Args:
        num_heads: int. Number of attention heads `H`.
        max_length: int. Number of positions `n`, in tokens.
        share_heads: bool. Whether all heads use the same scalars. Defaults to `False`.
        initializer: Initializer of the scalars. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
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
    position_bias = keras_diet.layers.RelativePositionBias(num_heads=4, max_length=16)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=position_bias(x))
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), equation 3
    """

    distance_only = True

    def __init__(
        self,
        num_heads: int,
        max_length: int,
        share_heads: bool = False,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, None, share_heads, initializer, **kwargs)

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create `relative_embedding`."""
        shape = (2 * self.max_length - 1, self.num_score_heads)
        self.relative_embedding = add_weight(self, "relative_embedding", shape)

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return `R_{i-j}` for the given positions."""
        # The first query and the last key have the smallest `i - j`.
        first_row = start_index - key_length + self.max_length
        size = (query_length + key_length - 1, self.num_score_heads)
        rows = _backend.slice(ops.convert_to_tensor(self.relative_embedding), (first_row, 0), size)
        # Rows are ordered by `i - j`, and `scores_of_distances` takes an order by `j - i`.
        by_distance = ops.cast(ops.flip(rows, axis=0), self.compute_dtype)
        return scores_of_distances(by_distance, query_length, key_length)


def _bias(num_heads, max_length, initial_score_stddev=None, **kwargs):
    initializer = score_initializer(initial_score_stddev)
    return RelativePositionBias(num_heads, max_length, initializer=initializer, **kwargs)


DIET_REL = PositionEncoding(_bias, sharing_modes=("none", "head-wise", "layer-wise"))
