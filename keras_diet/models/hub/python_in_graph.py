"""Python code on ragged batches in a graph of TensorFlow, such as the graph of `tf.data`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def python_in_graph(
    function: Callable[..., Sequence[np.ndarray]],
    batch: Sequence[Any],
    dtypes: Sequence[str],
    shape: tuple[int | None, ...],
) -> list[Any]:
    """Return tensors that call a function when the graph runs.

    Args:
        function: It gets an array, or a list of arrays for a ragged tensor, for each part of the
            batch, and `None` for `None`. It returns a list of arrays. A `ValueError` becomes a
            `tf.errors.InvalidArgumentError` with the same message.
        batch: Tensors, ragged tensors of rank 2, or `None`.
        dtypes: The dtype of each result.
        shape: The shape of all results. `None` stands for unknown sizes.
    """
    import tensorflow as tf

    parts = [_tensors_of(part) for part in batch]

    def run(*arrays):
        remaining = iter(arrays)
        values = [[next(remaining) for _ in part] for part in parts]
        results = function(*map(_value, values))
        return [np.asarray(a, dtype) for a, dtype in zip(results, dtypes, strict=True)]

    tensors = [tensor for part in parts for tensor in part]
    results = tf.numpy_function(run, tensors, [tf.as_dtype(dtype) for dtype in dtypes])
    for result in results:
        result.set_shape(shape)
    return results


def _tensors_of(part):
    if part is None:
        return []
    return [part.flat_values, part.row_splits] if hasattr(part, "row_splits") else [part]


def _value(arrays):
    if len(arrays) == 2:
        values, row_splits = arrays
        return np.split(values, row_splits[1:-1])
    return arrays[0] if arrays else None
