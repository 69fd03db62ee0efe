"""DIET-ABS: absolute positions in the attention scores."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.initializers import add_weight, score_initializer
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class AbsolutePositionBias(PositionBias):
    """Learned absolute positions, added to the attention scores of each head (DIET-ABS).

    Equation 1 of the paper without its token and segment terms, for each head:

        B_ij = (P_Q P_K^T)_ij = sum_r P_Q[i, r] P_K[j, r]

    where `P_Q = query_embedding` and `P_K = key_embedding` have the shape `(n, d_p)` for each head.
    The layer does not scale the term. With positions at the input, the rank of the scores is at
    most the head size `d_h`. With this term it can reach `d_h + d_p`, if there are as many
    positions (Theorem 1).

    Args:
        num_heads: int. Number of attention heads `H`.
        max_length: int. Number of positions `n`, in tokens.
        rank: int. Rank `d_p` of the scores. The paper uses the head size by default, and 128 in
            its best model.
        share_heads: bool. Whether all heads use the same embeddings. Defaults to `False`.
        key_length: int or `None`. Number of key positions. With Linformer it is `projection_dim`.
            Defaults to `None`, which means `max_length`.
        initializer: Initializer of both embeddings. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`. For scores of the standard deviation
            `s`, pass `keras.initializers.RandomNormal((s**2 / rank) ** 0.25)`.
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
    position_bias = keras_diet.layers.AbsolutePositionBias(num_heads=4, max_length=16, rank=8)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=position_bias(x))
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), equation 1
    """

    def __init__(
        self,
        num_heads: int,
        max_length: int,
        rank: int,
        share_heads: bool = False,
        key_length: int | None = None,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, key_length, share_heads, initializer, **kwargs)
        self.rank = validation.positive_int("rank", rank)

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create `query_embedding` and `key_embedding`."""
        sizes = (self.num_score_heads, self.rank)
        self.query_embedding = add_weight(self, "query_embedding", (self.max_length, *sizes))
        self.key_embedding = add_weight(self, "key_embedding", (self.key_length, *sizes))

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return `P_Q P_K^T` for the given positions."""
        query, key = self._embeddings(query_length, key_length, start_index)
        # t, s: query and key positions; h: heads; r: rank
        return ops.einsum("bthr,bshr->bhts", query, key)

    def features(
        self, query: Tensor, key: Tensor | None = None, start_index: Integer = 0
    ) -> tuple[Tensor, Tensor]:
        """Return features whose inner products are the scores.

        Features take less memory than the `(T, S)` matrix of the scores.

        Args:
            query: As in the call.
            key: As in the call.
            start_index: As in the call.

        Returns:
            Query features `(1, T, H or 1, rank)` and key features `(1, S, H or 1, rank)`.
        """
        if not self.built:
            self.build()
        query_length, key_length = self._checked_lengths(query, key, start_index)
        return self._embeddings(query_length, key_length, start_index)

    def _embeddings(self, query_length, key_length, start_index):
        def positions(embedding, start, length):
            size = (length, self.num_score_heads, self.rank)
            rows = _backend.slice(ops.convert_to_tensor(embedding), (start, 0, 0), size)
            return ops.cast(ops.expand_dims(rows, 0), self.compute_dtype)

        return (
            positions(self.query_embedding, start_index, query_length),
            positions(self.key_embedding, 0, key_length),
        )


def _bias(
    num_heads,
    max_length,
    key_dim,
    rank=None,
    projection_dim=None,
    initial_score_stddev=None,
    **kwargs,
):
    rank = key_dim if rank is None else rank
    initializer = score_initializer(initial_score_stddev, rank)
    sizes = {"rank": rank, "key_length": projection_dim}
    return AbsolutePositionBias(num_heads, max_length, initializer=initializer, **sizes, **kwargs)


DIET_ABS = PositionEncoding(_bias, sharing_modes=("layer-wise", "none", "head-wise"))
