"""Checks of the texts that users pass to preprocessors and tasks."""

from typing import Any

import numpy as np


def holds_text(x: Any) -> bool:
    """Return whether `x` is a string, or a list, an array or a tensor of strings."""
    if isinstance(x, (str, bytes)):
        return True
    if isinstance(x, (list, tuple)):
        return len(x) > 0 and holds_text(x[0])
    dtype = getattr(x, "dtype", None)
    if getattr(dtype, "kind", None) == "O":
        values = np.asarray(x).ravel()
        return values.size > 0 and isinstance(values[0], (str, bytes))
    # NumPy marks strings by the kind of their dtype, TensorFlow by its name.
    return getattr(dtype, "kind", "") in tuple("UST") or "string" in str(dtype)


def is_pair(x: Any) -> bool:
    """Return whether `x` is a tuple of texts, not an element `(x, y)` of a dataset."""
    return isinstance(x, tuple) and len(x) > 1 and all(map(_is_segment, x))


def check_texts_are_flat(x: Any) -> None:
    """Raise a `ValueError` for texts in nested lists or in arrays with several axes."""
    if any(map(_is_nested_text, x if isinstance(x, tuple) else (x,))):
        raise ValueError(
            "`x` must be a string, a list of strings, or a tuple of them. Received: texts in lists "
            "of lists, or in an array of several axes. For pairs of texts pass a tuple (a, b), "
            "with all first texts in `a` and all second texts in `b`."
        )


def check_batch(x: Any) -> None:
    """Raise a `ValueError` if `x` is empty, or if its parts have different batch sizes.

    Args:
        x: Texts, arrays, or tuples and dictionaries of them. Datasets are not read.
    """
    sizes = _batch_sizes(x)
    if 0 in sizes:
        raise ValueError("`x` must hold at least one example. Received: an empty batch")
    if len(set(sizes)) > 1:
        raise ValueError(
            "All parts of `x` must have the same batch size. For pairs of texts, pass as many "
            f"second texts as first texts. Received: batch sizes {sizes}"
        )


def shape_of(x: Any) -> tuple[int | None, ...]:
    """Return the shape of an array or a tensor, and `()` if it is unknown or `x` has none."""
    shape = getattr(x, "shape", ())
    return () if getattr(shape, "rank", 0) is None else tuple(shape)


def _batch_sizes(x: Any) -> list[int]:
    if isinstance(x, (tuple, dict)):
        parts = x.values() if isinstance(x, dict) else x
        return [size for part in parts for size in _batch_sizes(part)]
    if isinstance(x, list):
        return [len(x)]
    # A graph of TensorFlow does not know its batch size.
    return [int(size) for size in shape_of(x)[:1] if size is not None]


def _is_segment(x: Any) -> bool:
    # An empty part may be text. `check_batch` refuses it later.
    return not isinstance(x, tuple) and (holds_text(x) or _batch_sizes(x) == [0])


def _is_nested_text(x: Any) -> bool:
    if isinstance(x, list):
        return holds_text(x) and (isinstance(x[0], (list, tuple)) or len(shape_of(x[0])) > 0)
    return holds_text(x) and len(shape_of(x)) > 1
