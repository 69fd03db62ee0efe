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


def is_pair(x):
    """Whether `x` holds the texts of several segments, and is no element `(x, y)` of a dataset."""
    return isinstance(x, tuple) and len(x) > 1 and all(map(_is_segment, x))


def check_texts_are_flat(x):
    """Raise a `ValueError` for texts in lists of lists or in arrays of several axes."""
    if any(map(_is_nested_text, x if isinstance(x, tuple) else (x,))):
        raise ValueError(
            "`x` must be a string, a list of strings, or a tuple of them. Received: texts in lists "
            "of lists, or in an array of several axes. For pairs of texts pass a tuple (a, b), "
            "with all first texts in `a` and all second ones in `b`."
        )


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


def numeric_labels(y):
    """Return `y`, an array of Python objects as one of numbers."""
    if getattr(getattr(y, "dtype", None), "kind", None) != "O":
        return y
    try:
        values = np.asarray(y.tolist())
    except ValueError:
        # Lists of different lengths.
        values = y
    if values.dtype.kind not in "biuf":
        raise ValueError(
            "`y` must be numbers. Received: an array of Python objects that are no numbers, or "
            "lists of different lengths"
        )
    return values


def check_sparse_labels(y, argument, num_classes, ignore_class=None):
    """Raise a `ValueError` unless `y` holds classes, integers in `[0, num_classes)`.

    Args:
        y: Labels. In a graph of TensorFlow, as in `tf.data`, the graph is given the check and
            raises `tf.errors.InvalidArgumentError`.
        argument: str. What the model calls the number of classes.
        num_classes: int. The number of classes.
        ignore_class: int or `None`. A label that the loss leaves out. Defaults to `None`.
    """
    dtype = keras.backend.standardize_dtype(y.dtype if hasattr(y, "dtype") else np.asarray(y).dtype)
    no_integers = (
        f"Labels of a sparse loss must be integers. Received: labels of dtype {dtype}"
        " that are none. For regression use `num_classes=1`, for probabilities a loss that takes "
        "them."
    )
    out_of_range = f"Labels must lie in [0, {argument}) = [0, {num_classes})."
    values = validation.host_value(y)
    if values is not None:
        if np.any(values != np.round(values)):
            raise ValueError(no_integers)
        labels = values.astype("int64")
        if ignore_class is not None:
            labels = labels[labels != ignore_class]
        if labels.size and (labels.min() < 0 or labels.max() >= num_classes):
            raise ValueError(
                f"{out_of_range} Received: labels from {labels.min()} to {labels.max()}"
            )
    elif type(y).__module__.startswith("tensorflow"):
        import tensorflow as tf

        labels = tf.cast(y, "int64")
        is_class = (labels >= 0) & (labels < num_classes)
        if ignore_class is not None:
            is_class |= labels == ignore_class
        is_integer = tf.cast(labels, y.dtype) == y
        tf.debugging.Assert(tf.reduce_all(is_integer), [no_integers, "Received:", y])
        tf.debugging.Assert(tf.reduce_all(is_class), [out_of_range, "Received:", y])


def check_labels_are_not_one_hot(y):
    """Raise a `ValueError` if labels of a sparse loss have an axis of classes."""
    shape = _shape(y if hasattr(y, "shape") else np.asarray(y))
    if len(shape) > 1 and shape[-1] != 1:
        raise ValueError(
            "Labels of a sparse loss must be one integer for each example, of shape (B,) or "
            f"(B, 1). Received: y.shape={shape}. For one-hot labels or probabilities compile with "
            "`keras.losses.CategoricalCrossentropy(from_logits=True)` and metrics of that kind."
        )


def _batch_sizes(x):
    if isinstance(x, (tuple, dict)):
        parts = x.values() if isinstance(x, dict) else x
        return [size for part in parts for size in _batch_sizes(part)]
    if isinstance(x, list):
        return [len(x)]
    # In graphs of TensorFlow sizes are unknown.
    return [int(size) for size in _shape(x)[:1] if size is not None]


def _shape(x):
    """The shape of an array or a tensor, and `()` for all else and where the rank is unknown."""
    shape = getattr(x, "shape", ())
    return () if getattr(shape, "rank", 0) is None else tuple(shape)


def _is_segment(x):
    # What is empty could be text; a batch of none is refused.
    return not isinstance(x, tuple) and (holds_text(x) or _batch_sizes(x) == [0])


def _is_nested_text(x):
    if isinstance(x, list):
        return holds_text(x) and (isinstance(x[0], (list, tuple)) or len(_shape(x[0])) > 0)
    return holds_text(x) and len(_shape(x)) > 1
