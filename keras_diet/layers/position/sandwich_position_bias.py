"""Sandwich: scores from the inner products of sinusoidal positions."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import distances_of_pairs, scores_of_distances
from keras_diet.layers.position.sinusoids import angles_of
from keras_diet.types import Integer, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class SandwichPositionBias(PositionBias):
    """Inner products of sinusoidal positions, added to the attention scores (Sandwich).

    For each head `h = 1, ..., H`, with query `i` and key `j`:

        B_ij = (p_i . p_j - p_i . p_i) / c_h
        p_i . p_j = sum_k cos((i - j) / 10000^(2 k / d)),    k = 0, ..., d / 2 - 1
        c_h = 8 h / H

    `p_i` are the sinusoidal positions of Vaswani et al., of the size `d = position_dim`. Their
    inner product depends on the distance only. It falls with the distance about like a logarithm,
    with small waves. `c_h` is the compression ratio: heads with small ratios read near keys, and
    heads with large ratios also read distant keys. The layer has no weights and takes sequences of
    any length.

    The paper proposes inner products of sinusoidal positions with a ratio for each head. Two points
    are our reading: `k` counts from 0, as in Vaswani et al., and the ratios are `8 h / H`, as in
    the paper's figure of ALiBi. The second term, `p_i . p_i = d / 2`, is the same for all keys, so
    softmax removes it. With it, near keys have scores close to zero, where float16 and bfloat16 are
    more precise. The paper has a causal mask. Without a mask, the scores are the same before and
    after the query.

    Args:
        num_heads: int. Number of attention heads `H`.
        position_dim: int. Size `d` of the sinusoidal positions, an even number. Defaults to `128`.
        max_length: int or `None`. Longest sequence, in tokens. `cache_positions` needs a number.
            Defaults to `None`, which allows any length.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(B, T, ...)`. Only its length is read.
        key: Tensor of shape `(B, S, ...)`, or `None` for `query`. Only its length is read.
        start_index: int or scalar tensor. Position of the first query. Defaults to `0`.

    Returns:
        Scores of shape `(1, num_heads, T, S)`.

    Raises:
        ValueError: If a size is not a positive integer, `position_dim` is odd, or a sequence is too
            long.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.SandwichPositionBias(num_heads=4)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=position_bias(x))

    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="sandwich")
    y = encoder(x)
    ```

    References:
     - [Chi et al., 2023](https://arxiv.org/abs/2212.10356), section 5
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5, the positions
    """

    any_length = True
    distance_only = True

    def __init__(
        self, num_heads: int, position_dim: int = 128, max_length: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(num_heads, max_length, None, False, None, **kwargs)
        self.position_dim = validation.positive_int("position_dim", position_dim)
        if self.position_dim % 2:
            raise ValueError(
                "`position_dim` must be even, since each sine has a cosine. Received: "
                f"position_dim={position_dim}. Add 1 to it."
            )
        self._ratios = (8 * np.arange(1, self.num_heads + 1) / self.num_heads).astype("float32")

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return `(p_i . p_j - p_i . p_i) / c_h` of the given positions."""
        distances = distances_of_pairs(query_length, key_length, start_index)
        angles = angles_of(distances, self.position_dim)
        products = ops.sum(ops.cos(angles), axis=1, keepdims=True)
        by_distance = (products - self.position_dim / 2) / ops.convert_to_tensor(self._ratios)
        by_distance = ops.cast(by_distance, self.score_dtype)
        return scores_of_distances(by_distance, query_length, key_length)


# The ratios are different for each head, and the same in all layers.
SANDWICH = PositionEncoding(SandwichPositionBias, sharing_modes=("layer-wise",))
