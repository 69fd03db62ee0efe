"""The angles of sinusoidal positions, in float32."""

import numpy as np
from keras import ops

from keras_diet.types import Tensor


def angles_of(positions: Tensor, size: int, max_wavelength: float = 10_000.0) -> Tensor:
    """Return the angles `p / max_wavelength^(2 k / size)` for `k = 0, ..., (size - 1) // 2`.

    They are in float32 under every policy, because half precision cannot hold the angles of
    distant positions.

    Args:
        positions: Integer tensor `(N,)`. Positions, or distances between them.
        size: int. Number of sines and cosines together.
        max_wavelength: float. The wavelengths grow from `2 pi` to almost `2 pi` times this number.
            Defaults to `10_000`, as in Vaswani et al. (2017).

    Returns:
        float32 tensor `(N, (size + 1) // 2)`.
    """
    frequencies = float(max_wavelength) ** (-np.arange(0, size, 2) / size)
    positions = ops.cast(ops.expand_dims(positions, 1), "float32")
    return positions * ops.convert_to_tensor(frequencies.astype("float32"))
