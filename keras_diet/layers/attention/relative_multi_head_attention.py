"""Shaw's attention, which adds a learned vector for each distance to keys and values."""

import functools
from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers import initializers
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import (
    distances_of_pairs,
    keys_to_distances,
    scores_of_vectors,
)
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class RelativeMultiHeadAttention(BiasedMultiHeadAttention):
    """Multi-head attention with a learned vector for each distance, shared by the heads (Shaw).

    For each head, with query `i`, key `j` and `c(k) = min(max(k, -max_distance), max_distance)`:

        A_ij = scale (x_i W_Q) . (y_j W_K + a^K_{c(j-i)}) + attention_bias_ij
        output_i = softmax_j(A_ij) (z_j W_V + a^V_{c(j-i)}), heads concatenated, times W_O

    Row `k + max_distance` of `key_embedding` holds `a^K_k`, and the same row of `value_embedding`
    holds `a^V_k`. Without `use_value_embedding` there is no `a^V`, as the DIET paper describes
    Yang et al.

    The layer does not need a tensor of shape `(T, S, key_dim)`. It multiplies each query with the
    vectors of all `T + S - 1` distances and moves the products to their keys. This costs about
    twice as much as the product of queries and keys. The vectors of the values cost as much again.
    Fused kernels cannot compute attention with vectors of the values.

    Args:
        num_heads: int. Number of attention heads `H`.
        key_dim: int. Size of each head for query and key.
        max_distance: int. Keys at this distance in tokens, and all keys further away, share a
            vector.
        use_value_embedding: bool. Whether values get vectors too. Defaults to `True`.
        embedding_initializer: Initializer of the vectors. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `BiasedMultiHeadAttention`, without `attention_axes`.

    Call arguments:
        query: Tensor of shape `(B, T, dim)`.
        value: Tensor of shape `(B, S, dim)`.
        key: Tensor of shape `(B, S, dim)`, or `None` for `value`.
        attention_bias: As in `BiasedMultiHeadAttention`, like the masks and flags.
        start_index: int or scalar tensor. Position of the first query, for decoding with a cache
            of keys and values. The first key is at position 0, so a query at position `i` adds
            the vector of the distance `j - i` to key `j`. Defaults to `0`.

    Returns:
        As `BiasedMultiHeadAttention`.

    Raises:
        ValueError: If `max_distance` is not a positive integer; if `attention_axes` or `block_size`
            is given; if `flash_attention=True` is given with value embeddings; or if the inputs do
            not have one sequence axis. Otherwise as `BiasedMultiHeadAttention`.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    attention = keras_diet.layers.RelativeMultiHeadAttention(4, key_dim=8, max_distance=16)
    y = attention(x, x)
    ```

    References:
     - [Shaw et al., 2018](https://arxiv.org/abs/1803.02155), equations 3 to 5
     - [Yang et al., 2019](https://arxiv.org/abs/1906.08237)
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 2.2.2
    """

    # Blocks are computed again for the gradient. TensorFlow would lose the gradients of the
    # variables that the hook reads.
    implementations = ("auto", "full")
    attends_in_blocks = False

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        max_distance: int,
        use_value_embedding: bool = True,
        embedding_initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, key_dim, **kwargs)
        self.max_distance = validation.positive_int("max_distance", max_distance)
        self.use_value_embedding = use_value_embedding
        self.embedding_initializer = initializers.embedding_initializer(embedding_initializer)

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Create the projections and the vectors of the distances."""
        super().build(query_shape, value_shape, key_shape)
        num_rows, initializer = 2 * self.max_distance + 1, self.embedding_initializer
        add = functools.partial(initializers.add_weight, self, initializer=initializer)
        self.key_embedding = add("key_embedding", (num_rows, self.key_dim))
        self.value_embedding = None
        if self.use_value_embedding:
            self.value_embedding = add("value_embedding", (num_rows, self.value_dim))

    def attention_hook(self) -> AttentionHook:
        """Add the vectors of the distances to keys and values."""
        output = self._add_value_vectors if self.use_value_embedding else None
        return AttentionHook(bias=self.distance_scores, output=output)

    def distance_scores(self, query: Tensor, key: Tensor, start_index: Integer = 0) -> Tensor:
        """Return the term that distances add to the scores, `scale q_i . a^K_{c(j-i)}`.

        Args:
            query: Projected queries `(B, T, num_heads, key_dim)`.
            key: Projected keys `(B, S, num_heads, key_dim)`. Only their length is read.
            start_index: int or scalar tensor. Position of the first query. Defaults to `0`.

        Returns:
            Scores of shape `(B, num_heads, T, S)`.
        """
        lengths = ops.shape(query)[1], ops.shape(key)[1]
        rows = self._rows(self.key_embedding, *lengths, start_index)
        return scores_of_vectors(query, rows, self.score_scale, *lengths)

    def _add_value_vectors(self, output, probabilities, start_index):
        query_length, key_length = ops.shape(probabilities)[-2:]
        rows = self._rows(self.value_embedding, query_length, key_length, start_index)
        probabilities = ops.swapaxes(probabilities, 0, 1)
        by_distance = keys_to_distances(probabilities, query_length, key_length)
        return output + ops.einsum("hbtc,ck->bthk", by_distance, ops.cast(rows, output.dtype))

    def _rows(self, embedding, query_length, key_length, start_index):
        """Return the vectors of all distances `j - i`, the smallest distance first."""
        distances = distances_of_pairs(query_length, key_length, start_index)
        indices = ops.clip(distances, -self.max_distance, self.max_distance) + self.max_distance
        return _backend.take_rows(embedding, indices)


# With this number the parameter counts are equal to Table 6. So they are with vectors for keys only
# and a distance of 2048. The paper states neither.
_MAX_DISTANCE = 1024

SHAW = PositionEncoding(
    attention=functools.partial(RelativeMultiHeadAttention, max_distance=_MAX_DISTANCE),
    sharing_modes=("head-wise",),
)
