"""Checks of values that are known only when a graph of TensorFlow runs, as in `tf.data`."""

import sys
from typing import Any


def is_in_graph(values: Any) -> bool:
    """Return whether `values` is a tensor in a graph of TensorFlow, without an import of it."""
    tensorflow = sys.modules.get("tensorflow")
    # Keras has no tensors of strings, so `keras.ops.is_tensor` does not know all of them.
    is_tensor = type(values).__module__.startswith("tensorflow.")
    return is_tensor and tensorflow is not None and not tensorflow.executing_eagerly()


def check_in_graph(condition: Any, *message: Any) -> None:
    """Raise a `tf.errors.InvalidArgumentError` when a graph runs, unless a condition holds.

    Args:
        condition: A tensor of booleans. All must be true.
        *message: Strings and tensors.
    """
    import tensorflow as tf

    tf.debugging.Assert(tf.reduce_all(condition), list(message))


def are_integers_in_graph(values: Any, limit: int | None = None) -> Any:
    """Return a tensor that tells which values are integers, or integers in `[0, limit)`."""
    import tensorflow as tf

    integers = tf.cast(values, "int64")
    are_integers = tf.cast(integers, values.dtype) == values
    return are_integers if limit is None else are_integers & (integers >= 0) & (integers < limit)
