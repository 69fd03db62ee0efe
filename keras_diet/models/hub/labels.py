"""The labels of tasks, and the losses that fit them: what would be silently wrong."""

import dataclasses
import warnings
from collections.abc import Collection
from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.data.columns import host_column

# === Classes ===


@dataclasses.dataclass(frozen=True)
class Classes:
    """The labels that an output expects under a sparse loss: integers in `[0, number)`.

    Attributes:
        argument: What the model calls the number of classes.
        number: The number of classes.
        one_per_example: Whether each example has a single label.
        names: tuple of str or `None`. The name of each class, if labels may be names.
        is_multi_label: Whether each example has 0 or 1 for each class.
    """

    argument: str
    number: int
    one_per_example: bool = False
    names: tuple[str, ...] | None = None
    is_multi_label: bool = False


# === Names of classes ===


def labels_of_names(y: Any, classes: Classes, as_ids: bool = True) -> Any:
    """Return labels that are names as numbers, and all other labels as they are.

    Args:
        y: Labels. In multi-label classification, names are in a list for each text.
        classes: `Classes` of the output.
        as_ids: bool. Whether the number of a name is its index in `classes.names`. Otherwise it is
            a one-hot row. In multi-label classification, it is always a row of zeros and ones.
            Defaults to `True`.

    Raises:
        ValueError: If a label is not one of the names.
    """
    rows = host_column(y)
    rows = rows.tolist() if isinstance(rows, np.ndarray) and rows.dtype.kind in "OUST" else rows
    if classes.names is None or not isinstance(rows, list):
        return y
    labels = [label for row in rows for label in (row if _is_collection(row) else [row])]
    if labels and not any(isinstance(label, (str, bytes)) for label in labels):
        return y
    index = {name: i for i, name in enumerate(classes.names)}

    def index_of(label, row):
        name = label.decode("utf-8", "replace") if isinstance(label, bytes) else label
        if name not in index:
            raise ValueError(
                f"`y` must hold names of classes. Received: {name!r} in row {row}. The names are "
                f"{list(index)}. Correct the label, or add it to `class_names`."
            )
        return index[name]

    if classes.is_multi_label:
        result = np.zeros((len(rows), classes.number), "float32")
        for i, row in enumerate(rows):
            if not _is_collection(row):
                raise ValueError(
                    "`y` must hold a list of names for each text in multi-label classification. "
                    f"Received: {row!r} in row {i}"
                )
            # Dense arrays of names are padded.
            result[i, [index_of(label, i) for label in row if label not in ("", b"")]] = 1
        return result
    # A column of names may have a second axis.
    rows = [row[0] if isinstance(row, list) and len(row) == 1 else row for row in rows]
    ids = [index_of(label, row) for row, label in enumerate(rows)]
    return np.array(ids, "int32") if as_ids else np.eye(classes.number, dtype="float32")[ids]


def _is_collection(value):
    return isinstance(value, Collection) and not isinstance(value, (str, bytes))


# === Labels and weights ===


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


def checked_labels(
    y: Any, classes: Classes | None, loss: Any, output_shape: tuple[int | None, ...] | None
) -> np.ndarray:
    """Return the labels of an output as numbers that its loss can compare with the output.

    Args:
        y: Labels.
        classes: `Classes` of the output, or `None` if they are not known.
        loss: The loss of the output, or `None`.
        output_shape: The shape of the output, or `None` if it is not known.

    Raises:
        ValueError: If names are unknown, if labels are NaN or outside the classes, if those of the
            binary cross-entropy are not in [0, 1], or if the loss would broadcast them.
    """
    is_sparse, ignore_class, from_logits = sparse_loss(loss)
    if classes is not None:
        y = labels_of_names(y, classes, as_ids=is_sparse or not is_of_keras(loss))
    y = numbers_of(y, "y")
    if not is_of_keras(loss):
        # A custom loss may take other labels, and mark missing ones by NaN.
        return y
    if is_sparse and output_shape is not None and y.ndim == len(output_shape):
        if y.shape[-1] != 1:
            raise ValueError(
                f"Labels `y` of a sparse loss must be integers, one for each output. Received: "
                f"y.shape={y.shape}. Pass `y.argmax(-1)`, or compile the loss of one-hot labels, "
                f"`keras.losses.CategoricalCrossentropy(from_logits={from_logits})`."
            )
        # A compiled step of TensorFlow takes labels of one rank.
        y = y[..., 0]
    if is_sparse and classes is not None:
        labels = y if ignore_class is None else y[y != ignore_class]
        if labels.size and not validation.are_integers_below(labels, classes.number):
            raise ValueError(
                f"Labels `y` of a sparse loss must be integers in [0, {classes.argument}) = [0, "
                f"{classes.number}). Received: dtype={y.dtype}, values from {labels.min()} to "
                f"{labels.max()}. To ignore a label, compile a loss with this `ignore_class`."
            )
    elif not is_sparse and output_shape is not None:
        is_column = output_shape[1:] == (1,) and y.ndim == 1
        if not is_column and not validation.sizes_fit(y.shape, output_shape):
            raise ValueError(
                f"Labels `y` of this loss must have the shape of the outputs, {output_shape}. "
                f"Received: y.shape={y.shape}. Classes as integers need a sparse loss."
            )
    check_are_finite("y", y)
    is_binary = is_kind_of(loss, keras.losses.BinaryCrossentropy)
    is_binary |= classes is not None and classes.is_multi_label
    if is_binary and not np.all((y >= 0) & (y <= 1)):
        raise ValueError(
            "Labels `y` of a multi-label classifier or binary cross-entropy must be in [0, 1]. "
            f"Received: values from {y.min()} to {y.max()}. Divide them."
        )
    return y


def check_are_finite(name: str, values: np.ndarray) -> None:
    """Raise a `ValueError` that names the row if a number is NaN or infinite."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        place = np.argwhere(~np.isfinite(values))[0]
        row, value = place[0], values[tuple(place)]
        raise ValueError(f"`{name}` must hold finite numbers. Received: {value} in row {row}")


def checked_weights(sample_weight: Any, output_shape: tuple[int | None, ...] | None) -> np.ndarray:
    """Return the weights of an output as numbers, one for each value of the loss.

    Args:
        sample_weight: Weights.
        output_shape: The shape of the output, or `None` if it is not known.

    Raises:
        ValueError: If weights are not finite, or if they would be broadcast.
    """
    weights = numbers_of(sample_weight, "sample_weight")
    check_are_finite("sample_weight", weights)
    num_axes = None if output_shape is None else max(len(output_shape) - 1, 1)
    is_column = weights.ndim - 1 == num_axes and weights.shape[-1] == 1
    if num_axes is not None and weights.ndim != num_axes and not is_column:
        raise ValueError(
            f"`sample_weight` must have one weight for each label, {num_axes} axes. Received: "
            f"shape={weights.shape}"
        )
    return weights[..., 0] if is_column else weights


# === Weights of classes ===


def checked_class_weight(class_weight: Any, classes: Any, y: Any) -> dict[int, float] | None:
    """Return a dictionary with the weight of each class, by its index.

    Classes that are left out get the weight 1. On TensorFlow, Keras fails without the last one. It
    ignores names, and classes that do not exist.

    Args:
        class_weight: Dictionary from classes to weights, an array or a list with a weight for each
            class, `"balanced"`, or `None`. A class is an integer, or one of the names.
        classes: `Classes` of the output. Anything else, in models without classes or with several
            outputs, accepts all keys.
        y: The labels, or `None` if a dataset has them.

    Raises:
        ValueError: If there is not one weight for each class, if a key is not a class, if examples
            do not have one class each, or if `"balanced"` has no labels to count.
    """
    if class_weight is None:
        return None
    weights = class_weight
    if isinstance(weights, str):
        weights = _balanced(weights, classes, y)
    elif not hasattr(weights, "items"):
        weights = dict(enumerate(host_column(weights)))
        if isinstance(classes, Classes) and len(weights) != max(classes.number, 2):
            raise ValueError(
                f"`class_weight` must have a weight for each of {max(classes.number, 2)} classes. "
                f"Received: class_weight={class_weight!r}. To leave out classes, pass a dictionary."
            )
    if not isinstance(classes, Classes):
        return weights
    names = {name: i for i, name in enumerate(classes.names or ())}
    weights = {names.get(label, label): float(w) for label, w in weights.items()}
    # One output may have two classes, 0 and 1.
    all_classes = range(max(classes.number, 2))
    if not classes.one_per_example or not set(weights) <= set(all_classes):
        raise ValueError(
            "`class_weight` must be a dictionary from classes to weights, for examples with one "
            f"class each. The classes are {list(names) or list(all_classes)}. Received: "
            f"class_weight={class_weight!r}"
        )
    return {label: weights.get(label, 1.0) for label in all_classes}


def _balanced(class_weight, classes, y):
    """Return the weights of scikit-learn, `n / (number of classes in y * n of the class)`."""
    has_labels = isinstance(classes, Classes) and y is not None
    if class_weight != "balanced" or not has_labels:
        raise ValueError(
            "`class_weight` must be a dictionary from classes to weights, a list with a weight for "
            "each class, or 'balanced' for labels `y` in a list or an array. Received: "
            f"class_weight={class_weight!r}, y={type(y).__name__}"
        )
    labels = numbers_of(labels_of_names(y, classes), "y")
    if labels.ndim > 1:
        # A column, or one-hot rows.
        labels = labels.argmax(-1) if labels.shape[-1] > 1 else labels[..., 0]
    found, counts = np.unique(labels, return_counts=True)
    return dict(zip(found.tolist(), counts.sum() / (len(found) * counts), strict=True))


# === Losses and metrics ===


def of_output(values: Any, name: str | None) -> Any:
    """Return what `values` holds for an output of a model, such as its loss.

    Args:
        values: One value for all outputs, or a list, tuple or dictionary with one for each output.
        name: str or `None`. Name of the output. `None` means the only output.

    Returns:
        The value, or `None` if it is not known which one belongs to the output.
    """
    if not isinstance(values, (list, tuple, dict)):
        return values
    if len(values) == 1:
        return next(iter(values.values() if isinstance(values, dict) else values))
    return values.get(name) if isinstance(values, dict) else None


def sparse_loss(loss: Any) -> tuple[bool, int | None, bool]:
    """Return whether a loss takes classes as integers, which one it ignores, and `from_logits`."""
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
        return True, loss.ignore_class, loss.from_logits
    return loss is keras.losses.sparse_categorical_crossentropy, None, False


def is_kind_of(loss: Any, cls: Any) -> bool:
    """Return whether a loss is of a class of Keras. It may be the function, or a name."""
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    return isinstance(loss, cls) or loss is cls().fn


def is_of_keras(loss: Any) -> bool:
    """Return whether Keras brings the loss, so that it is known which labels it takes."""
    return isinstance(loss, str) or (
        getattr(loss, "__module__", type(loss).__module__).startswith("keras.")
    )


def token_loss(from_logits: bool = True) -> keras.losses.Loss:
    """Return the cross-entropy averaged over tokens.

    KerasHub's default is a mean over all labels, also over those with weight 0.
    """
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=from_logits, reduction="mean_with_sample_weight"
    )


def default_accuracy(loss: Any) -> keras.metrics.Metric:
    """Return the accuracy of the labels that a loss of classes takes."""
    if is_of_keras(loss) and not sparse_loss(loss)[0]:
        return keras.metrics.CategoricalAccuracy()
    return keras.metrics.SparseCategoricalAccuracy()


def warn_if_loss_does_not_fit(task: Any) -> None:
    """Warn if a loss of a compiled task takes other outputs than the task returns.

    Only the losses of Keras are checked.

    Args:
        task: A task that is compiled.
    """
    output_kind = task.output_kind
    for loss in keras.tree.flatten(task.loss):
        loss = keras.losses.get(loss) if isinstance(loss, str) else loss
        name = getattr(loss, "__name__", type(loss).__name__)
        kind = name.replace("_", "").lower()
        of_classes = kind.endswith("crossentropy") or kind == "kldivergence"
        # The functions have `from_logits=False`.
        expected = "logits" if getattr(loss, "from_logits", False) else "probabilities"
        # A custom model may use embeddings as logits.
        fits = expected == output_kind or (expected, output_kind) == ("logits", "embeddings")
        if of_classes and is_of_keras(loss) and output_kind is not None and not fits:
            remedy = f"Compile with `from_logits={output_kind == 'logits'}`, or use another loss."
            warnings.warn(
                f"`{name}` takes {expected} here, but `{type(task).__name__}` returns "
                f"{output_kind}. {remedy}",
                # The caller of `compile`.
                stacklevel=3,
            )
