"""Checks of arguments, so that every layer refuses bad input in the same words."""

import math
import numbers

import keras
import numpy as np


def positive_int(name, value):
    """Return `value` as an `int`, or raise a `ValueError` that names the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value <= 0:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return int(value)


def optional_positive_int(name, value):
    """Return `None` or `value` as an `int`, or raise a `ValueError` that names the argument."""
    return None if value is None else positive_int(name, value)


def positive_number(name, value):
    """Return `value` as a `float`, or raise a `ValueError` that names the argument."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < value < math.inf:
        raise ValueError(f"`{name}` must be a positive number. Received: {name}={value!r}")
    return float(value)


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


def without_attention_axes(attention):
    """Raise a `ValueError` if an attention layer that has one sequence axis was given others."""
    # Once a layer is built, Keras puts the axis of sequences into its configuration.
    if attention.attention_axes is not None and tuple(attention.attention_axes) != (1,):
        raise ValueError(
            f"`attention_axes` must be left at `None` in `{type(attention).__name__}`. "
            f"Received: attention_axes={attention.attention_axes}"
        )


def one_sequence_axis(query_shape, value_shape):
    """Raise a `ValueError` unless both shapes are `(batch_size, length, features)`."""
    if len(query_shape) != 3 or len(value_shape) != 3:
        raise ValueError(
            "Query and value must have the shape (batch_size, length, features). Received: "
            f"query_shape={tuple(query_shape)}, value_shape={tuple(value_shape)}"
        )


def length_within(length, max_length, argument, what="sequence"):
    """Return `length`, or raise a `ValueError` if it exceeds `max_length`.

    While TensorFlow traces a graph for any length, the graph is given the check; it then raises
    `tf.errors.InvalidArgumentError` with the same words.
    """
    message = (
        f"The {what} is longer than `{argument}` allows. {{}}{argument}={max_length}. "
        f"Shorten the {what} or build with a larger `{argument}`."
    )
    if isinstance(length, int):
        if length > max_length:
            raise ValueError(message.format(f"Received: length={length}, "))
    elif keras.backend.backend() == "tensorflow" and length is not None:
        # Keras has no assertion for graphs.
        import tensorflow as tf

        check = tf.debugging.assert_less_equal(length, max_length, message=message.format(""))
        # What uses the returned length waits for the check, or would fail first in other words.
        with tf.control_dependencies([check]):
            return tf.identity(length)
    return length


def score_bias(name, bias, shape):
    """Raise a `ValueError` unless `bias` can be added to scores of `shape`, as far as known."""
    if not keras.backend.is_float_dtype(bias.dtype):
        raise ValueError(
            f"`{name}` must be a floating point bias that is added to the scores; pass a boolean "
            "or integer mask as `attention_mask`. "
            f"Received: dtype={keras.backend.standardize_dtype(bias.dtype)}"
        )
    sizes = zip(reversed(bias.shape), reversed(shape), strict=False)
    if len(bias.shape) > len(shape) or any(
        size not in (1, None, full) and full is not None for size, full in sizes
    ):
        raise ValueError(
            f"`{name}` must be broadcastable to the scores, (batch_size, num_heads, query_length, "
            f"key_length) = {tuple(shape)}. Received: shape={tuple(bias.shape)}"
        )


def tensor_in_functional_model(name, bias):
    """Raise a `ValueError` for a layer among the arguments of a symbolic call.

    Its weights would be neither trained nor saved.
    """
    if isinstance(bias, keras.layers.Layer):
        raise ValueError(
            f"In a functional model `{name}` must be a tensor: call the layer and pass what it "
            "returns, or call both in a layer of your own, which may also take `block_size`. "
            f"Received: {name}={bias}"
        )


def score_features(name, features, shape):
    """Raise a `ValueError` unless `features` are those of queries and keys with scores of `shape`.

    Args:
        name: The argument.
        features: What should be a pair of tensors, `(B or 1, T, H or 1, r)` and
            `(B or 1, S, H or 1, r)`.
        shape: `(B, H, T, S)`, `None` where a size is not known.
    """
    batch_size, num_heads, query_length, key_length = shape
    expected = [
        (batch_size, query_length, num_heads, None),
        (batch_size, key_length, num_heads, None),
    ]
    is_pair = isinstance(features, (tuple, list)) and len(features) == 2
    if is_pair and all(
        keras.backend.is_float_dtype(tensor.dtype)
        and len(tensor.shape) == 4
        and all(
            size in (None, full) or full is None or (size == 1 and axis in (0, 2))
            for axis, (size, full) in enumerate(zip(tensor.shape, sizes, strict=True))
        )
        for tensor, sizes in zip(features, expected, strict=True)
    ):
        rank, key_rank = (tensor.shape[-1] for tensor in features)
        if rank == key_rank:
            return
    received = [tuple(tensor.shape) for tensor in features] if is_pair else features
    raise ValueError(
        f"`{name}` must be a pair of floating point tensors, of queries (batch_size or 1, "
        "query_length, num_heads or 1, rank) and keys (batch_size or 1, key_length, num_heads or "
        f"1, rank), for scores of shape (batch_size, num_heads, query_length, key_length) = "
        f"{tuple(shape)}. Received: {received}"
    )


def segment_ids_within(segment_ids, num_segments):
    """Raise a `ValueError` if a segment id lies outside `[0, num_segments)`.

    Only values that can be read for free are checked: eager tensors in host memory. Inside a
    compiled function (`fit`, `predict` on TensorFlow and JAX) and on accelerators they are not.
    """
    values = host_value(segment_ids)
    if values is None or values.size == 0:
        return
    low, high = values.min(), values.max()
    if low < 0 or high >= num_segments:
        raise ValueError(
            f"Segment ids must lie in [0, num_segments) = [0, {num_segments}). "
            f"Received ids from {low} to {high}."
        )


def host_value(tensor):
    """Return `tensor` as a NumPy array where that is free, or `None`.

    It is free for values in host memory; symbolic tensors have none, and reading from an
    accelerator would wait for it.
    """
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
