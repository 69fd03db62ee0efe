"""FIRE: scores that a small network computes from relative distances."""

import functools
from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.initializers import add_weight
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.types import Integer, Shape, Tensor

_EPSILON = 1e-6


@keras.saving.register_keras_serializable(package="keras_diet")
class FirePositionBias(PositionBias):
    """A small network of the distance, added to the attention scores (FIRE).

    For each head, with query `i` and key `j`, counted from 0:

        B_ij = f(psi(|i - j|) / psi(max(L, i, j))),    psi(x) = log(|c| x + 1)
        f(x) = V relu(w x + b) + a,                    L = |m| threshold

    The argument of `f` lies between 0 and 1 for every length, so that the network interpolates
    between distances that it knows. All positions share the network. It has one hidden layer of
    `hidden_dim` units and one output for each head. The scalars `c` and `m` are learned too.
    If both positions are below `L`, the divisor is the same for all, so that short sequences are
    not stretched.

    The paper has a causal mask, so that `j <= i` and `max(L, i, j) = max(L, i)`. The form for keys
    after the query is ours. It divides by the larger position, and the scores are the same before
    and after the query. The width and the first values, `c = 0.1` and `m = 1`, come from the
    paper's PyTorch code. The weights of the network start as in PyTorch's `Linear`. The bias `a` of
    the output is the same for all keys, so softmax removes it.

    Args:
        num_heads: int. Number of attention heads `H`.
        hidden_dim: int. Number of hidden units of the network. Defaults to `32`.
        threshold: number. First value of `L`, a position in tokens. It does not depend on
            `max_length`, so that a model for longer sequences has the same scores. Defaults to
            `512`.
        share_heads: bool. Whether all heads have the same scores. Defaults to `False`.
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
        ValueError: If a size is not a positive integer, `threshold` is not positive, or a sequence
            is too long.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.FirePositionBias(num_heads=4)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=position_bias(x))

    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="fire")
    y = encoder(x)
    ```

    References:
     - [Li et al., 2023](https://arxiv.org/abs/2310.04418), section 3
    """

    any_length = True

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int = 32,
        threshold: float = 512,
        share_heads: bool = False,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, None, share_heads, None, **kwargs)
        self.hidden_dim = validation.positive_int("hidden_dim", hidden_dim)
        self.threshold = validation.positive_number("threshold", threshold)

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create the scalars `c` and `m`, and the network."""
        hidden, heads = self.hidden_dim, self.num_score_heads
        add = functools.partial(add_weight, self, autocast=False)
        self.c = add("c", (), keras.initializers.Constant(0.1))
        self.multiplier = add("multiplier", (), "ones")
        # PyTorch's bound is the inverse root of the number of inputs.
        self.hidden_kernel = add("hidden_kernel", (hidden,), _uniform(1.0))
        self.hidden_bias = add("hidden_bias", (hidden,), _uniform(1.0))
        self.output_kernel = add("output_kernel", (hidden, heads), _uniform(hidden**-0.5))
        self.output_bias = add("output_bias", (heads,), _uniform(hidden**-0.5))

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return `f(psi(|i - j|) / psi(max(L, i, j)))` of the given positions."""
        distances = self._relative_distances(query_length, key_length, start_index)
        distances = ops.expand_dims(ops.cast(distances, self.score_dtype), -1)
        hidden = ops.relu(distances * self._cast(self.hidden_kernel) + self._cast(self.hidden_bias))
        # t, s: query and key positions; u: hidden units; h: heads
        scores = ops.einsum("tsu,uh->hts", hidden, self._cast(self.output_kernel))
        scores = scores + ops.reshape(self._cast(self.output_bias), (-1, 1, 1))
        return ops.expand_dims(scores, 0)

    def _relative_distances(self, query_length, key_length, start_index):
        """Return the argument of the network, `(T, S)`, in float32 for positions of any size."""
        query = ops.expand_dims(_backend.arange(query_length) + start_index, 1)
        query, key = ops.cast(query, "float32"), ops.cast(_backend.arange(key_length), "float32")
        threshold = ops.abs(ops.cast(self.multiplier, "float32")) * self.threshold
        largest = ops.maximum(ops.maximum(query, key), threshold)
        return self._psi(ops.abs(query - key)) / (self._psi(largest) + _EPSILON)

    def _psi(self, positions):
        return ops.log1p(ops.abs(ops.cast(self.c, "float32")) * positions)

    def _cast(self, weight):
        return ops.cast(weight, self.score_dtype)


def _uniform(bound):
    return keras.initializers.RandomUniform(-bound, bound)


# The paper calls the form that shares the network between the layers FIRE-S.
FIRE = PositionEncoding(FirePositionBias, sharing_modes=("none", "layer-wise", "head-wise"))
