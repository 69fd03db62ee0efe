"""Checks of labels, before they reach a loss that cannot report what is wrong with them."""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_diet import _arrays, validation
from keras_diet.models.hub.graph_checks import are_integers_in_graph, check_in_graph, is_in_graph
from keras_diet.models.hub.texts import holds_text, shape_of


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

    @property
    def is_regression(self) -> bool:
        """Whether the output is a number, not a class."""
        return self.one_per_example and self.number == 1


MULTI_LABEL_REMEDY = (
    "Pass one row of 0 and 1 for each text, or lists of names to a classifier with `class_names`."
)


def of_output(values: Any, name: str | None) -> Any:
    """Return what `values` holds for an output of a model.

    Args:
        values: A single value for all outputs, or a list, tuple or dictionary with one value for
            each output, such as the losses of a model.
        name: str or `None`. Name of the output. `None` means the only output.

    Returns:
        The value, or `None` if it is not known which one belongs to the output.
    """
    if not isinstance(values, (list, tuple, dict)):
        return values
    if len(values) == 1:
        return next(iter(values.values() if isinstance(values, dict) else values))
    return values.get(name) if isinstance(values, dict) else None


def sparse_loss(loss: Any) -> tuple[bool, int | None]:
    """Return whether a loss takes classes as integers, and which class it ignores."""
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
        return True, loss.ignore_class
    return loss is keras.losses.sparse_categorical_crossentropy, None


def check_labels_are_not_text(y: Any) -> None:
    """Raise a `ValueError` if the labels are text."""
    if holds_text(y):
        raise ValueError(
            "`y` must be numbers. Received: text. Pass classes as integers, or give a classifier "
            "`class_names`. Pass pairs of texts as `x=(a, b)`, or as elements `((a, b), y)` or "
            "`((a, b),)` of a dataset."
        )


def check_has_labels(y: Any, task: Any) -> None:
    """Raise a `ValueError` if a loss would get no labels.

    A custom preprocessor may make the labels, and a custom `compute_loss` may need none.
    """
    makes_labels = task.preprocessor is not None and getattr(
        task.preprocessor, "makes_labels", True
    )
    has_custom_loss = type(task).compute_loss is not keras.Model.compute_loss
    has_loss = task.compiled and task.loss is not None
    if y is None and has_loss and not makes_labels and not has_custom_loss:
        raise ValueError(
            f"`{type(task).__name__}` needs labels for its loss. Received: y=None. Pass labels as "
            "`y`, or call `predict`. A preprocessor that makes labels needs `makes_labels = True`."
        )


def is_of_keras(loss: Any) -> bool:
    """Return whether Keras brings the loss, so that it is known which labels it takes."""
    return isinstance(loss, str) or (
        getattr(loss, "__module__", type(loss).__module__).startswith("keras.")
    )


def check_are_finite(name: str, values: Any) -> None:
    """Raise a `ValueError` that names the row if a number is NaN or infinite."""
    rule = f"`{name}` must hold finite numbers."
    if is_in_graph(values):
        if values.dtype.is_floating:
            # NaN is not smaller either.
            check_in_graph(abs(values) < float("inf"), f"{rule} Received:", values)
        return
    values = None if values is None else validation.host_value(values)
    if values is None or values.dtype.kind != "f" or values.ndim == 0:
        return
    places = np.argwhere(~np.isfinite(values))
    if len(places):
        row, value = places[0][0], values[tuple(places[0])]
        raise ValueError(
            f"{rule} Received: {value} in row {row}. Remove the example, or correct the value."
        )


def numbers_of(name: str, values: Any, remedy: str = "Pass an array of integers or floats.") -> Any:
    """Return labels or weights as they are, but arrays of Python objects as numbers.

    Raises:
        ValueError: If they are not numbers.
    """
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if values is None or kind in tuple("biuf") or (kind is None and not isinstance(values, list)):
        return values
    try:
        array = np.asarray(values if isinstance(values, list) else values.tolist())
    except ValueError:
        # Lists of different lengths.
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        received = "lists of different lengths, or Python objects that are not numbers"
        if array.dtype.kind != "O":
            received = f"values of dtype {array.dtype}"
        raise ValueError(f"`{name}` must be numbers. Received: {received}. {remedy}")
    return values if isinstance(values, list) else array


def _shape(values: Any) -> tuple[int | None, ...]:
    return shape_of(values if hasattr(values, "shape") else np.asarray(values))


def check_shape_of_outputs(y: Any, output_shape: tuple[int | None, ...]) -> None:
    """Raise a `ValueError` unless a loss can compare labels with outputs without broadcasting."""
    shape = _shape(y)
    if shape and not _arrays.sizes_fit(shape, output_shape):
        raise ValueError(
            f"Labels `y` of this loss must have the shape of the outputs, {output_shape}. "
            f"Received: y.shape={shape}. Classes as integers need a sparse loss, or "
            "`keras.utils.to_categorical`."
        )


def check_positions(y: Any, name: str, positions: Any) -> None:
    """Raise a `ValueError` unless there is one label for each position."""
    shape, expected = _shape(y), shape_of(positions)
    if shape and expected and shape != expected and None not in (*shape, *expected):
        raise ValueError(
            f"Labels `y` must have the shape of `x[{name!r}]`, {expected}. Received: "
            f"y.shape={shape}. Pass one label for each of these positions."
        )


def check_shape_of_weights(sample_weight: Any, num_axes: int) -> None:
    """Raise a `ValueError` unless there is a weight for each value of the loss.

    Args:
        sample_weight: Weights of one output, or `None`.
        num_axes: Number of axes of the loss before it is averaged.
    """
    if sample_weight is None:
        return
    shape = _shape(sample_weight)
    if shape and len(shape) != num_axes and (len(shape) != num_axes + 1 or shape[-1] != 1):
        axes = "one weight for each example, of shape (B,)"
        if num_axes > 1:
            axes = "one weight for each label, of the shape of `y`"
        raise ValueError(f"`sample_weight` must be {axes}. Received: shape={shape}. Reshape it.")


def check_classes(y: Any, classes: Classes, ignore_class: int | None = None) -> None:
    """Raise a `ValueError` unless `y` holds labels for a sparse loss.

    Args:
        y: Labels. In a TensorFlow graph, as in `tf.data`, the values are not known yet. The graph
            then raises a `tf.errors.InvalidArgumentError` when it runs.
        classes: `Classes` of the output.
        ignore_class: int or `None`. A label that the loss ignores. Defaults to `None`.
    """
    if classes.one_per_example:
        check_one_per_example(
            y,
            "Labels of a sparse loss must be one integer for each example",
            " For one-hot labels or probabilities, compile with "
            "`keras.losses.CategoricalCrossentropy(from_logits=True)` and categorical metrics.",
        )
    if is_in_graph(y):
        _check_in_graph(y, classes, ignore_class)
    elif (values := validation.host_value(y)) is not None:
        _check_values(values, y, classes, ignore_class)


def check_one_per_example(y: Any, rule: str, remedy: str = "") -> None:
    """Raise a `ValueError` unless there is one label for each example."""
    shape = _shape(y)
    if len(shape) > 2 or (len(shape) == 2 and shape[1] != 1):
        raise ValueError(f"{rule}, of shape (B,) or (B, 1). Received: y.shape={shape}.{remedy}")


def check_multi_label(y: Any, classes: Classes) -> None:
    """Raise a `ValueError` unless `y` has a number from 0 to 1 for each class of each example.

    In a TensorFlow graph, this becomes a `tf.errors.InvalidArgumentError`.
    """
    rule = (
        "Labels `y` of a multi-label classifier must be 0 or 1 for each class, of shape "
        f"(B, {classes.argument}) = (B, {classes.number})."
    )
    shape = _shape(y)
    if shape and (len(shape) != 2 or shape[1] not in (None, classes.number)):
        raise ValueError(f"{rule} Received: y.shape={shape}. {MULTI_LABEL_REMEDY}")
    if is_in_graph(y):
        if not y.dtype.is_bool:
            check_in_graph((y >= 0) & (y <= 1), rule, "Received:", y)
    elif (values := validation.host_value(y)) is not None:
        # NaN fails both comparisons.
        wrong = np.argwhere(~((values >= 0) & (values <= 1)))
        if len(wrong):
            row, column = wrong[0]
            raise ValueError(
                f"{rule} Received: {values[row, column]} in row {row} for class {column}. Correct "
                "this value."
            )


def _check_values(values: np.ndarray, y: Any, classes: Classes, ignore_class: int | None) -> None:
    if not np.all(np.isfinite(values)) or np.any(values != np.round(values)):
        raise ValueError(_not_integers(y))
    labels = values.astype("int64")
    if ignore_class is not None:
        labels = labels[labels != ignore_class]
    if labels.size and (labels.min() < 0 or labels.max() >= classes.number):
        remedy = f"Change them, or choose a larger `{classes.argument}`."
        if labels.min() < 0:
            remedy = "Change them. To ignore a label, compile a loss with this `ignore_class`."
        raise ValueError(
            f"{_out_of_range(classes)} Received: labels from {labels.min()} to {labels.max()}. "
            f"{remedy}"
        )


def _check_in_graph(y: Any, classes: Classes, ignore_class: int | None) -> None:
    import tensorflow as tf

    labels = tf.cast(y, "int64")
    is_class = (labels >= 0) & (labels < classes.number)
    if ignore_class is not None:
        is_class |= labels == ignore_class
    check_in_graph(are_integers_in_graph(y), _not_integers(y), "Received:", y)
    check_in_graph(is_class, _out_of_range(classes), "Received:", y)


def _not_integers(y: Any) -> str:
    dtype = keras.backend.standardize_dtype(y.dtype if hasattr(y, "dtype") else np.asarray(y).dtype)
    return (
        f"Labels `y` of a sparse loss must be integers. Received: labels of dtype {dtype} with "
        "other values. Use `num_classes=1` for regression. For probabilities, compile with "
        "`keras.losses.CategoricalCrossentropy(from_logits=True)`."
    )


def _out_of_range(classes: Classes) -> str:
    return f"Labels `y` must lie in [0, {classes.argument}) = [0, {classes.number})."
