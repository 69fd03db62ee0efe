"""The attention of Transformer-XL and XLNet, with projected sinusoids of the distances."""

from typing import Any

import keras
from keras import ops

from keras_diet.layers import initializers
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import distances_of_pairs, scores_of_vectors
from keras_diet.layers.position.sinusoids import angles_of
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class TransformerXLMultiHeadAttention(BiasedMultiHeadAttention):
    """Multi-head attention with projected sinusoids of the distances (Transformer-XL, XLNet).

    For each head, with query `i`, key `j`, `q_i = W_Q x_i` and `k_j = W_K y_j`:

        A_ij = scale ((q_i + u) . k_j + (q_i + v) . (W_R r_{i-j})) + attention_bias_ij
        r_d = (sin(d w_0), sin(d w_1), ..., cos(d w_0), cos(d w_1), ...),  w_k = 10000^(-2k/dim)

    `r_d` has the size `dim` of the query. Each head learns the vectors `u` (`content_bias`) and `v`
    (`position_bias`), and the projection `W_R` (`position_dense`), which has no bias. The paper
    calls it `W_{k,R}`. The distance `i - j` has a sign, so keys before and after the query differ,
    as in XLNet. With a causal mask the layer has the scores of Transformer-XL. The recurrence of
    its segments is not part of this layer.

    The layer takes sequences of any length. It multiplies each query with the vectors of all
    `T + S - 1` distances, and moves the products to their keys. Sinusoids are in float32 under
    every policy.

    Args:
        num_heads: int. Number of attention heads `H`.
        key_dim: int. Size of each head for query and key.
        position_bias_initializer: Initializer of `u` and `v`. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `BiasedMultiHeadAttention`, without `attention_axes`.

    Call arguments:
        query: Tensor of shape `(B, T, dim)`.
        value: Tensor of shape `(B, S, dim)`.
        key: Tensor of shape `(B, S, dim)`, or `None` for `value`.
        attention_bias: As in `BiasedMultiHeadAttention`, like the masks and flags.
        start_index: int or scalar tensor. Position of the first query, for decoding with a cache
            of keys and values. The first key is at position 0. Defaults to `0`.

    Returns:
        As `BiasedMultiHeadAttention`.

    Raises:
        ValueError: If `attention_axes` or `block_size` is given, or if the inputs do not have one
            sequence axis. Otherwise as `BiasedMultiHeadAttention`.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    attention = keras_diet.layers.TransformerXLMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x)
    ```

    References:
     - [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.3
     - [Yang et al., 2019](https://arxiv.org/abs/1906.08237)
    """

    # The scores of positions are computed for all queries at once.
    implementations = ("auto", "full")
    attends_in_blocks = False

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        position_bias_initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, key_dim, **kwargs)
        self.position_bias_initializer = initializers.embedding_initializer(
            position_bias_initializer
        )

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Create the projections, and the vectors `u` and `v`."""
        super().build(query_shape, value_shape, key_shape)
        self.position_dim: Any = query_shape[-1]
        # r: distances; d: hidden size; h: heads; k: head size
        self.position_dense = keras.layers.EinsumDense(
            "rd,dhk->rhk",
            output_shape=(self.num_heads, self.key_dim),
            name="position",
            **self.arguments_of_query_dense(),
        )
        self.position_dense.build((None, self.position_dim))
        vectors = ((self.num_heads, self.key_dim), self.position_bias_initializer)
        self.content_bias = initializers.add_weight(self, "content_bias", *vectors)
        self.position_bias = initializers.add_weight(self, "position_bias", *vectors)

    def attention_hook(self) -> AttentionHook:
        """Add `u` to the queries, and the term of the positions to the scores."""
        return AttentionHook(heads=self._add_content_bias, bias=self._position_scores)

    def _add_content_bias(self, query, key, start_index):
        return query + ops.cast(self.content_bias, query.dtype), key

    def _position_scores(self, query, key, start_index):
        # The queries have `u` already.
        query = query + ops.cast(self.position_bias - self.content_bias, query.dtype)
        lengths = ops.shape(query)[1], ops.shape(key)[1]
        rows = self.project_distances(*lengths, start_index)
        return scores_of_vectors(query, rows, self.score_scale, *lengths)

    def project_distances(
        self, query_length: Integer, key_length: Integer, start_index: Integer = 0
    ) -> Tensor:
        """Return `W_R r_{i-j}` of all distances of queries from keys, the largest first.

        Args:
            query_length: int or scalar tensor, `T`.
            key_length: int or scalar tensor, `S`.
            start_index: int or scalar tensor. Position of the first query. Defaults to `0`.

        Returns:
            Tensor `(T + S - 1, num_heads, key_dim)`.
        """
        distances = -distances_of_pairs(query_length, key_length, start_index)
        angles = angles_of(distances, self.position_dim)
        sinusoids = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=1)
        # An odd size has one cosine less than sines.
        return self.position_dense(sinusoids[:, : self.position_dim])


# Each layer has its own `u` and `v`, as in XLNet. The equations of Dai et al. share them between
# the layers, and the authors' code has a switch for both.
TRANSFORMER_XL = PositionEncoding(
    attention=TransformerXLMultiHeadAttention, sharing_modes=("none",)
)
