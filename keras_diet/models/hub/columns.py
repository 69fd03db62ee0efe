"""What a user passes to a model, as columns: lists and arrays with one row for each example."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

_REMEDY = (
    "For pairs of texts pass a tuple (first, second) of two lists. For token ids, build the task "
    "with `preprocessor=None`."
)


def is_columns(x: Any) -> bool:
    """Return whether `x` holds examples. Otherwise it is a dataset of batches."""
    is_texts = isinstance(x, Sequence) and len(x) > 0 and isinstance(x[0], (str, bytes))
    return is_texts or isinstance(x, (str, bytes, Mapping, list, tuple)) or hasattr(x, "shape")


def in_graph() -> bool:
    """Return whether a graph of TensorFlow is traced, such as in `tf.data`."""
    tensorflow = sys.modules.get("tensorflow")
    return hasattr(tensorflow, "executing_eagerly") and not tensorflow.executing_eagerly()


def map_columns(function: Callable[[Any], Any], data: Any) -> Any:
    """Apply a function to the columns in tuples and dictionaries. `None` stays `None`."""
    if data is None:
        return None
    if isinstance(data, tuple):
        return tuple(map_columns(function, part) for part in data)
    if isinstance(data, Mapping):
        return {name: map_columns(function, part) for name, part in data.items()}
    return function(data)


def host_column(values: Any) -> Any:
    """Return an array or a list for a tensor, or for a column of pandas or `datasets`."""
    if isinstance(values, (str, bytes, list, np.ndarray)):
        return values
    if hasattr(values, "to_list"):
        # Ragged tensors of TensorFlow, and columns of pandas.
        return values.to_list()
    if keras.ops.is_tensor(values):
        return keras.ops.convert_to_numpy(values)
    if hasattr(values, "numpy"):
        # Tensors of another framework than the backend.
        return values.numpy()
    if hasattr(values, "__array__"):
        return np.asarray(values)
    return list(values) if isinstance(values, Sequence) else values


def take(data: Any, rows: Any) -> Any:
    """Return some rows of columns."""
    return map_columns(
        lambda column: (
            [column[i] for i in rows] if isinstance(column, list) else column[np.asarray(rows, int)]
        ),
        data,
    )


def number_of_rows(**columns: Any) -> int:
    """Return the number of rows, which all columns must share.

    Args:
        **columns: Columns, or tuples and dictionaries of them. `None` does not count.

    Raises:
        ValueError: If columns have different numbers of rows, or none.
    """
    sizes = dict(_sizes(columns))
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        received = ", ".join(f"{size} in `{name}`" for name, size in sizes.items())
        raise ValueError(
            "All parts of the data must have the same number of rows, and at least one. Received: "
            f"{received}"
        )
    return next(iter(sizes.values()))


def _sizes(columns, prefix="{}"):
    for key, column in columns.items():
        name = prefix.format(key)
        if isinstance(column, (tuple, Mapping)):
            parts = dict(enumerate(column)) if isinstance(column, tuple) else column
            yield from _sizes(parts, f"{name}[{{!r}}]")
        elif column is not None:
            yield name, len(column)


# === Numbers ===


def numbers_of(values: Any, name: str) -> np.ndarray:
    """Return an array of numbers. Python's numbers get the default precision of Keras.

    Raises:
        ValueError: If the values are not numbers.
    """
    column = host_column(values)
    if isinstance(column, np.ndarray) and column.dtype.kind == "O":
        column = column.tolist()
    array = np.asarray(column)
    # The kind of bfloat16 is "V".
    if array.dtype.kind not in "biufV":
        raise ValueError(
            f"`{name}` must be numbers. Received: {column[:1]!r}. Names of classes need a "
            "classifier with `class_names`. Pass pairs of texts as `x=(first, second)`."
        )
    narrow = {"float64": keras.config.floatx(), "int64": "int32"}.get(array.dtype.name)
    if narrow is None or isinstance(column, np.ndarray):
        return array
    is_too_large = narrow == "int32" and np.any(array != array.astype(narrow))
    return array if is_too_large else array.astype(narrow)


# === Texts ===


def texts_of(values: Any, name: str = "x") -> list[str]:
    """Return a list of strings.

    Args:
        values: A string, or a list, an array, a tensor or another column of strings or bytes.
        name: str. The name of the values in messages. Defaults to `"x"`.

    Raises:
        ValueError: If something is not text, with its row. A missing value would otherwise become
            the word "nan", and a number its digits.
    """
    rows = host_column([values] if isinstance(values, (str, bytes)) else values)
    rows = rows.tolist() if isinstance(rows, np.ndarray) else rows
    rows = [rows] if isinstance(rows, (str, bytes)) else rows
    if not isinstance(rows, list):
        received = type(values).__name__
        raise ValueError(f"`{name}` must hold strings. Received: {received}. {_REMEDY}")
    texts = [row.decode() if isinstance(row, bytes) else row for row in rows]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not _is_unicode(text):
            kind = "Unicode, not half of a surrogate pair" if isinstance(text, str) else "strings"
            raise ValueError(
                f"`{name}` must hold {kind}. Received: {text!r:.50} in row {row}. {_REMEDY}"
            )
    return texts


def _is_unicode(text):
    """Return whether a string has no half of a pair of surrogates, which tokenizers refuse."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_one_text(x: Any) -> bool:
    """Return whether `x` is the text or the texts of one example, without a batch axis."""
    if isinstance(x, (tuple, Mapping)):
        parts = x.values() if isinstance(x, Mapping) else x
        return len(parts) > 0 and all(map(is_one_text, parts))
    return isinstance(x, (str, bytes)) or (getattr(x, "shape", None) == () and holds_text(x))


def is_pair(x: Any) -> bool:
    """Return whether `x` is a tuple of texts, and not an element `(x, y)` of a dataset."""
    return (
        isinstance(x, tuple)
        and len(x) > 1
        and all(not isinstance(part, tuple) and holds_text(part) for part in x)
    )


def holds_text(values: Any) -> bool:
    """Return whether the first value of a list, an array or a tensor is text."""
    if isinstance(values, (list, tuple)):
        return len(values) > 0 and holds_text(values[0])
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "kind", "") == "O":
        return holds_text(np.asarray(values).ravel()[:1].tolist())
    # NumPy marks strings by the kind of their dtype, TensorFlow and pandas by its name.
    is_text = getattr(dtype, "kind", "") in tuple("UST") or "str" in str(dtype)
    return is_text or isinstance(values, (str, bytes))
