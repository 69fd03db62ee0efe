"""The data of a user as lists and arrays in host memory, where it is checked and sliced."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_diet.models.hub.graph_checks import is_in_graph


def map_parts(function: Callable[[Any], Any], data: Any) -> Any:
    """Apply a function to the arrays and lists in tuples and dictionaries."""
    if data is None:
        return None
    if isinstance(data, tuple):
        return tuple(map_parts(function, part) for part in data)
    if isinstance(data, Mapping):
        return {name: map_parts(function, part) for name, part in data.items()}
    return function(data)


def as_list(values: Any) -> Any:
    """Return a sequence as a list, such as a column of Hugging Face's `datasets`, or a deque.

    Strings, tuples and everything that is not a sequence are returned as they are.
    """
    is_other = isinstance(values, (str, bytes, list, tuple)) or hasattr(values, "shape")
    return list(values) if isinstance(values, Sequence) and not is_other else values


def on_host(data: Any) -> Any:
    """Return sequences as lists, and the tensors of the backend as arrays.

    Tensors in a graph of TensorFlow have no values, and stay as they are.
    """
    return map_parts(_on_host, data)


def _on_host(values):
    if ops.is_tensor(values) and not is_in_graph(values):
        return ops.convert_to_numpy(values)
    return as_list(values)


def as_arrays(data: Any) -> Any:
    """Return numbers as arrays, and texts as lists of strings. Ragged lists stay lists.

    Python's numbers get the default precision of Keras, if they fit.
    """
    return map_parts(_as_array, data)


def _as_array(values):
    if is_in_graph(values):
        return values
    is_python = isinstance(values, list)
    if is_python and values and isinstance(values[0], (str, bytes)):
        return _as_text(values)
    if is_python and _is_ragged(values):
        return values
    array = np.asarray(values)
    if array.dtype.kind in "USTO":
        return _as_text(array.tolist())
    narrow = {"float64": "float32", "int64": "int32"}.get(array.dtype.name)
    if not (is_python and narrow) or (narrow == "int32" and np.any(array != array.astype(narrow))):
        return array
    return array.astype(narrow)


def _is_ragged(values):
    """Return whether a list holds lists of different lengths, such as the words of sentences."""
    rows = [row for row in values if isinstance(row, (list, np.ndarray))]
    return len(rows) == len(values) and len(set(map(len, rows))) > 1


def _as_text(values):
    return [value.decode() if isinstance(value, bytes) else value for value in values]
