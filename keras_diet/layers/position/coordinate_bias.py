"""Scores of tokens with coordinates, such as places on a page, instead of an index."""

from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.position.position_bias import PositionBias, has_scores_by_distance
from keras_diet.types import Config, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class CoordinateBias(PositionBias):
    """The sum of a bias by distance for each axis, for tokens with coordinates.

    For each head, with the coordinates `x_i` of query `i` and `x_j` of key `j`:

        B_ij = sum_a b_a(x_ja - x_ia)

    The bias `b_a` may be any bias whose scores depend on the distance alone, such as
    `BucketedRelativePositionBias` or `AlibiPositionBias`. LayoutLMv3 has three of T5's: for the
    index of a token, and for its left and lower edges on the page. Coordinates may be in any order,
    and several tokens may have the same.

    One bias may also have a score for each pair of distances: give the token in row `y` and column
    `x` of a grid of `R` rows and `W` columns the coordinate `y (2 W - 1) + x`, on one axis.
    Differences of these coordinates tell both distances. With `RelativePositionBias` and
    `max_length = (R - 1) (2 W - 1) + W`, this is Swin's table of `(2 R - 1) (2 W - 1)` scores, and
    with `LogCPBBias` and its `num_columns` it is Swin V2's network.

    In a `DietEncoder`, pass the layer as `position_encoding`, and `coordinates` in calls. All
    layers share it, and it is computed once, or each layer has its own with `sharing="none"`. The
    scores of an example are a tensor `(num_heads, T, T)`, also with attention in blocks.

    Args:
        biases: list of bias layers for the same number of heads, one for each axis. The coordinates
            of an axis are integers from 0 to below the `max_length` of its bias.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Integer tensor `(B, T, n)`, the coordinates of queries on `n` axes.
        key: Integer tensor `(B, S, n)`, or `None` for `query`.

    Returns:
        Scores of shape `(B, num_heads, T, S)`.

    Raises:
        ValueError: If a bias needs more than the distance or has no `max_length`, the numbers of
            heads differ, or the coordinates are not integers in these ranges. Only coordinates in
            host memory are checked for their range.

    Example:

    ```python
    x = np.random.normal(size=(2, 4, 32)).astype("float32")
    places = np.array([[[0, 0], [70, 2], [140, 2], [5, 30]]] * 2)  # on a page of 200 x 40
    biases = [
        keras_diet.layers.BucketedRelativePositionBias(num_heads=4, max_length=200),
        keras_diet.layers.RelativePositionBias(num_heads=4, max_length=40),
    ]
    encoder = keras_diet.layers.DietEncoder(
        2, 4, 64, position_encoding=keras_diet.layers.CoordinateBias(biases)
    )
    y = encoder(x, coordinates=places)
    ```

    References:
     - [Huang et al., 2022](https://arxiv.org/abs/2204.08387), section 2.1
     - [Liu et al., 2021](https://arxiv.org/abs/2103.14030), equation 4
    """

    any_length = True
    distance_only = True
    # It reads the coordinates, and not only their number.
    reads_content = True

    def __init__(self, biases: Sequence[PositionBias], **kwargs: Any) -> None:
        biases = list(biases)
        for bias in biases:
            is_by_distance = has_scores_by_distance(bias) and bias.distance_only
            if not is_by_distance or bias.max_length is None:
                raise ValueError(
                    "`biases` must have scores that depend on the distance alone, and a "
                    f"`max_length`, the number of coordinates. Received: {bias}, with "
                    f"max_length={getattr(bias, 'max_length', None)}. Pass a layer such as "
                    "`BucketedRelativePositionBias(num_heads, max_length=...)`."
                )
        heads = [bias.num_heads for bias in biases]
        if len(set(heads)) != 1:
            raise ValueError(
                "`biases` must be one layer or more for the same number of heads. Received: layers "
                f"with num_heads={heads}."
            )
        super().__init__(heads[0], None, None, False, None, **kwargs)
        self.biases = biases

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Build the bias of each axis."""
        for bias in self.biases:
            if not bias.built:
                bias.build()

    def compute_scores(self, query: Tensor, key: Tensor, start_index: Integer) -> Tensor:
        """Return `sum_a b_a(x_ja - x_ia)` for the coordinates of queries and keys."""
        self._check(query)
        if key is not query:
            self._check(key)
        query, key = (ops.cast(each, "int32") for each in (query, key))
        scores = 0.0
        for axis, bias in enumerate(self.biases):
            size = bias.max_length
            distances = ops.expand_dims(key[..., axis], 1) - ops.expand_dims(query[..., axis], 2)
            table = bias.by_distance(size, size, 0)
            scores = scores + ops.take(table, distances + (size - 1), axis=1)
        return ops.swapaxes(scores, 0, 1)

    def _check(self, coordinates):
        num_axes, shape = len(self.biases), coordinates.shape
        dtype = keras.backend.standardize_dtype(coordinates.dtype)
        if len(shape) != 3 or shape[-1] != num_axes or "int" not in dtype:
            raise ValueError(
                f"Coordinates must be integers of shape (batch_size, length, {num_axes}), with one "
                f"axis for each bias. Received: {dtype} of shape {tuple(shape)}. Pass "
                "`coordinates` to an encoder."
            )
        values = validation.host_value(coordinates)
        for axis, bias in enumerate(self.biases if values is not None and values.size else ()):
            of_axis = values[..., axis]
            if not validation.are_integers_below(of_axis, bias.max_length):
                raise ValueError(
                    f"Coordinates of axis {axis} must be in [0, max_length) = [0, "
                    f"{bias.max_length}), for the `max_length` of its bias. Received: coordinates "
                    f"from {of_axis.min()} to {of_axis.max()}."
                )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Make a layer with new biases from a configuration."""
        # Biases that are not built yet get weights with the path of this layer.
        biases = [{**each, "build_config": None} for each in config["biases"]]
        return cls(**{**config, "biases": keras.saving.deserialize_keras_object(biases)})
