"""Checks of what users hand to preprocessors and tasks: texts, pairs of texts, labels."""

import keras
import numpy as np

from keras_diet import validation


def holds_text(x):
    """Whether `x` is a string, or a list, an array or a tensor of strings."""
    if isinstance(x, (str, bytes)):
        return True
    if isinstance(x, (list, tuple)):
        return len(x) > 0 and holds_text(x[0])
    dtype = getattr(x, "dtype", None)
    if getattr(dtype, "kind", None) == "O":
        values = np.asarray(x).ravel()
        return values.size > 0 and isinstance(values[0], (str, bytes))
    # NumPy tells strings by their kind, TensorFlow by their name.
    return getattr(dtype, "kind", "") in tuple("UST") or "string" in str(dtype)


def check_batch(x):
    """Raise a `ValueError` if `x` is empty, or if its segments are not equally many.

    Args:
        x: Texts, arrays, or tuples and dictionaries of them; datasets are not looked into.
    """
    sizes = _batch_sizes(x)
    if 0 in sizes:
        raise ValueError("`x` must hold at least one example. Received: an empty batch")
    if len(set(sizes)) > 1:
        raise ValueError(
            "The parts of `x`, such as the two texts of each pair, must be equally many. "
            f"Received: batch sizes {sizes}"
        )


def check_labels_are_no_text(y):
    """Raise a `ValueError` if what stands in the place of labels is text."""
    if holds_text(y):
        raise ValueError(
            "`y` must be numbers. Received: text. Pass pairs of texts as `x=(a, b)`, in a "
            "dataset as elements `((a, b), y)` or `((a, b),)`; pass classes as integers."
        )


def check_sparse_labels(y, num_classes, ignore_class=None):
    """Raise a `ValueError` unless `y` holds classes, integers in `[0, num_classes)`.

    Args:
        y: Labels. In a graph of TensorFlow, as in `tf.data`, the graph is given the check and
            raises `tf.errors.InvalidArgumentError` with the same words.
        num_classes: int. The number of classes.
        ignore_class: int or `None`. A label that the loss leaves out. Defaults to `None`.
    """
    dtype = keras.backend.standardize_dtype(y.dtype if hasattr(y, "dtype") else np.asarray(y).dtype)
    if not (dtype == "bool" or "int" in dtype):
        raise ValueError(
            "Labels of a sparse loss must be integers. "
            f"Received: labels of dtype {dtype}. Cast them if they are classes; for regression "
            "use `num_classes=1`, for probabilities a loss that takes them."
        )
    message = f"Labels must lie in [0, num_classes) = [0, {num_classes})."
    values = validation.host_value(y)
    if values is not None:
        if ignore_class is not None:
            values = values[values != ignore_class]
        if values.size and (values.min() < 0 or values.max() >= num_classes):
            raise ValueError(f"{message} Received: labels from {values.min()} to {values.max()}")
    elif type(y).__module__.startswith("tensorflow"):
        import tensorflow as tf

        is_class = (y >= 0) & (y < num_classes)
        if ignore_class is not None:
            is_class |= y == ignore_class
        tf.debugging.Assert(tf.reduce_all(is_class), [message, "Received:", y])


def _batch_sizes(x):
    if isinstance(x, (tuple, dict)):
        parts = x.values() if isinstance(x, dict) else x
        return [size for part in parts for size in _batch_sizes(part)]
    if isinstance(x, list):
        return [len(x)]
    shape = getattr(x, "shape", ())
    # In graphs of TensorFlow sizes are unknown, and so may be ranks.
    rank = shape.rank if hasattr(shape, "rank") else len(shape)
    return [int(shape[0])] if rank and shape[0] is not None else []
