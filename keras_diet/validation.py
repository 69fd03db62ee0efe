"""Checks of arguments, so that every layer refuses bad input in the same words."""

import numbers

import keras
import numpy as np


def positive_int(name, value):
    """Return `value` as an `int`, or raise a `ValueError` that names the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return int(value)


def choice(name, value, choices):
    """Return `value` if it is one of `choices`, or raise a `ValueError` that lists them."""
    if value not in choices:
        options = ", ".join(repr(option) for option in choices)
        raise ValueError(f"`{name}` must be one of {options}. Received: {name}={value!r}")
    return value


def divisible_heads(hidden_dim, num_heads):
    """Return the head size, or raise a `ValueError` if the heads do not divide `hidden_dim`."""
    if hidden_dim % num_heads:
        raise ValueError(
            "`hidden_dim` must be divisible by `num_heads`. "
            f"Received: hidden_dim={hidden_dim}, num_heads={num_heads}"
        )
    return hidden_dim // num_heads


def length_within(length, max_length, argument, what="sequence"):
    """Raise a `ValueError` if `length` exceeds `max_length`; unknown lengths pass.

    A length is unknown only while TensorFlow traces a graph with a dynamic shape, and there
    TensorFlow itself refuses the slice that is too long.
    """
    if isinstance(length, int) and isinstance(max_length, int) and length > max_length:
        raise ValueError(
            f"The {what} is longer than `{argument}` allows. Received: length={length}, "
            f"{argument}={max_length}. Shorten the {what} or build with a larger `{argument}`."
        )


def segment_ids_within(segment_ids, num_segments):
    """Raise a `ValueError` if a segment id lies outside `[0, num_segments)`.

    Only values that can be read for free are checked: eager tensors in host memory. Inside a
    compiled function (`fit`, `predict` on TensorFlow and JAX) and on accelerators they are not.
    """
    values = _host_value(segment_ids)
    if values is None or values.size == 0:
        return
    low, high = values.min(), values.max()
    if low < 0 or high >= num_segments:
        raise ValueError(
            f"Segment ids must lie in [0, num_segments) = [0, {num_segments}). "
            f"Received ids from {low} to {high}."
        )


def _host_value(tensor):
    if isinstance(tensor, keras.KerasTensor) or _on_accelerator(tensor):
        return None
    try:
        return np.asarray(tensor)
    except (TypeError, ValueError, NotImplementedError, RuntimeError):
        # How the backends say that a tensor is symbolic and has no value yet.
        return None


def _on_accelerator(tensor):
    device = getattr(tensor, "device", "cpu")
    return "cpu" not in str(device).lower()
