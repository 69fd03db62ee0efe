"""Checks of the texts that users pass to preprocessors and tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_diet import validation
from keras_diet.models.hub.listed import listed


def holds_text(x: Any) -> bool:
    """Return whether `x` is a string, or a list, an array or a tensor of strings."""
    if isinstance(x, (str, bytes)):
        return True
    if isinstance(x, (list, tuple)):
        return len(x) > 0 and holds_text(x[0])
    dtype = _dtype(x)
    if _kind(dtype) == "O":
        values = np.asarray(x).ravel()
        return values.size > 0 and isinstance(values[0], (str, bytes))
    return is_string_dtype(dtype)


def is_pair(x: Any) -> bool:
    """Return whether `x` is a tuple of texts, not an element `(x, y)` of a dataset."""
    return isinstance(x, tuple) and len(x) > 1 and all(map(_is_segment, x))


def check_texts_are_flat(x: Any, name: str = "x") -> None:
    """Raise a `ValueError` for texts in nested lists or in arrays with several axes."""
    if any(map(is_nested_text, _segments(x))):
        raise ValueError(
            f"`{name}` must be a string, a list of strings, or a tuple of them. Received: texts in "
            "lists of lists, or in an array of several axes. For pairs of texts pass a tuple "
            "(a, b), with all first texts in `a` and all second texts in `b`."
        )


def check_texts_are_strings(x: Any, name: str = "x") -> None:
    """Raise a `ValueError` that names the row of a missing text, or says that `x` is not text.

    A missing value of pandas would otherwise become the word "nan", and a number its digits. A
    masked array would lose its mask.

    Args:
        x: Texts, or a tuple of them.
        name: str. The name of `x` in messages. Defaults to `"x"`.
    """
    parts = _segments(x)
    are_single = [isinstance(part, (str, bytes)) for part in parts]
    if any(are_single) and not all(are_single):
        raise ValueError(
            f"`{name}` must hold one text for each segment, or a list of texts for each segment. "
            "Received: a tuple of both. Put each single text into a list."
        )
    for i, part in enumerate(parts):
        where = f"`{name}[{i}]`" if isinstance(x, tuple) else f"`{name}`"
        if isinstance(part, str) or _holds_only_strings(part):
            continue
        if isinstance(part, bytes):
            part = [part]
        if _dtype(part) is not None and not _must_be_read(part):
            raise ValueError(_not_text(where, f"an array of dtype {part.dtype}"))
        if isinstance(part, Mapping) or hasattr(part, "columns"):
            received = f"a {type(part).__name__} with the keys {listed(part)}"
            remedy = " Pass one of its values. For pairs of texts pass a tuple (first, second)."
            raise ValueError(_not_text(where, received, remedy))
        for row, value in enumerate(_rows(part)):
            if not isinstance(value, (str, bytes)):
                raise ValueError(
                    f"{where} must hold strings. Received: {value!r} in row {row}. Remove missing "
                    "rows, and convert numbers with `str`."
                )
            if isinstance(value, bytes) and not _is_utf8(value):
                raise ValueError(
                    f"{where} must hold text in UTF-8. Received: {value!r} in row {row}. Decode it "
                    "with its own encoding."
                )


def check_texts_are_not_blank(x: Any, name: str) -> None:
    """Raise a `ValueError` that names the row of a text without characters, or with spaces only.

    Args:
        x: Texts. In a graph of TensorFlow they cannot be read, so they are not checked.
        name: str. The name of `x` in messages.
    """
    if hasattr(x, "shape") and validation.host_value(x) is None:
        return
    for row, text in enumerate(_rows(x)):
        if not text.strip():
            raise ValueError(
                f"`{name}` must hold texts that are not empty. Received: {text!r} in row {row}. "
                "Remove such rows."
            )


def _rows(texts):
    """Return an iterable of the texts in a string, a list, an array or a tensor."""
    if isinstance(texts, (str, bytes)):
        return [texts]
    if isinstance(texts, np.ma.MaskedArray):
        # Entries that are masked become `None`.
        return texts.ravel().tolist()
    return texts if isinstance(texts, list) else np.asarray(texts, dtype=object).ravel()


def _is_utf8(text):
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _holds_only_strings(part):
    """Return whether the type of an array or a tensor says that it holds strings in UTF-8."""
    dtype = _dtype(part)
    return is_string_dtype(dtype) and not _must_be_read(part)


def is_string_dtype(dtype: Any) -> bool:
    """Return whether a dtype of NumPy, pandas or TensorFlow is for strings."""
    # NumPy marks strings by the kind of their dtype, TensorFlow by its name.
    return _kind(dtype) in tuple("UST") or "string" in str(dtype)


def _must_be_read(part):
    """Return whether an array may hold bytes, Python objects or missing values."""
    dtype = _dtype(part)
    # Missing values of pandas and of NumPy's `StringDType`.
    may_be_missing = hasattr(dtype, "na_value") or hasattr(dtype, "na_object")
    return _kind(dtype) in tuple("OS") or may_be_missing or isinstance(part, np.ma.MaskedArray)


def _dtype(part):
    return getattr(part, "dtype", None)


def _kind(dtype):
    return getattr(dtype, "kind", "")


def _segments(x):
    return x if isinstance(x, tuple) else (x,)


def _not_text(where, received, remedy=""):
    return (
        f"{where} must be a string, a list of strings, or an array of strings. Received: "
        f"{received}.{remedy} For token ids, build the task with `preprocessor=None`."
    )


def _parts(x):
    """Return the texts or arrays in a tuple or a dictionary, or `x` as the only part."""
    return tuple(x.values()) if isinstance(x, Mapping) else _segments(x)


def as_batch(x: Any) -> Any:
    """Return one text, or a tuple or dictionary of texts for one example, as a batch of one."""
    if not is_one_text(x):
        return x
    if isinstance(x, Mapping):
        return {name: [_as_string(text)] for name, text in x.items()}
    batch = tuple([_as_string(part)] for part in _segments(x))
    return batch if isinstance(x, tuple) else batch[0]


def as_strings(texts: Any, name: str) -> list[str]:
    """Return one text, or a list or an array of texts, as a list of strings.

    Raises:
        ValueError: If there is no text, if texts are nested or in tuples, or if one is missing.
    """
    if not isinstance(texts, (str, list)) and not hasattr(texts, "dtype"):
        raise ValueError(
            f"`{name}` must be a string or a list of strings. Received: {type(texts).__name__}. "
            "Put the texts into a list. Segments are not supported."
        )
    batch = as_batch(texts)
    for check in (check_batch, check_texts_are_flat, check_texts_are_strings):
        check(batch, name=name)
    return [text.decode() if isinstance(text, bytes) else text for text in batch]


def _as_string(text: Any) -> Any:
    return text if isinstance(text, (str, bytes)) else np.asarray(text).item()


def is_one_text(x: Any) -> bool:
    """Return whether `x` is the text or texts of one example, without a batch axis."""
    parts = _parts(x)
    return len(parts) > 0 and all(
        isinstance(part, (str, bytes)) or (getattr(part, "shape", None) == () and holds_text(part))
        for part in parts
    )


def is_batch(x: Any) -> bool:
    """Return whether `x` holds examples. Otherwise it is a dataset, which is not read here."""
    is_column = isinstance(x, Sequence) and len(x) > 0 and isinstance(x[0], (str, bytes))
    return is_column or isinstance(x, (str, bytes, Mapping, list, tuple)) or hasattr(x, "shape")


def check_batch(x: Any, name: str = "x") -> None:
    """Raise a `ValueError` if `x` is empty, or if its parts have different batch sizes.

    Args:
        x: Texts, arrays, or tuples and dictionaries of them. Datasets are not read.
        name: Name of the argument. Defaults to `"x"`.
    """
    sizes = batch_sizes(x)
    if 0 in sizes:
        raise ValueError(f"`{name}` must hold at least one example. Received: an empty batch")
    if len(set(sizes)) > 1:
        raise ValueError(
            f"All parts of `{name}` must have the same batch size. For pairs of texts, pass as "
            f"many second texts as first texts. Received: batch sizes {sizes}"
        )


def check_lengths(**arguments: Any) -> None:
    """Raise a `ValueError` unless all arguments have the same number of examples.

    Arguments that are `None` do not count.
    """
    lengths = {}
    for name, value in arguments.items():
        sizes = [] if value is None else batch_sizes(value)
        if value is not None and not sizes and _has_no_axis(value):
            raise ValueError(
                f"`{name}` must be an array or a list. Received: {type(value).__name__}. Pass one "
                "value for each example."
            )
        if sizes:
            lengths[name] = sizes[0]
    if len(set(lengths.values())) > 1:
        received = ", ".join(f"{length} in `{name}`" for name, length in lengths.items())
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in lengths)} must have the same number of "
            f"examples. Received: {received}. Pass one label and one weight for each example."
        )


def _has_no_axis(x):
    # In a graph of TensorFlow a shape may be unknown, which differs from `()`.
    return all(getattr(part, "shape", ()) == () for part in _parts(x))


def shape_of(x: Any) -> tuple[int | None, ...]:
    """Return the shape of an array or a tensor, and `()` if it is unknown or `x` has none."""
    shape = getattr(x, "shape", ())
    return () if getattr(shape, "rank", 0) is None else tuple(shape)


def batch_sizes(x: Any) -> list[int]:
    """Return the batch size of each part of `x` that has one."""
    if isinstance(x, (tuple, dict)):
        parts = x.values() if isinstance(x, dict) else x
        return [size for part in parts for size in batch_sizes(part)]
    if isinstance(x, list):
        return [len(x)]
    # A graph of TensorFlow does not know its batch size.
    return [int(size) for size in shape_of(x)[:1] if size is not None]


def _is_segment(x: Any) -> bool:
    # An empty part may be text. `check_batch` refuses it later.
    return not isinstance(x, tuple) and (holds_text(x) or batch_sizes(x) == [0])


def is_nested_text(x: Any) -> bool:
    """Return whether `x` holds texts in lists of lists, or in an array of several axes."""
    if isinstance(x, list):
        return holds_text(x) and (isinstance(x[0], (list, tuple)) or len(shape_of(x[0])) > 0)
    return holds_text(x) and len(shape_of(x)) > 1
