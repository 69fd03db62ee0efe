"""What a user passes to a model, as columns: lists and arrays with one row for each example."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import keras
import numpy as np

from keras_diet.types import Columns


def is_columns(x: Any) -> bool:
    """Return whether `x` holds examples. Otherwise it is a dataset of batches.

    These are columns, in inputs, labels and weights:

    - lists, arrays of NumPy, and tensors of any framework, also ragged ones;
    - columns of pandas and polars, of any type of strings or numbers, and categories;
    - arrays of pyarrow;
    - columns of `datasets`, and other sequences of strings.

    One text is a column, too. Tuples and dictionaries hold columns.
    """
    if isinstance(x, keras.utils.PyDataset):
        return False
    if isinstance(x, (str, bytes, Mapping, list, tuple)):
        return True
    # pyarrow's arrays have no shape, and ragged tensors are not arrays.
    if hasattr(x, "shape") or hasattr(x, "__array__"):
        return True
    # A column of `datasets` may also hold numbers, or lists of words.
    is_of_datasets = type(x).__module__.startswith("datasets.")
    is_sequence = isinstance(x, Sequence) and len(x) > 0
    return is_sequence and (is_of_datasets or isinstance(x[0], (str, bytes)))


def holds_text(values: Any) -> bool:
    """Return whether the first value of a column is text."""
    if isinstance(values, (str, bytes)):
        return True
    # NumPy marks strings by the kind of their dtype. In a graph of TensorFlow there is a name only.
    dtype = getattr(values, "dtype", None)
    if getattr(dtype, "kind", "") in tuple("UST") or getattr(dtype, "name", "") == "string":
        return True
    has_rows = is_columns(values) and getattr(values, "shape", None) != ()
    is_symbolic = in_graph() and not isinstance(values, (list, tuple))
    if isinstance(values, Mapping) or not has_rows or is_symbolic:
        return False
    first = host_column(values[:1])
    return len(first) > 0 and holds_text(first[0])


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
    """Return an array or a list for a column that is none. `is_columns` lists the columns."""
    if isinstance(values, (str, bytes, list, np.ndarray)):
        return values
    # Ragged tensors of TensorFlow, and columns of pandas and polars. Then arrays of pyarrow.
    for method in ("to_list", "to_pylist"):
        if hasattr(values, method):
            return getattr(values, method)()
    if keras.ops.is_tensor(values):
        return keras.ops.convert_to_numpy(values)
    if hasattr(values, "numpy"):
        # Tensors of another framework than the backend.
        return values.numpy()
    if hasattr(values, "__array__"):
        return np.asarray(values)
    return list(values) if isinstance(values, Sequence) else values


def arrays(data: Any) -> Any:
    """Return columns as arrays, as Keras takes them."""

    def array_of(column):
        array = np.asarray(host_column(column))
        return array.astype(keras.config.floatx()) if array.dtype == "float64" else array

    return map_columns(array_of, data)


def as_rows(value: Any) -> Any:
    """Return a single value as an array with one row, and a column as it is."""
    is_single = isinstance(value, (str, bytes, Real)) or getattr(value, "shape", None) == ()
    return np.reshape(host_column(value), 1) if is_single else value


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


def split(data: Columns, validation_split: float) -> tuple[Any, Any]:
    """Return the first examples for training, and the last ones for validation, as Keras does."""
    if not is_columns(data[0]):
        raise ValueError(
            "`validation_split` needs arrays or lists. Received: a dataset, "
            f"{type(data[0]).__name__}. Pass `validation_data`."
        )
    x, y, sample_weight = data = map_columns(host_column, data)
    number = number_of_rows(x=x, y=y, sample_weight=sample_weight)
    end = math.floor(number * (1 - validation_split))
    # Slices do not copy arrays.
    first = map_columns(lambda column: column[:end], data)
    return first, map_columns(lambda column: column[end:], data)


def tuple_of_inputs(data: Any) -> Any:
    """Return a list of arrays, which is several inputs for Keras, as a tuple of columns."""
    is_several = isinstance(data, list) and any(getattr(each, "shape", ()) for each in data[:1])
    return tuple(data) if is_several else data


# === Texts ===

_TEXT_REMEDY = (
    "Leave out rows without a text. For pairs of texts pass a tuple (first, second) of two lists. "
    "For token ids, build the task with `preprocessor=None`."
)


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
        raise ValueError(f"`{name}` must hold strings. Received: {received}. {_TEXT_REMEDY}")
    texts = [row.decode() if isinstance(row, bytes) else row for row in rows]
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not is_unicode(text):
            kind = "Unicode, not half of a surrogate pair" if isinstance(text, str) else "strings"
            raise ValueError(
                f"`{name}` must hold {kind}. Received: {text!r:.50} in row {row}. {_TEXT_REMEDY}"
            )
    return texts


def is_unicode(text):
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
