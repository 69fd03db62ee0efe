"""The attention scores of BERT that come from positions and segments, as parameters of DIET.

BERT adds positions and segments to the tokens and normalizes the sum:

    x_i = gamma * center(E[t_i] + P_i + G[S(i)]) / sigma_i + beta

The deviation `sigma_i` hardly depends on the position. With its mean `sigma` over the vocabulary,
the part of `x_i` that comes from the position is

    p_i = gamma * center(P_i - mean P) / sigma

A layer scores this part `(p_i W_Q) . (p_j W_K) / sqrt(d_h)`. The residual connections carry `p_i`
to deeper layers, so their scores are computed from the same `p_i`. Segments have a part `g_s` that
is computed in the same way.
"""

import dataclasses
from typing import Self

import keras
import numpy as np
from keras import ops

from keras_diet._backend import float32_array

_ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class InputEmbeddings:
    """The embeddings that BERT adds at its input and normalizes, as float32 arrays.

    Attributes:
        tokens: `E`, of shape `(vocabulary_size, embedding_dim)`.
        positions: `P`, of shape `(length, embedding_dim)`, or `None` without any.
        before_positions: The rows before the first position, which belong to padding.
        segments: `G`, of shape `(num_segments, embedding_dim)`, or one row of zeros.
        gamma: Scale of the layer normalization, of shape `(embedding_dim,)`, or `None` without one.
        projection: Kernel that projects the embeddings, or `None`.
    """

    tokens: np.ndarray
    positions: np.ndarray | None
    before_positions: np.ndarray
    segments: np.ndarray
    gamma: np.ndarray | None
    projection: np.ndarray | None

    @classmethod
    def of(cls, backbone: keras.Model, length: int) -> Self:
        """Read the embeddings, with the first `length` positions, from a trained encoder."""

        def first_weight(layer):
            return None if layer is None else float32_array(layer.weights[0])

        encoding, tokens = backbone.input_encoding, first_weight(backbone.token_embedding)
        rows = first_weight(getattr(encoding, "position_embedding", None))
        segments = first_weight(getattr(encoding, "segment_embedding", None))
        first = backbone.first_position or 0
        return cls(
            tokens=tokens,
            positions=None if rows is None else rows[first : first + length],
            before_positions=tokens[:0] if rows is None else rows[:first],
            segments=np.zeros_like(tokens[:1]) if segments is None else segments,
            gamma=first_weight(backbone.embeddings_layer_norm),
            projection=first_weight(backbone.embeddings_projection),
        )

    @property
    def mean_position(self) -> np.ndarray:
        """The mean over all positions but the first, where `[CLS]` makes it an outlier."""
        if self.positions is None:
            return np.zeros(self.tokens.shape[1], "float32")
        return self.positions[1:].mean(axis=0) if len(self.positions) > 1 else self.positions[0]

    def position_parts(self) -> np.ndarray:
        """Return `p`, of shape `(length, hidden_dim)`. The first row, for `[CLS]`, is zero."""
        parts = self.positions - self.mean_position
        parts[0] = 0.0
        return self._normalized(parts)

    def segment_parts(self) -> np.ndarray:
        """Return `g`, of shape `(num_segments, hidden_dim)`."""
        return self._normalized(self.segments - self.segments.mean(axis=0))

    def _normalized(self, parts: np.ndarray) -> np.ndarray:
        if self.gamma is not None:
            tokens = self.tokens + self.mean_position + self.segments.mean(axis=0)
            variance = tokens.var(axis=-1).mean() + parts.var(axis=-1).mean()
            centered = parts - parts.mean(axis=-1, keepdims=True)
            parts = self.gamma * centered / np.sqrt(variance)
        return parts if self.projection is None else parts @ self.projection


def scores_of_parts(parts: np.ndarray, backbone: keras.Model) -> np.ndarray:
    """Return the scores of a part of the hidden states in each layer and head.

    Args:
        parts: Array of shape `(n, hidden_dim)`, e.g. the part of each position.
        backbone: `DietBertBackbone` with the projections.

    Returns:
        Array of shape `(num_layers, num_heads, n, n)`: layer, head, query, key. The mean of each
        row is zero, because softmax ignores it.
    """
    scores = []
    for block in backbone.encoder.transformer_layers:
        attention = block.self_attention
        # n: positions; d: hidden size; h: heads; k: head size
        query = np.einsum("nd,dhk->hnk", parts, float32_array(attention.query_dense.kernel))
        key = np.einsum("nd,dhk->hkn", parts, float32_array(attention.key_dense.kernel))
        scores.append(attention.score_scale * (query @ key))
    stacked = np.stack(scores)
    return stacked - stacked.mean(axis=-1, keepdims=True)


def scores_of_positions(backbone: keras.Model, length: int) -> np.ndarray:
    """Return the scores that a trained encoder adds for positions in each layer and head.

    They come from its bias. Rotary positions turn all queries and keys. Their mean over the
    vocabulary has the scores `scale (R_i q) . (R_j k)`. With DeBERTa's positions, the mean has the
    products with the vectors of distances.

    Args:
        backbone: The trained encoder.
        length: int. Number of positions `n`.

    Returns:
        Array of shape `(num_layers, num_heads, n, n)`.
    """
    places = ops.zeros((1, length, 1))
    scores = np.zeros((backbone.num_layers, backbone.num_heads, length, length), "float32")
    for i, bias in enumerate(backbone.encoder.position_biases):
        of_layer = slice(i, i + 1) if len(backbone.encoder.position_biases) > 1 else slice(None)
        scores[of_layer] += float32_array(bias(places))
    if backbone.position_encoding in ("rotary", "deberta", "deberta_v1"):
        ids = np.arange(backbone.vocabulary_size)[None]
        mean = ops.mean(backbone.embed(ids), axis=1, keepdims=True)
        for i, block in enumerate(backbone.encoder.transformer_layers):
            attention = block.self_attention
            heads = [dense(mean) for dense in (attention.query_dense, attention.key_dense)]
            if backbone.position_encoding != "rotary":
                heads = [ops.repeat(each, length, axis=1) for each in heads]
                scores[i] += float32_array(attention.position_scores(*heads))[0]
                continue
            turned = (attention.rotate(each, np.arange(length)) for each in heads)
            query, key = (float32_array(each)[0] for each in turned)
            scores[i] += attention.score_scale * np.einsum("nhk,mhk->hnm", query, key)
    return scores


# === Parameters ===


def low_rank_factors(
    scores: np.ndarray, rank: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of the best approximation of matrices with a given rank.

    The approximation is the truncated singular value decomposition `U S V^T`, with
    `P_Q = U sqrt(S)` and `P_K = V sqrt(S)`. A singular value of zero would leave both factors
    without a gradient. In this case, the column of `P_Q` is drawn like a weight of BERT, and the
    column of `P_K` is zero.

    Args:
        scores: Array of shape `(H, n, n)`.
        rank: int.
        generator: `numpy.random.Generator`.

    Returns:
        `P_Q` and `P_K`, float32 arrays of shape `(n, H, rank)`.
    """
    num_heads, length, _ = scores.shape
    left, values, right = np.linalg.svd(scores, full_matrices=False)
    count = min(rank, length)
    left, values, right = left[..., :count], values[:, :count], right[:, :count]
    query = generator.normal(scale=0.02, size=(num_heads, length, rank))
    key = np.zeros((num_heads, length, rank))
    kept = values > 1e-6 * np.maximum(values[:, :1], 1e-6)
    root = np.sqrt(np.where(kept, values, 0.0))[:, None, :]
    query[..., :count] = np.where(kept[:, None, :], left * root, query[..., :count])
    key[..., :count] = np.swapaxes(right, 1, 2) * root
    query, key = (np.transpose(factor, (1, 0, 2)).astype("float32") for factor in (query, key))
    return query, key


def diagonal_means(scores: np.ndarray) -> np.ndarray:
    """Return the best approximation of matrices by one scalar for each distance.

    These scalars are the means of the diagonals.

    Args:
        scores: Array of shape `(H, n, n)`.

    Returns:
        float32 array of shape `(2 n - 1, H)`. Row `i - j + n - 1` belongs to query `i` and key `j`.
    """
    length = scores.shape[-1]
    offsets = range(length - 1, -length, -1)
    means = [np.diagonal(scores, offset, 1, 2).mean(axis=-1) for offset in offsets]
    return np.stack(means).astype("float32")


def shared_mean(scores: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean of scores along an axis, scaled down by how much the scores differ.

    The scale is the share of the squared scores that the mean keeps. Under softmax, wrong scores
    cost more than missing scores.
    """
    mean = scores.mean(axis=axis, keepdims=True)
    return mean * np.sum(mean**2) * scores.shape[axis] / max(np.sum(scores**2), 1e-12)


# === Orders of heads ===


def head_orders(scores: np.ndarray) -> np.ndarray:
    """Return orders of the heads in which the scores of all layers are most alike.

    The heads of a layer have no natural order: a layer computes the same after its heads and their
    rows of the output projection are permuted together. Layers that share parameters need one.

    Args:
        scores: Array of shape `(num_layers, num_heads, n, n)`.

    Returns:
        Integer array of shape `(num_layers, num_heads)`: the head that moves to each place.
    """
    layers = np.arange(len(scores))[:, None]
    shared = scores[0]
    for _ in range(_ROUNDS):
        # h: places; g: heads
        products = np.einsum("hij,lgij->lhg", shared, scores)
        orders = np.stack([_match(matrix) for matrix in products])
        shared = scores[layers, orders].mean(axis=0)
    return orders


def _match(products: np.ndarray) -> np.ndarray:
    """Assign a different column to each row, starting with the largest entry."""
    products = products.copy()
    columns = np.zeros(len(products), dtype="int64")
    for _ in range(len(products)):
        row, column = np.unravel_index(np.argmax(products), products.shape)
        columns[row] = column
        products[row], products[:, column] = -np.inf, -np.inf
    return columns


def reorder_heads(attention: keras.layers.Layer, order: np.ndarray) -> None:
    """Put the heads of an attention layer into another order. Its outputs do not change."""
    for dense in (attention.query_dense, attention.key_dense, attention.value_dense):
        kernel, *bias = dense.get_weights()
        dense.set_weights([kernel[:, order], *(each[order] for each in bias)])
    kernel, *bias = attention.output_dense.get_weights()
    attention.output_dense.set_weights([kernel[order], *bias])
