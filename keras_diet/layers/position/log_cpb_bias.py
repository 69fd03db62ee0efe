"""Log-CPB of Swin V2: scores that a small network computes from logarithms of distances."""

import functools
import math
from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.initializers import add_weight
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import distances_of_pairs, scores_of_distances
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class LogCPBBias(PositionBias):
    """A small network of the logarithm of the distance, added to the attention scores (Swin V2).

    The continuous position bias of log-spaced distances. For each head, with query `i` and key `j`:

        B_ij = 16 sigmoid(V relu(w x + b)),    x = sign(i - j) log2(1 + 8 |i - j| / m) / log2(8)

    with `m = max_distance`. The network has one hidden layer of `hidden_dim` units and one output
    for each head. Keys before and after the query have inputs of another sign. The input grows
    slowly, so that the network extrapolates little at distances that it has not seen.

    The pixels of an image have two distances, of rows and of columns, and Swin V2's network reads
    both. With `num_columns`, the number `W` of columns of the grid, the token in row `y` and column
    `x` has the position `y (2 W - 1) + x`. The difference of two such positions tells both
    distances. `CoordinateBias` takes positions that are not the index of a token.

    Args:
        num_heads: int. Number of attention heads `H`.
        hidden_dim: int. Number of hidden units of the network. Defaults to `512`.
        max_distance: int. The distance `m`, with an input near 1. In Swin V2 it is the largest
            distance of the first training. It does not depend on `max_length`, so that a model for
            longer sequences has the same scores. Defaults to `512`.
        num_columns: int or `None`. Number of columns of a grid of two dimensions. Defaults to
            `None`, which means one dimension.
        share_heads: bool. Whether all heads have the same scores. Defaults to `False`.
        max_length: int or `None`. Longest sequence, in tokens. `cache_positions` needs a number.
            Defaults to `None`, which allows any length.
        initializer: Initializer of the kernels. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
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
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="log_cpb")
    y = encoder(x)
    ```

    References:
     - [Liu et al., 2022](https://arxiv.org/abs/2111.09883), section 3.3
    """

    any_length = True
    distance_only = True

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int = 512,
        max_distance: int = 512,
        num_columns: int | None = None,
        share_heads: bool = False,
        max_length: int | None = None,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, None, share_heads, initializer, **kwargs)
        self.hidden_dim = validation.positive_int("hidden_dim", hidden_dim)
        self.max_distance = validation.positive_int("max_distance", max_distance)
        self.num_columns = validation.optional_positive_int("num_columns", num_columns)

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create the network. Its output has no bias, as in the authors' code."""
        num_axes = 1 if self.num_columns is None else 2
        add = functools.partial(add_weight, self, autocast=False)
        self.hidden_kernel = add("hidden_kernel", (num_axes, self.hidden_dim))
        self.hidden_bias = add("hidden_bias", (self.hidden_dim,), "zeros")
        self.output_kernel = add("output_kernel", (self.hidden_dim, self.num_score_heads))

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return `16 sigmoid(V relu(w x + b))` of the given positions."""
        # Swin V2 counts from the key to the query: `i - j`.
        distances = -distances_of_pairs(query_length, key_length, start_index)
        axes = [distances]
        if self.num_columns is not None:
            period = 2 * self.num_columns - 1
            columns = ops.mod(distances + self.num_columns - 1, period) - (self.num_columns - 1)
            axes = [ops.floor_divide(distances - columns, period), columns]
        distances = ops.cast(ops.stack(axes, axis=-1), "float32")
        logarithms = ops.log1p(ops.abs(distances) * (8 / self.max_distance)) / math.log(8)
        inputs = ops.cast(ops.sign(distances) * logarithms, self.score_dtype)
        kernel, bias, output = (
            ops.cast(weight, self.score_dtype)
            for weight in (self.hidden_kernel, self.hidden_bias, self.output_kernel)
        )
        hidden = ops.relu(ops.matmul(inputs, kernel) + bias)
        by_distance = 16 * ops.sigmoid(ops.matmul(hidden, output))
        return scores_of_distances(by_distance, query_length, key_length)


LOG_CPB = PositionEncoding(LogCPBBias, sharing_modes=("none", "layer-wise", "head-wise"))
