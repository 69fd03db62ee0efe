"""The attention of DeBERTa, with products of content and vectors of distances."""

import functools
import math
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers import initializers
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.key_memory import may_share_rows, repeat_rows
from keras_diet.layers.configuration import deserialized
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.position_table import PositionTable
from keras_diet.layers.position.relative_shift import distances_of_pairs, scores_of_vectors
from keras_diet.types import Config, Initializer, Integer, Shape, Tensor

POSITION_TERMS = ("c2p", "p2c")


@keras.saving.register_keras_serializable(package="keras_diet")
class DisentangledMultiHeadAttention(BiasedMultiHeadAttention):
    """Multi-head attention whose scores also compare content with distances (DeBERTa).

    For each head, with query `i`, key `j`, `q_i = x_i W_Q` and `k_j = y_j W_K`:

        A_ij = scale (q_i . k_j + q_i . (R_d W_KR) + k_j . (R_d W_QR)) + attention_bias_ij
        d = row(i - j),  scale = 1 / sqrt(3 key_dim)

    The second term, content to position, is `"c2p"`. The third, position to content, is `"p2c"`.
    `R` is a table of learned vectors of distances. All layers of a stack share it. With
    `share_projections`, `W_KR` is `W_K` and `W_QR` is `W_Q`, with their biases, as in DeBERTa v2
    and v3. Otherwise they are weights of their own, as in v1. The scale is `1 / sqrt(2 key_dim)`
    with one term. The paper writes `d(j, i)` in the third term. All released models have
    `d(i, j)` in both terms.

    Without `num_buckets`, each distance from `-max_distance` to `max_distance - 1` has a row, and
    keys further away share the last row. With `num_buckets = 2 m`, distances up to `m` have their
    own rows. Further distances share rows by their logarithm, up to `max_distance`.

    The layer multiplies the vectors of the `T + S - 1` distances with queries and keys, and moves
    the products to their keys. It does not gather vectors or products for pairs.

    Args:
        num_heads: int. Number of attention heads `H`.
        key_dim: int. Size of each head for query and key.
        max_distance: int. Largest distance. Defaults to `512`.
        num_buckets: int or `None`. Number of rows of the table in each direction. Defaults to
            `256`. `None` means `max_distance`, without logarithms, as in v1.
        position_terms: tuple of `"c2p"` and `"p2c"`. Defaults to both.
        share_projections: bool. Whether the projections of queries and keys project the table too.
            Then query, key and table have the same size. Defaults to `True`.
        normalize_table: bool. Whether the table has a layer normalization, as in v2 and v3.
            Defaults to `True`.
        table: `PositionTable` or `None`. A table that other layers use too. It replaces
            `normalize_table` and `embedding_initializer`. The layers of a loaded model share it,
            too, but a copy by `from_config` has its own. Defaults to `None`: a table of this layer.
        embedding_initializer: Initializer of the table. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `BiasedMultiHeadAttention`, without `attention_axes`.

    Call arguments:
        query: Tensor of shape `(B, T, dim)`.
        value: Tensor of shape `(B, S, dim)`.
        key: Tensor of shape `(B, S, dim)`, or `None` for `value`.
        attention_bias: As in `BiasedMultiHeadAttention`, like the masks and flags.

    Returns:
        As `BiasedMultiHeadAttention`.

    Raises:
        ValueError: If a size is not a positive integer; if `position_terms` are others; if
            `num_buckets` is odd or not below `2 * max_distance - 2`; if the `table` has another
            number of rows; if `attention_axes` or `block_size` is given. Otherwise as
            `BiasedMultiHeadAttention`.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    attention = keras_diet.layers.DisentangledMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x)
    ```

    References:
     - [He et al., 2021](https://arxiv.org/abs/2006.03654), equation 4
     - [He et al., 2023](https://arxiv.org/abs/2111.09543), DeBERTa v3
    """

    # The scores of positions are computed for all queries at once.
    implementations = ("auto", "full")
    attends_in_blocks = False

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        max_distance: int = 512,
        num_buckets: int | None = 256,
        position_terms: tuple[str, ...] = POSITION_TERMS,
        share_projections: bool = True,
        normalize_table: bool = True,
        table: Any = None,
        embedding_initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, key_dim, **kwargs)
        self.max_distance = validation.positive_int("max_distance", max_distance)
        self.num_buckets = validation.optional_positive_int("num_buckets", num_buckets)
        self.position_terms = tuple(position_terms)
        if not self.position_terms or not set(self.position_terms) <= set(POSITION_TERMS):
            raise ValueError(
                "`position_terms` must be a tuple of 'c2p' and 'p2c', with one or both of them. "
                f"Received: position_terms={position_terms!r}"
            )
        self.share_projections = share_projections
        self.normalize_table = normalize_table
        self.embedding_initializer = initializers.embedding_initializer(embedding_initializer)
        if self.scale is None:
            self.score_scale = 1.0 / math.sqrt(key_dim * (1 + len(self.position_terms)))
        self._rows = rows_of_distances(self.max_distance, self.num_buckets)
        num_rows = 2 * (self.num_buckets or self.max_distance)
        if table is not None and table.num_rows != num_rows:
            raise ValueError(
                "`table` must have two rows for each of `num_buckets`, or without them for each "
                f"distance up to `max_distance`. Received: num_rows={table.num_rows} with "
                f"num_buckets={num_buckets}, max_distance={max_distance}. Pass a table with "
                f"num_rows={num_rows}."
            )
        if table is not None:
            table.is_shared = True
        self.table = table or PositionTable(
            num_rows,
            normalize_table,
            self.embedding_initializer,
            dtype=self.dtype_policy,
            name="position_table",
        )

    def build(self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None) -> None:
        """Create the projections and the table."""
        super().build(query_shape, value_shape, key_shape)
        if not self.table.built:
            self.table.build((None, query_shape[-1]))
        self.position_denses = {"c2p": self.key_dense, "p2c": self.query_dense}
        if not self.share_projections:
            self.position_denses = {name: self._make_dense(name) for name in self.position_terms}

    def _make_dense(self, name):
        # b: one; r: rows; d: hidden size; h: heads; k: head size
        dense = keras.layers.EinsumDense(
            "brd,dhk->brhk",
            output_shape=(None, self.num_heads, self.key_dim),
            bias_axes="hk" if self.query_dense.bias_axes else None,
            name=f"position_{name}",
            **self.arguments_of_query_dense(),
        )
        dense.build((1, None, self.table.dim))
        return dense

    def attention_hook(self) -> AttentionHook:
        """Add the terms of the distances to the scores."""
        return AttentionHook(bias=self.position_scores)

    def position_scores(self, query: Tensor, key: Tensor, start_index: Integer = 0) -> Tensor:
        """Return the terms that distances add to the scores, `(B, num_heads, T, S)`.

        Args:
            query: Projected queries `(B, T, num_heads, key_dim)`.
            key: Projected keys `(B, S, num_heads, key_dim)`.
            start_index: int or scalar tensor. Position of the first query. Defaults to `0`.
        """
        query_length, key_length = ops.shape(query)[1], ops.shape(key)[1]
        scores = []
        if "c2p" in self.position_terms:
            distances = -distances_of_pairs(query_length, key_length, start_index)
            scores.append(self._scores("c2p", query, distances, query_length, key_length))
        if "p2c" in self.position_terms:
            # Queries and keys change places, so the distances are in the order of the queries.
            distances = distances_of_pairs(key_length, query_length, -start_index)
            of_keys = self._scores("p2c", key, distances, key_length, query_length)
            if may_share_rows(query, key):
                of_keys = repeat_rows(of_keys, ops.shape(query)[0])
            scores.append(ops.swapaxes(of_keys, 2, 3))
        return scores[0] if len(scores) == 1 else scores[0] + scores[1]

    def _scores(self, name, heads, distances, *lengths):
        """Return the products of heads and projected vectors of their distances `i - j`."""
        indices = ops.clip(distances, -self.max_distance, self.max_distance) + self.max_distance
        rows = ops.take(ops.convert_to_tensor(self._rows[:, None]), indices, axis=0)[:, 0]
        vectors = ops.expand_dims(self.table.vectors(), 0)
        if isinstance(rows.shape[0], int) and rows.shape[0] < self.table.num_rows:
            # Only the rows that occur are projected.
            vectors, rows = ops.take(vectors, rows, axis=1), None
        vectors = _backend.dense(self.position_denses[name], vectors)[0]
        return scores_of_vectors(heads, vectors, self.score_scale, *lengths, rows=rows)

    def get_config(self) -> Config:
        """Return the constructor's arguments, with a table that was one."""
        config = super().get_config()
        if not self.table.is_shared:
            return {**config, "table": None}
        # While Keras loads a model, objects with the same number are one object.
        return {**config, "table": {**config["table"], "shared_object_id": id(self.table)}}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Make the layer from its configuration."""
        return super().from_config(deserialized(config))


def rows_of_distances(max_distance: int, num_buckets: int | None) -> np.ndarray:
    """Return the rows of the table for the distances `i - j` from `-max_distance` on.

    Args:
        max_distance: int. Distances further away have the row of `max_distance`.
        num_buckets: int or `None`. As in `DisentangledMultiHeadAttention`.
    """
    distances = np.arange(-max_distance, max_distance + 1)
    if num_buckets is None:
        return np.minimum(distances + max_distance, 2 * max_distance - 1).astype("int32")
    middle = num_buckets // 2
    if num_buckets % 2 or middle >= max_distance - 1:
        raise ValueError(
            "`num_buckets` must be even and below `2 * max_distance - 2`. Received: num_buckets="
            f"{num_buckets}, max_distance={max_distance}. Pass an even number and a `max_distance` "
            f"above {middle + 1}, or num_buckets=None for a row for each distance, as 'deberta_v1'."
        )
    size = np.maximum(abs(distances), middle)
    logarithm = np.log(size / middle) / np.log((max_distance - 1) / middle)
    buckets = np.sign(distances) * (middle + np.ceil(logarithm * (middle - 1)))
    buckets = np.where(abs(distances) <= middle, distances, buckets) + num_buckets
    return np.clip(buckets, 0, 2 * num_buckets - 1).astype("int32")


def _table(max_distance=512, **kwargs):
    return PositionTable(512, **kwargs)


def _exact_table(max_distance=512, **kwargs):
    return PositionTable(2 * max_distance, normalize=False, **kwargs)


DEBERTA = PositionEncoding(
    attention=DisentangledMultiHeadAttention,
    table=_table,
    sharing_modes=("layer-wise",),
    self_attention_only=True,
)
DEBERTA_V1 = PositionEncoding(
    attention=functools.partial(
        DisentangledMultiHeadAttention, num_buckets=None, share_projections=False
    ),
    table=_exact_table,
    sharing_modes=("layer-wise",),
    self_attention_only=True,
)
