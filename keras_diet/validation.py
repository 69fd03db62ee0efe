"""Checks of arguments. All layers use them, so the same mistake has the same message everywhere."""

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from keras_diet.types import Shape, Tensor


def positive_int(name: str, value: Any) -> int:
    """Return `value` as an `int`, or raise a `ValueError` unless it is a positive integer."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}")
    return int(value)


def optional_positive_int(name: str, value: Any) -> int | None:
    """Return `None` for `None`, and `positive_int(name, value)` for everything else."""
    return None if value is None else positive_int(name, value)


def increasing_ints(name: str, values: Any) -> tuple[int, ...]:
    """Return a tuple of `int`, or raise a `ValueError` unless they are positive and increase."""
    is_tuple = isinstance(values, Iterable) and not isinstance(values, (str, bytes))
    integers = tuple(positive_int(name, value) for value in values) if is_tuple else ()
    if not integers or list(integers) != sorted(set(integers)):
        raise ValueError(
            f"`{name}` must be integers that increase, in a tuple such as (16, 32, 64). Received: "
            f"{name}={values!r}"
        )
    return integers


def positive_number(name: str, value: Any) -> float:
    """Return `value` as a `float`, or raise a `ValueError` unless it is positive and finite."""
    return _number(name, value, lambda x: 0 < x < math.inf, "a positive, finite number")


def optional_positive_number(name: str, value: Any) -> float | None:
    """Return `None` for `None`, and else what `positive_number` returns."""
    return None if value is None else positive_number(name, value)


def not_negative_number(name: str, value: Any) -> float:
    """Return `value` as a `float`, or raise a `ValueError` if it is negative or not finite."""
    return _number(name, value, lambda x: 0 <= x < math.inf, "a finite number of at least 0")


def rate(name: str, value: Any) -> float:
    """Return `value` as a `float`, or raise a `ValueError` unless it is in `[0, 1]`."""
    return _number(name, value, lambda x: 0 <= x <= 1, "a number in [0, 1]")


def _number(name, value, is_allowed, rule):
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not is_allowed(float(value)):
        raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")
    return float(value)


def choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """Return `value`, or raise a `ValueError` that lists `choices` unless it is one of them."""
    # `in` would compare the elements of an array.
    if isinstance(value, np.ndarray) or value not in choices:
        options = ", ".join(repr(option) for option in choices)
        raise ValueError(f"`{name}` must be one of {options}. Received: {name}={value!r}")
    return value


def divisible_heads(hidden_dim: int, num_heads: int) -> int:
    """Return the head size, or raise a `ValueError` unless `num_heads` divides `hidden_dim`."""
    if hidden_dim % num_heads:
        raise ValueError(
            "`hidden_dim` must be divisible by `num_heads`. "
            f"Received: hidden_dim={hidden_dim}, num_heads={num_heads}. "
            f"Choose a multiple of {num_heads} for `hidden_dim`, or another `num_heads`."
        )
    return hidden_dim // num_heads


def length_within(length: Any, max_length: int, argument: str, what: str = "sequence") -> None:
    """Raise a `ValueError` if a length exceeds `max_length`.

    Args:
        length: int. `None`, or a tensor of a graph for any length, is not checked.
        max_length: int. The largest length that is allowed.
        argument: Name of the argument that sets `max_length`.
        what: Name of the input that is checked. Defaults to `"sequence"`.
    """
    if isinstance(length, int) and length > max_length:
        raise ValueError(
            f"The {what} is longer than `{argument}` allows. Received: length={length}, "
            f"{argument}={max_length}. Shorten the {what}, or build the layer with a larger "
            f"`{argument}`."
        )


def shape_of_ids(name: str, ids: Any, shape: Shape) -> None:
    """Raise a `ValueError` unless there is an id for each token of inputs `(B, T, ...)`."""
    received = getattr(ids, "shape", None)
    if received is None or not sizes_fit(received, shape):
        kind = type(ids).__name__ if received is None else f"shape={tuple(received)}"
        raise ValueError(
            f"`{name}` must be an array of the shape (batch_size, length) of the "
            f"inputs, {tuple(shape)}. Received: {kind}. Pass one id for each token."
        )


def document_ids(name: str, ids: Any) -> None:
    """Raise a `ValueError` unless ids are not negative, and the tokens with an id are adjacent.

    Padding, 0, may be anywhere. As for segments, only ids in host memory are checked.
    """
    values = host_value(ids)
    if values is None or values.size == 0:
        return
    is_split = _num_runs(values) != _num_runs(np.sort(values, axis=1))
    if not are_integers_below(values, 2**31):
        rule, received = "be integers from 0 on", f"values from {values.min()} to {values.max()}"
    elif np.any(is_split):
        rule = "have the tokens of a document next to each other"
        received = f"the row {values[np.argmax(is_split)]!r:.100}"
    else:
        return
    raise ValueError(f"{name} must {rule}, with 0 for padding. Received: {received}")


def _num_runs(ids):
    begins = np.diff(ids, axis=1, prepend=-1) != 0
    return np.sum(begins & (ids != 0), axis=1)


def segment_ids_within(segment_ids: Tensor, num_segments: int) -> None:
    """Raise a `ValueError` unless segment ids are integers in `[0, num_segments)`.

    This checks eager tensors in host memory only. It does not check ids inside a compiled function
    (`fit` and `predict` on TensorFlow and JAX) or on an accelerator.
    """
    values = host_value(segment_ids)
    if values is None or values.size == 0:
        return
    if not are_integers_below(values, num_segments):
        raise ValueError(
            f"`segment_ids` must be integers in [0, num_segments) = [0, {num_segments}). "
            f"Received: ids from {values.min()} to {values.max()}. Change the ids or "
            "`num_segments`."
        )


def start_index(value: Any) -> int | None:
    """Return the position of the first query, or `None` if a tensor does not have a value yet.

    Raises:
        ValueError: If it is not an integer, or negative.
    """
    values = host_value(value)
    kind = "i" if values is None else values.dtype.kind
    dtype = getattr(value, "dtype", "int32")
    is_integer = kind in "iu" and (values is not None or keras.backend.is_int_dtype(dtype))
    if not is_integer or (values is not None and (values.ndim or values < 0)):
        raise ValueError(
            "`start_index` must be a single integer that is not negative, the position of the "
            f"first query. Received: start_index={value}"
        )
    return None if values is None else int(values)


def sizes_fit(shape: Shape, other: Sequence[Any]) -> bool:
    """Return whether two shapes are equal, where unknown and symbolic sizes fit every size.

    Args:
        shape: A shape.
        other: A shape, with a size or a tuple of allowed sizes for each axis.
    """
    return len(shape) == len(other) and all(map(_size_fits, shape, other))


def _size_fits(size, allowed):
    allowed = allowed if isinstance(allowed, tuple) else (allowed,)
    return not all(isinstance(each, int) for each in (size, *allowed)) or size in allowed


def are_integers_below(values: np.ndarray, limit: int) -> bool:
    """Return whether an array holds only integers in `[0, limit)`, of any dtype."""
    # The comparison fails for NaN.
    is_integer = values.dtype.kind in "iub" or bool(np.all(values == np.round(values)))
    return is_integer and bool(values.min() >= 0 and values.max() < limit)


def plain_tokenizer(tokenizer: Any) -> None:
    """Raise a `ValueError` if a tokenizer adds special tokens or padding to what it returns."""
    for name in ("add_bos", "add_eos", "sequence_length"):
        if value := getattr(tokenizer, name, None):
            raise ValueError(
                "`tokenizer` must not pad, truncate or add special tokens, which is done later. "
                f"Received: tokenizer.{name}={value}"
            )


def host_value(tensor: Tensor) -> np.ndarray | None:
    """Return `tensor` as a NumPy array if it is in host memory, and `None` if it is not.

    Symbolic tensors have no value. Reading from an accelerator would wait for it.
    """
    if isinstance(tensor, keras.KerasTensor) or _on_accelerator(tensor):
        return None
    try:
        return np.asarray(tensor)
    except (TypeError, ValueError, NotImplementedError, RuntimeError):
        # The backends raise one of these for a symbolic tensor.
        return None


def _on_accelerator(tensor: Tensor) -> bool:
    device = getattr(tensor, "device", "cpu")
    return "cpu" not in str(device).lower()
