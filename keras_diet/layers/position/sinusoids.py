"""Sinusoidal positions, and the angles of their waves, in float32."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import _backend
from keras_diet.types import Integer, Tensor


def angles_of(positions: Tensor, size: int, max_wavelength: float = 10_000.0) -> Tensor:
    """Return the angles `p / max_wavelength^(2 k / size)` for `k = 0, ..., (size - 1) // 2`.

    They are in float32 under every policy, because half precision cannot hold the angles of
    distant positions.

    Args:
        positions: Integer tensor `(..., N)`. Positions, or distances between them.
        size: int. Number of sines and cosines together.
        max_wavelength: float. The wavelengths grow from `2 pi` to almost `2 pi` times this number.
            Defaults to `10_000`, as in Vaswani et al. (2017).

    Returns:
        float32 tensor `(..., N, (size + 1) // 2)`.
    """
    frequencies = float(max_wavelength) ** (-np.arange(0, size, 2) / size)
    positions = ops.cast(ops.expand_dims(positions, -1), "float32")
    return positions * ops.convert_to_tensor(frequencies.astype("float32"))


@keras.saving.register_keras_serializable(package="keras_diet")
class Sinusoids(keras.layers.Layer):
    """Sinusoidal positions of inputs `(B, T, size)`, of shape `(1, T, size)`.

    The numbers equal those of `keras_hub.layers.SinePositionEncoding`. LiteRT cannot compute them
    with the operations of that layer.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Tensor, start_index: Integer = 0) -> Tensor:
        positions = _backend.arange(ops.shape(inputs)[1]) + start_index
        angles = angles_of(positions, inputs.shape[-1])
        waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        waves = ops.reshape(waves, (1, -1, 2 * angles.shape[-1]))
        # An odd size has one cosine less than sines.
        return waves[..., : inputs.shape[-1]]
