"""Names of classes, and labels that are names."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from keras_diet import validation
from keras_diet.models.hub.graph_checks import check_in_graph, is_in_graph
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.listed import listed
from keras_diet.models.hub.texts import is_string_dtype

# === The argument `class_names` ===


def checked_classes(
    num_classes: int | None, class_names: Sequence[str] | None
) -> tuple[int, list[str] | None]:
    """Return the number of classes and their names, after checking both arguments.

    Args:
        num_classes: int or `None`. Number of classes. `None` means one for each name.
        class_names: Sequence of strings, or `None` for classes without names.

    Raises:
        ValueError: If both are `None` or do not fit each other, or if the names are not different,
            nonempty strings.
    """
    if class_names is None:
        if num_classes is None:
            raise ValueError(
                "`num_classes` or `class_names` must be given. Received: None for both. Pass the "
                "number of classes, or a list with the name of each class."
            )
        return validation.positive_int("num_classes", num_classes), None
    names = _checked_names(class_names)
    if num_classes is not None and validation.positive_int("num_classes", num_classes) != len(
        names
    ):
        raise ValueError(
            "`class_names` must hold one name for each class. Received: "
            f"num_classes={num_classes} and {len(names)} names ({listed(names)}). Leave "
            "`num_classes` out, or correct the names."
        )
    return len(names), names


def _checked_names(class_names: Any) -> list[str]:
    rule = "`class_names` must be a list of at least two different, nonempty strings."
    if not isinstance(class_names, (list, tuple, np.ndarray)):
        raise ValueError(f"{rule} Received: class_names={class_names!r}")
    names = list(class_names)
    wrong = [name for name in names if not isinstance(name, str) or not name]
    if wrong:
        raise ValueError(f"{rule} Received: {wrong[0]!r} in class_names={names!r}")
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"{rule} Received: class_names={names!r}")
    return [str(name) for name in names]


# === Labels ===


def labels_of_names(y: Any, classes: Classes, as_ids: bool) -> Any:
    """Return labels that are names as numbers, and all other labels as they are.

    Args:
        y: Labels, such as a list, an array or a tensor of names. In multi-label classification,
            each text has a list of names.
        classes: `Classes` of the output.
        as_ids: bool. Whether the number of a name is its index in `classes.names`. Otherwise it is
            a one-hot row. In multi-label classification, it is always a row of zeros and ones.

    Raises:
        ValueError: If a label is not one of the names. In a TensorFlow graph, a
            `tf.errors.InvalidArgumentError` when the graph runs.
    """
    if classes.names is None or not (_holds_names(y) or _is_empty_lists(y, classes)):
        return y
    if hasattr(y, "to_tensor"):
        # A ragged tensor of TensorFlow. An empty string does not count as a label.
        y = y.to_tensor("")
    if is_in_graph(y):
        return _labels_in_graph(y, classes, classes.names, as_ids)
    if classes.is_multi_label:
        return _memberships(y, classes.names)
    ids = _ids(y, classes.names)
    return ids if as_ids else np.eye(classes.number, dtype="float32")[ids]


def _holds_names(y: Any) -> bool:
    """Return whether any label is text, also in nested lists."""
    dtype = getattr(y, "dtype", None)
    if dtype is not None:
        if getattr(dtype, "kind", "") != "O":
            return is_string_dtype(dtype)
        y = np.asarray(y, dtype=object).tolist()
    if isinstance(y, (list, tuple, set, frozenset)):
        return any(map(_holds_names, y))
    return isinstance(y, (str, bytes))


def _is_empty_lists(y: Any, classes: Classes) -> bool:
    """Return whether `y` says that none of the texts has a label."""
    is_lists = isinstance(y, list) and all(isinstance(row, Collection) for row in y)
    return classes.is_multi_label and is_lists and not any(len(row) for row in y)


def _ids(y: Any, names: tuple[str, ...]) -> np.ndarray:
    """Return the index of each name, in the shape of `y`."""
    index = {name: i for i, name in enumerate(names)}
    values = np.asarray(y, dtype=object)
    size = values[0].size if values.ndim > 1 else 1
    ids = [
        index_of_name(value, i // size, index) for i, value in enumerate(values.ravel().tolist())
    ]
    return np.array(ids, "int32").reshape(values.shape)


def _memberships(y: Any, names: tuple[str, ...]) -> np.ndarray:
    """Return a row for each text, with 1 for the names in its list and 0 for the others."""
    index = {name: i for i, name in enumerate(names)}
    rows = np.asarray(y, dtype=object).tolist() if hasattr(y, "dtype") else y
    result = np.zeros((len(rows), len(names)), "float32")
    for row, labels in enumerate(rows):
        if isinstance(labels, (str, bytes)) or not isinstance(labels, Collection):
            raise ValueError(
                "`y` must hold a list of names for each text in multi-label classification. "
                f"Received: {labels!r} in row {row}. Put a single name into a list, and pass an "
                "empty list for no label."
            )
        for label in labels:
            if label not in ("", b""):
                result[row, index_of_name(label, row, index)] = 1
    return result


def index_of_name(label: Any, row: int, index: dict[str, int]) -> int:
    """Return the index of a name, or raise a `ValueError` that names the row."""
    name = label.decode("utf-8", "replace") if isinstance(label, bytes) else label
    if not isinstance(name, str) or name not in index:
        raise ValueError(
            f"`y` must hold names of classes. Received: {name!r} in row {row}. The names are "
            f"{listed(index)}. Correct the label, or add it to `class_names`."
        )
    return index[name]


def _labels_in_graph(y: Any, classes: Classes, names: tuple[str, ...], as_ids: bool) -> Any:
    # Keras has no tensors of strings.
    import tensorflow as tf

    matches = tf.equal(y[..., None], tf.constant(names))
    is_known = tf.reduce_any(matches, axis=-1)
    if classes.is_multi_label:
        if y.shape.rank == 1:
            raise ValueError(
                "`y` must hold a list of names for each text in multi-label classification. "
                "Received: one name for each text. Add an axis to the labels of the dataset."
            )
        is_known |= tf.equal(y, "")
    unknown = tf.logical_not(is_known)
    label, row = tf.boolean_mask(y, unknown)[:1], tf.where(unknown)[:1, :1]
    message = f"`y` must hold names of classes, which are {listed(names)}. Received:"
    check_in_graph(is_known, message, label, "in row", row)
    if classes.is_multi_label:
        return tf.cast(tf.reduce_any(matches, axis=-2), "float32")
    return tf.argmax(matches, axis=-1) if as_ids else tf.cast(matches, "float32")
