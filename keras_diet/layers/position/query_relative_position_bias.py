"""Curves over the distance, which each query mixes."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.initializers import add_weight
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import distances_of_pairs, scores_of_vectors
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class QueryRelativePositionBias(PositionBias):
    """A bank of learned curves over the distance, which each query mixes (Inkling).

    For each head, with the hidden state `x_i` of query `i`:

        B_ij = (W_r x_i + b) . P[:, i - j]    if |i - j| < max_distance, else 0

    Each row of `P` is a curve: a score for each distance. All heads share the curves. The mixture
    `W_r x_i` says how much of each curve a head takes. It depends on the query, so a token can
    choose between its neighbours and tokens far away. With a constant mixture (`W_r = 0`) the layer
    is a `RelativePositionBias` (DIET-REL) whose scores of all heads have the rank `rank`.

    Row `i - j + max_distance - 1` of `curves` holds `P[:, i - j]`. With `bidirectional=False` there
    are curves for keys before the query only, and row `i - j` holds them.

    Args:
        num_heads: int. Number of attention heads `H`.
        max_length: int or `None`. Largest number of positions, in tokens. Defaults to `None`, which
            means any.
        rank: int. Number of curves, called `d_rel` in Inkling. Defaults to `16`.
        max_distance: int. Scores are zero at this distance and further away. It is called
            `rel_extent` in Inkling. Defaults to `1024`.
        bidirectional: bool. Whether keys after the query have scores. Defaults to `True`.
        use_bias: bool. Whether the mixture has a bias `b`. Defaults to `False`.
        share_heads: bool. Whether all heads have the same mixture. Defaults to `False`.
        initializer: Initializer of `W_r`, `b` and `P`. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Hidden states `(B, T, dim)`.
        key: Tensor of shape `(B, S, ...)`, or `None` for `query`. Only its length is read.
        start_index: int or scalar tensor. Position of the first query. Defaults to `0`.

    Returns:
        Scores of shape `(B, num_heads, T, S)`.

    Raises:
        ValueError: If a size is not a positive integer or a sequence is longer than `max_length`.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.QueryRelativePositionBias(num_heads=4, max_distance=8)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=position_bias(x))
    ```

    References:
     - `InklingRelativeLogits` in [transformers](https://github.com/huggingface/transformers)
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), equation 3
    """

    any_length = True
    distance_only = True
    reads_content = True

    def __init__(
        self,
        num_heads: int,
        max_length: int | None = None,
        rank: int = 16,
        max_distance: int = 1024,
        bidirectional: bool = True,
        use_bias: bool = False,
        share_heads: bool = False,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, None, share_heads, initializer, **kwargs)
        self.rank = validation.positive_int("rank", rank)
        self.max_distance = validation.positive_int("max_distance", max_distance)
        self.bidirectional = bidirectional
        self.use_bias = use_bias

    def build(self, query_shape: Any = None, key_shape: Shape | None = None) -> None:
        """Create `query_kernel` and `query_bias` of the mixture, and the `curves`."""
        num_rows = 2 * self.max_distance - 1 if self.bidirectional else self.max_distance
        shapes: dict[str, Any] = {
            "query_kernel": (query_shape[-1], self.num_score_heads, self.rank),
            "query_bias": (self.num_score_heads, self.rank),
            "curves": (num_rows, self.rank),
        }
        self.query_bias = None
        for name in shapes if self.use_bias else ("query_kernel", "curves"):
            setattr(self, name, add_weight(self, name, shapes[name]))

    def compute_scores(self, query: Tensor, key: Tensor, start_index: Integer) -> Tensor:
        """Return the products of the mixtures and the curves at the distances of the keys."""
        query = ops.cast(query, self.compute_dtype)
        # b: batch; t: query positions; d: hidden size; h: heads; r: curves
        mixture = ops.einsum("btd,dhr->bthr", query, ops.cast(self.query_kernel, query.dtype))
        if self.query_bias is not None:
            mixture = mixture + ops.cast(self.query_bias, query.dtype)
        lengths = ops.shape(query)[1], ops.shape(key)[1]
        # The distances `i - j`.
        distances = -distances_of_pairs(*lengths, start_index)
        smallest = 1 - self.max_distance if self.bidirectional else 0
        nearest = ops.clip(distances, smallest, self.max_distance - 1)
        rows = _backend.take_rows(self.curves, nearest - smallest)
        rows = ops.where(ops.expand_dims(ops.equal(distances, nearest), 1), rows, 0.0)
        return scores_of_vectors(mixture, rows, 1.0, *lengths)


def _bias(num_heads, max_length, is_causal=False, rank=16, max_distance=1024, **kwargs):
    return QueryRelativePositionBias(
        *(num_heads, max_length, rank, max_distance), bidirectional=not is_causal, **kwargs
    )


QUERY_RELATIVE = PositionEncoding(_bias, sharing_modes=("none", "head-wise", "layer-wise"))
