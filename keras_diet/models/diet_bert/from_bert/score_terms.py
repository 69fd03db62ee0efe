"""The parts of BERT's attention scores that come from positions and from segments alone.

BERT adds positions and segments to the tokens and normalizes the sum:

    x_i = gamma * center(E[t_i] + P_i + G[S(i)]) / sigma_i + beta

The deviation `sigma_i` hardly depends on the position, so with its mean `sigma` over the vocabulary
the part of `x_i` that comes from the position is

    p_i = gamma * center(P_i - mean P) / sigma

and a layer scores it `(p_i W_Q) . (p_j W_K) / sqrt(d_h)`. In deeper layers the residual connections
carry `p_i` on, and it is taken for what they see as well. Segments have `g_s` in the same way.
"""

import dataclasses

import numpy as np

from keras_diet._arrays import float32_array


@dataclasses.dataclass(frozen=True)
class InputEmbeddings:
    """What BERT adds at its input and normalizes, as float32 arrays.

    Attributes:
        tokens: `E`, of shape `(vocabulary_size, hidden_dim)`.
        positions: `P`, of shape `(length, hidden_dim)`.
        segments: `G`, of shape `(num_segments, hidden_dim)`.
        gamma: Scale of the layer normalization, of shape `(hidden_dim,)`.
    """

    tokens: np.ndarray
    positions: np.ndarray
    segments: np.ndarray
    gamma: np.ndarray

    @classmethod
    def of(cls, backbone, length):
        """Read those of the first positions of a backbone with positions and segments at input."""
        encoding = backbone.input_encoding
        return cls(
            tokens=float32_array(backbone.token_embedding.embeddings),
            positions=float32_array(encoding.position_embedding.position_embeddings)[:length],
            segments=float32_array(encoding.segment_embedding.embeddings),
            gamma=float32_array(backbone.embeddings_layer_norm.gamma),
        )

    @property
    def mean_position(self):
        """The mean over the positions, of which the first is that of `[CLS]` and an outlier."""
        return self.positions[1:].mean(axis=0) if len(self.positions) > 1 else self.positions[0]

    def position_parts(self):
        """Return `p`, of shape `(length, hidden_dim)`; it is zero where `[CLS]` stands."""
        parts = self.positions - self.mean_position
        parts[0] = 0.0
        return self._normalized(parts)

    def segment_parts(self):
        """Return `g`, of shape `(num_segments, hidden_dim)`."""
        return self._normalized(self.segments - self.segments.mean(axis=0))

    def _normalized(self, parts):
        tokens = self.tokens + self.mean_position + self.segments.mean(axis=0)
        variance = tokens.var(axis=-1).mean() + parts.var(axis=-1).mean()
        return self.gamma * (parts - parts.mean(axis=-1, keepdims=True)) / np.sqrt(variance)


def scores_of_parts(parts, backbone):
    """Return what a part of the hidden states scores in each layer and head.

    Args:
        parts: Array of shape `(n, hidden_dim)`, e.g. the part of each position.
        backbone: `DietBertBackbone`, for its projections.

    Returns:
        Array of shape `(num_layers, num_heads, n, n)`: layer, head, query, key. The mean of each
        row is zero: softmax does not see it.
    """
    scores = []
    for block in backbone.encoder.transformer_layers:
        attention = block.self_attention
        # n: positions; d: hidden size; h: heads; k: head size
        query = np.einsum("nd,dhk->hnk", parts, float32_array(attention.query_dense.kernel))
        key = np.einsum("nd,dhk->hkn", parts, float32_array(attention.key_dense.kernel))
        scores.append(query @ key / np.sqrt(attention.key_dim))
    scores = np.stack(scores)
    return scores - scores.mean(axis=-1, keepdims=True)
