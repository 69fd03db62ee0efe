"""The gate: one place that converts and checks the data that a user passes to a model.

`fit`, `evaluate` and `predict` check arrays once, before the first step, and datasets batch by
batch. Data comes to the host first, and all checks run there.
"""

from collections.abc import Mapping
from typing import Any

import keras

from keras_diet.models.hub.class_names import labels_of_names
from keras_diet.models.hub.host_data import as_arrays, on_host
from keras_diet.models.hub.labels import (
    MULTI_LABEL_REMEDY,
    check_are_finite,
    check_classes,
    check_has_labels,
    check_labels_are_not_text,
    check_multi_label,
    check_one_per_example,
    check_positions,
    check_shape_of_outputs,
    check_shape_of_weights,
    is_of_keras,
    numbers_of,
    of_output,
    sparse_loss,
)
from keras_diet.models.hub.listed import listed
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.texts import check_lengths, holds_text, is_one_text


def checked_element(task: Any, element: Any, needs_labels: bool = True) -> tuple[Any, Any, Any]:
    """Return the result of `checked_data` for an element `x`, `(x, y)` or `(x, y, weights)`."""
    if isinstance(element, list) and holds_text(element):
        # Texts. Other lists are inputs, labels and weights.
        element = (element,)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(element)
    if task.preprocessor is not None and is_one_text(x):
        raise ValueError(
            "`x` must hold several texts. Received: one text. Put it into a list, or call `batch` "
            "on the dataset."
        )
    return checked_data(task, x, y, sample_weight, needs_labels)


def checked_data(
    task: Any, x: Any, y: Any = None, sample_weight: Any = None, needs_labels: bool = True
) -> tuple[Any, Any, Any]:
    """Check inputs, labels and weights. Return them as arrays and lists of strings.

    Tensors in a graph of TensorFlow, as in `tf.data`, stay as they are.

    Args:
        task: The model.
        x: Inputs.
        y: Labels, or `None`.
        sample_weight: Weights, or `None`.
        needs_labels: bool. Whether labels and weights are used. Otherwise they are not read, and
            `None` is returned for them. Defaults to `True`.

    Raises:
        ValueError: If they cannot be right, or do not go together.
    """
    if isinstance(task.preprocessor, HubPreprocessor):
        x, y = task.preprocessor.joined(x, y)
        if needs_labels:
            task.preprocessor.check_left_out(y, sample_weight)
    x, y, sample_weight = on_host((x, y, sample_weight) if needs_labels else (x, None, None))
    if task.preprocessor is not None and is_one_text(x):
        raise ValueError("`x` must be a list of texts. Received: one text. Put it into a list.")
    task.check_inputs(x)
    if needs_labels:
        check_lengths(x=x, y=y, sample_weight=sample_weight)
        check_has_labels(y, task)
        y, sample_weight = task.checked_targets(x, y, sample_weight)
    if isinstance(x, Mapping) and y is not None and sparse_loss(_loss(task))[0]:
        for name, token_input in task.token_inputs.items():
            if token_input.positions_in or token_input.has_labels:
                check_positions(y, name, x[name])
    return as_arrays((x, y, sample_weight))


def checked_labels(task: Any, x: Any, y: Any) -> Any:
    """Check the labels of all outputs, and return them with numbers in the place of names."""
    if y is not None and getattr(task.preprocessor, "converts_labels", False):
        task.preprocessor.check_labels(x, y)
        return y
    if isinstance(y, dict):
        # Outputs in a dictionary have its keys, and other outputs the names of their layers.
        names = list(task.output) if isinstance(task.output, dict) else task.output_names
        if not set(y) <= set(names):
            raise ValueError(
                "`y` must be an array or a list, or a dictionary with a key for each output: "
                f"{listed(names)}. Received: the keys {listed(y)}. Pass the "
                "labels themselves if the model has one output."
            )
        return {name: _of_output(task, labels, name) for name, labels in y.items()}
    return _of_output(task, y)


def checked_weights(task: Any, sample_weight: Any) -> Any:
    """Check the weights of all outputs, and return them as numbers."""
    if isinstance(sample_weight, dict):
        return {name: checked_weights(task, each) for name, each in sample_weight.items()}
    sample_weight = numbers_of("sample_weight", sample_weight)
    check_are_finite("sample_weight", sample_weight)
    if _has_one_output(task) and is_of_keras(_loss(task)) and len(task.output_shape) > 1:
        check_shape_of_weights(sample_weight, len(task.output_shape) - 1)
    return sample_weight


def _has_one_output(task):
    return keras.utils.is_keras_tensor(task.output)


def _loss(task, name=None):
    return of_output(task.loss, name) if task.compiled else None


def _of_output(task, y, name=None):
    if y is None:
        return None
    classes = of_output(task.classes, name)
    loss = _loss(task, name)
    is_sparse, ignore_class = sparse_loss(loss)
    if classes is not None:
        y = labels_of_names(y, classes, as_ids=is_sparse or not is_of_keras(loss))
    check_labels_are_not_text(y)
    is_multi_label = classes is not None and classes.is_multi_label
    y = numbers_of("y", y, *[MULTI_LABEL_REMEDY] * is_multi_label)
    if is_sparse and classes is not None:
        check_classes(y, classes, ignore_class)
    elif is_of_keras(loss):
        # A custom loss may take other labels, and mark missing ones by NaN.
        is_regression = classes is not None and classes.is_regression
        if is_regression:
            check_one_per_example(
                y,
                "Labels of a regression must be one number for each example",
                " Pass one column, or write a custom loss.",
            )
        if is_multi_label:
            check_multi_label(y, classes)
        if name is None and not is_regression and _has_one_output(task):
            check_shape_of_outputs(y, task.output_shape)
        check_are_finite("y", y)
    return y
