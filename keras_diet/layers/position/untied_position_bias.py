"""TUPE: absolute positions with separate projections, in the attention scores."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.initializers import add_weight, fresh
from keras_diet.layers.position.bucketed_relative_position_bias import BucketedRelativePositionBias
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class UntiedPositionBias(PositionBias):
    """Absolute positions with separate projections, added to the attention scores (TUPE).

    For each head, with query `i` and key `j`:

        B_ij = (p_i U_Q) . (p_j U_K) / sqrt(2 key_dim)                 TUPE-A
        B_ij = (p_i U_Q) . (p_j U_K) / sqrt(2 key_dim) + b_{j-i}       TUPE-R, `relative=True`

    where `p = LayerNorm(P)` are normalized position embeddings, and `b` are T5's scalars for bins
    of distances. The first token, `[CLS]`, represents the whole sequence. With `untie_cls` its
    scores therefore do not depend on positions:

        B_0j = theta_1,    B_i0 = theta_2 (i > 0)

    `theta_1` is constant along the keys. Softmax removes it, so its gradient is zero.

    TUPE scales token scores by `1 / sqrt(2 key_dim)` too, so that the sum of both keeps the
    variance of one term. `DietEncoder` sets this scale. For a single layer, pass
    `BiasedMultiHeadAttention(..., scale=(2 * key_dim) ** -0.5)`.

    Args:
        num_heads: int. Number of attention heads `H`.
        key_dim: int. Size of each head for position queries and keys.
        max_length: int. Number of positions `n`, in tokens.
        position_dim: int. Size of the position embeddings. TUPE uses the hidden size.
        relative: bool. Whether to add the scalars of `BucketedRelativePositionBias`. Defaults to
            `False`.
        untie_cls: bool. Whether to reset the scores of the first token. Defaults to `True`.
        num_buckets: int or `None`. Number of bins of distances. Needs `relative`. Defaults to
            `None`, which means 32.
        max_distance: int or `None`. Keys at this distance in tokens, and all keys further away,
            share a bin. Needs `relative`. Defaults to `None`, which means 128.
        share_heads: bool. Whether all heads use the same projections and scalars. Defaults to
            `False`.
        layer_norm_epsilon: float. Epsilon of the layer normalization. Defaults to `1e-12`, as in
            BERT.
        initializer: Initializer of embeddings, projections and scalars. Defaults to `None`, which
            means `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(B, T, ...)`. Only its length is read.
        key: Tensor of shape `(B, S, ...)`, or `None` for `query`. Only its length is read.
        start_index: int or scalar tensor. Position of the first query. Defaults to `0`.

    Returns:
        Scores of shape `(1, num_heads, T, S)`.

    Raises:
        ValueError: If a size is not a positive integer, `num_buckets` or `max_distance` is given
            without `relative`, or a sequence is too long.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.UntiedPositionBias(
        num_heads=4, key_dim=8, max_length=16, position_dim=32
    )
    attention = keras_diet.layers.BiasedMultiHeadAttention(4, key_dim=8, scale=(2 * 8) ** -0.5)
    y = attention(x, x, attention_bias=position_bias(x))
    ```

    References:
     - [Ke et al., 2021](https://arxiv.org/abs/2006.15595), section 3
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 2.2.2
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        max_length: int,
        position_dim: int,
        relative: bool = False,
        untie_cls: bool = True,
        num_buckets: int | None = None,
        max_distance: int | None = None,
        share_heads: bool = False,
        layer_norm_epsilon: float = 1e-12,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, None, share_heads, initializer, **kwargs)
        self.key_dim = validation.positive_int("key_dim", key_dim)
        self.position_dim = validation.positive_int("position_dim", position_dim)
        self.relative = relative
        self.untie_cls = untie_cls
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.layer_norm_epsilon = layer_norm_epsilon
        if not self.relative and (num_buckets, max_distance) != (None, None):
            raise ValueError(
                "`num_buckets` and `max_distance` are only used with `relative=True`. Received: "
                f"num_buckets={num_buckets}, max_distance={max_distance}. Remove them or pass "
                "`relative=True`."
            )
        self.position_layer_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=self.dtype_policy, name="position_layer_norm"
        )
        self.relative_bias = None
        if self.relative:
            self.relative_bias = BucketedRelativePositionBias(
                num_heads,
                32 if num_buckets is None else num_buckets,
                128 if max_distance is None else max_distance,
                share_heads=share_heads,
                max_length=max_length,
                initializer=fresh(self.initializer),
                dtype=self.dtype_policy,
                name="relative_bias",
            )

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create the position embeddings, their projections, and the scalars of `[CLS]`."""
        embedding_shape = (self.max_length, self.position_dim)
        kernel_shape = (self.position_dim, self.num_score_heads, self.key_dim)
        self.position_embedding = add_weight(self, "position_embedding", embedding_shape)
        self.query_kernel = add_weight(self, "query_kernel", kernel_shape)
        self.key_kernel = add_weight(self, "key_kernel", kernel_shape)
        if self.untie_cls:
            self.cls_scores = add_weight(self, "cls_scores", (2, self.num_score_heads))
        self.position_layer_norm.build(embedding_shape)
        if self.relative:
            self.relative_bias.build()

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return the scores for the given positions."""
        query, key = self._projections(query_length, key_length, start_index)
        # t, s: query and key positions; h: heads; k: head size
        scores = ops.expand_dims(ops.einsum("thk,shk->hts", query, key), 0)
        if self.relative:
            scores = scores + self.relative_bias.compute_scores(
                query_length, key_length, start_index
            )
        return self._reset_cls(scores, query_length, key_length, start_index)

    def parts(
        self, query: Tensor, key: Tensor | None = None, start_index: Integer = 0
    ) -> tuple[tuple[Tensor, Tensor], Tensor | None]:
        """Return features and one score for each distance, whose sum is the scores.

        Args:
            query: As in the call.
            key: As in the call.
            start_index: As in the call.

        Returns:
            Query features `(1, T, H or 1, size)` and key features `(1, S, H or 1, size)`; and
            scores by distance `(H, T + S - 1)`, or `None` without `relative`.
        """
        if not self.built:
            self.build()
        query_length, key_length = self._checked_lengths(query, key, start_index)
        pair = self._projections(query_length, key_length, start_index)
        by_distance = None
        if self.relative:
            by_distance = self.relative_bias.by_distance(query_length, key_length, start_index)
        if self.untie_cls:
            # One more feature sets the scores of the first token as a key, and one as a query.
            # They take away what the distance adds.
            cls_scores = ops.cast(self.cls_scores, self.compute_dtype)
            of_query, of_key = cls_scores[0], cls_scores[1]
            if by_distance is not None:
                by_head = ops.transpose(by_distance[: self.num_score_heads])
                of_query = of_query - by_head[query_length - 1 :]
                of_key = of_key - ops.flip(by_head[:query_length], axis=0)
            of_query, of_key = of_query[..., None], of_key[..., None]
            is_query, is_key = (
                ops.cast(is_cls, of_key.dtype)[:, None, None]
                for is_cls in self._is_cls(query_length, key_length, start_index)
            )
            others = 1 - is_query
            pair = (
                _with_columns(pair[0] * others, of_key * others, is_query),
                _with_columns(pair[1] * (1 - is_key), is_key, of_query),
            )
        return tuple(ops.expand_dims(features, 0) for features in pair), by_distance

    def _projections(self, query_length, key_length, start_index):
        query = self._project(self.query_kernel, start_index, query_length)
        return query * (2 * self.key_dim) ** -0.5, self._project(self.key_kernel, 0, key_length)

    def _project(self, kernel, start, length):
        embedding = ops.convert_to_tensor(self.position_embedding)
        rows = _backend.slice(embedding, (start, 0), (length, self.position_dim))
        # t: positions; p: size of their embeddings; h: heads; k: head size
        kernel = ops.cast(kernel, self.compute_dtype)
        return ops.einsum("tp,phk->thk", self.position_layer_norm(rows), kernel)

    def _reset_cls(self, scores, query_length, key_length, start_index):
        if not self.untie_cls:
            return scores
        shape = (2, 1, self.num_score_heads, 1, 1)
        cls_scores = ops.reshape(ops.cast(self.cls_scores, self.compute_dtype), shape)
        from_cls, to_cls = cls_scores[0], cls_scores[1]
        is_query, is_key = self._is_cls(query_length, key_length, start_index)
        return ops.where(ops.expand_dims(is_query, 1), from_cls, ops.where(is_key, to_cls, scores))

    def _is_cls(self, query_length, key_length, start_index):
        is_query = ops.equal(_backend.arange(query_length) + start_index, 0)
        return is_query, ops.equal(_backend.arange(key_length), 0)


def _with_columns(features, *columns):
    """Append columns `(length or 1, heads or 1, 1)` to features `(length, heads, size)`."""
    shape = (*ops.shape(features)[:2], 1)
    return ops.concatenate(
        [features, *(ops.broadcast_to(column, shape) for column in columns)], axis=-1
    )


def _absolute(num_heads, key_dim, max_length, **kwargs):
    return UntiedPositionBias(num_heads, key_dim, max_length, num_heads * key_dim, **kwargs)


def _relative(num_heads, key_dim, max_length, max_distance=None, **kwargs):
    bins = {"relative": True, "max_distance": max_distance}
    return _absolute(num_heads, key_dim, max_length, **bins, **kwargs)


TUPE_ABS = PositionEncoding(
    _absolute,
    scale=lambda key_dim: (2 * key_dim) ** -0.5,
    sharing_modes=("layer-wise", "none", "head-wise"),
)
TUPE_REL = dataclasses.replace(TUPE_ABS, bias=_relative)
