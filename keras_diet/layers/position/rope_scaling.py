"""Scaling of rotary positions, for texts that are longer than those of the training."""

import math
from typing import Any

import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet.layers.position.sinusoids import angles_of
from keras_diet.types import Config, Tensor

# What each kind reads beside `factor`.
_LENGTH = "original_max_position_embeddings"
_KINDS = {
    "linear": (),
    "dynamic": (_LENGTH,),
    "yarn": (_LENGTH, "beta_fast", "beta_slow", "attention_factor"),
}


def rope_scaling_of(name: str, scaling: Any) -> Config | None:
    """Return a checked scaling with all values that its kind reads, or `None`.

    Args:
        name: Name of the argument, for messages.
        scaling: `None`, or a dictionary as in `RotaryMultiHeadAttention`.
    """
    if scaling is None:
        return None
    label = f"{name}[{{!r}}]".format
    scaling = dict(scaling)
    kind = validation.choice(label("rope_type"), scaling.pop("rope_type", None), tuple(_KINDS))
    known = ("factor", *_KINDS[kind])
    if unknown := scaling.keys() - {*known}:
        raise ValueError(
            f"`{name}` of type {kind!r} takes {', '.join(known)}. Received: {sorted(unknown)}"
        )
    factor = validation.positive_number(label("factor"), scaling.get("factor"))
    checked = {"rope_type": kind, "factor": factor}
    if _LENGTH in known:
        checked[_LENGTH] = validation.positive_int(label(_LENGTH), scaling.get(_LENGTH))
    if kind == "yarn":
        defaults = {"beta_fast": 32.0, "beta_slow": 1.0}
        defaults["attention_factor"] = 0.1 * math.log(max(factor, 1.0)) + 1.0
        for key, default in defaults.items():
            checked[key] = validation.positive_number(label(key), scaling.get(key, default))
    return checked


def rotary_angles(
    positions: Tensor, size: int, max_wavelength: float, scaling: Config | None
) -> Tensor:
    """Return the angles `(..., N, size / 2)` of positions `(..., N)`, with a scaling or without."""
    angles = angles_of(positions, size, max_wavelength)
    if scaling is None:
        return angles
    factor, pairs = scaling["factor"], np.arange(size // 2)
    if scaling["rope_type"] == "linear":
        return angles / factor
    trained = scaling[_LENGTH]
    if scaling["rope_type"] == "dynamic":
        length = ops.cast(ops.max(positions) + 1, "float32")
        growth = factor * ops.maximum(length / trained, 1.0) - (factor - 1.0)
        # A base that grows by `growth^(size / (size - 2))`: the last pair slows down by `growth`.
        exponents = (-2 * pairs / (size - 2)).astype("float32")
        return angles * ops.power(growth, ops.convert_to_tensor(exponents))

    def pair_with(turns):
        # The pair of numbers that makes this number of turns in `trained` tokens.
        return size * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(max_wavelength))

    first = max(math.floor(pair_with(scaling["beta_fast"])), 0)
    last = min(math.ceil(pair_with(scaling["beta_slow"])), size - 1)
    is_slow = np.clip((pairs - first) / max(last - first, 1e-3), 0, 1)
    slower = (is_slow / factor + 1 - is_slow).astype("float32")
    return angles * ops.convert_to_tensor(slower)
