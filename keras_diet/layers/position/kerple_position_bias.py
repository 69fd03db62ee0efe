"""KERPLE: scores that decrease with a learned function of the distance."""

import math
from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import distances_of_pairs, scores_of_distances
from keras_diet.types import Integer, Shape, Tensor

KERNELS = ("log", "power")
_SMALLEST = 0.01


@keras.saving.register_keras_serializable(package="keras_diet")
class KerplePositionBias(PositionBias):
    """A learned penalty for the distance, added to the attention scores (KERPLE).

    For each head, with query `i` and key `j`:

        B_ij = -r1 log(1 + r2 |i - j|)    with r1, r2 > 0            kernel="log"
        B_ij = -r1 |i - j|^r2             with r1 > 0, 0 < r2 <= 2   kernel="power"

    Each head learns its own `r1` and `r2`. With the power kernel and a fixed `r2 = 1`, the layer
    would be ALiBi with learned slopes. The scores are the same before and after the query. In a
    causal model the keys after the query are masked, so that the bias is the one of the paper.

    The limits and the initial values come from the authors' code. A constraint keeps both
    weights at 0.01 or above, and `r2` of the power kernel at 2 or below. Keras's optimizers apply
    it after each step, and the scores never use a value outside of these limits. At the start, `r1`
    is uniform in [0, 2) and `r2` in [0, 1). With the power kernel, `r1` is uniform in [0, 1) and
    `r2` in [0, 2).

    Args:
        num_heads: int. Number of attention heads `H`.
        kernel: `"log"` or `"power"`. Defaults to `"log"`, which extrapolates best in the paper.
        share_heads: bool. Whether all heads use the same `r1` and `r2`. Defaults to `False`.
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
        ValueError: If a size is not a positive integer, `kernel` is unknown, or a sequence is too
            long.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="kerple")
    y = encoder(x)
    position_bias = keras_diet.layers.KerplePositionBias(num_heads=4, kernel="power")
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding=position_bias)
    y = encoder(x)
    ```

    References:
     - [Chi et al., 2022](https://arxiv.org/abs/2205.09921), section 4
     - [The authors' code](https://github.com/chijames/KERPLE), `ParallelKerpleLog` and
       `ParallelKerplePower`
    """

    any_length = True
    distance_only = True

    def __init__(
        self,
        num_heads: int,
        kernel: str = "log",
        share_heads: bool = False,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, None, share_heads, None, **kwargs)
        self.kernel = validation.choice("kernel", kernel, KERNELS)

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create `r1` and `r2`."""
        is_power = self.kernel == "power"
        self.r1 = self._add("r1", 1.0 if is_power else 2.0, math.inf)
        self.r2 = self._add("r2", 2.0 if is_power else 1.0, 2.0 if is_power else math.inf)

    def _add(self, name, largest_initial, largest):
        return self.add_weight(
            name=name,
            shape=(self.num_score_heads,),
            initializer=keras.initializers.RandomUniform(0.0, largest_initial),
            constraint=_AtMost(largest),
            autocast=False,
        )

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return `-r1 log(1 + r2 |i - j|)` or `-r1 |i - j|^r2` of the given positions."""
        distances = distances_of_pairs(query_length, key_length, start_index)
        distances = ops.cast(ops.expand_dims(ops.abs(distances), 1), "float32")
        r1, r2 = _in_range(self.r1), _in_range(self.r2)
        if self.kernel == "log":
            by_distance = -r1 * ops.log1p(r2 * distances)
        else:
            # The power of zero has no gradient by `r2` on some backends.
            powers = ops.power(ops.maximum(distances, 1.0), r2)
            by_distance = -r1 * ops.where(ops.equal(distances, 0.0), 0.0, powers)
        by_distance = ops.cast(by_distance, self.score_dtype)
        return scores_of_distances(by_distance, query_length, key_length)


class _AtMost(keras.constraints.Constraint):
    """Keeps a weight positive and below a limit."""

    def __init__(self, largest):
        self.largest = largest

    def __call__(self, values):
        return ops.clip(values, _SMALLEST, self.largest)


def _in_range(weight):
    """Return the value of a weight inside the range of its constraint, in float32.

    The gradient is the one of the weight. So a weight outside of its range can return, also with an
    optimizer that does not apply the constraint.
    """
    values = ops.convert_to_tensor(weight)
    values = values + ops.stop_gradient(weight.constraint(values) - values)
    return ops.cast(values, "float32")


# The authors' code shares the parameters between the layers.
KERPLE = PositionEncoding(KerplePositionBias, sharing_modes=("layer-wise", "none", "head-wise"))
