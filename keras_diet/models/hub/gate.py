"""Checks the data that a user passes to a task, before any step runs."""

from typing import Any

from keras_diet import validation
from keras_diet.models.hub.labels import (
    check_classes,
    check_has_labels,
    check_labels_are_not_text,
    check_one_per_example,
    check_values_are_finite,
    numeric_labels,
    of_output,
    sparse_loss,
)
from keras_diet.models.hub.texts import check_lengths, is_batch


def checked_data(task: Any, x: Any, y: Any, sample_weight: Any, batch_size: int | None) -> Any:
    """Check the arguments of `fit` or `evaluate`. Return the labels as numbers.

    Raises:
        ValueError: If inputs, labels or weights cannot be right, or do not go together.
    """
    validation.optional_positive_int("batch_size", batch_size)
    y = checked_batch(task, x, y)
    if isinstance(x, (str, bytes)):
        raise ValueError("`x` must hold several texts. Received: one text. Put it into a list.")
    if is_batch(x):
        check_has_labels(y, task)
        check_lengths(x=x, y=y, sample_weight=sample_weight)
    return y


def checked_batch(task: Any, x: Any, y: Any = None) -> Any:
    """Check inputs and labels. Return the labels as numbers."""
    task.check_inputs(x)
    if isinstance(y, dict):
        return {name: _checked_labels(task, labels, name) for name, labels in y.items()}
    return _checked_labels(task, y)


def _checked_labels(task, y, name=None):
    """Check the labels of an output. Return them as numbers."""
    if y is None:
        return None
    check_labels_are_not_text(y)
    y = numeric_labels(y)
    classes = of_output(task.classes, name)
    is_sparse, ignore_class = sparse_loss(of_output(task.loss, name) if task.compiled else None)
    if is_sparse and classes is not None:
        check_classes(y, classes, ignore_class)
        return y
    if classes is not None and classes.is_regression:
        check_one_per_example(y, "Labels of a regression must be one number for each example")
    check_values_are_finite(y)
    return y
