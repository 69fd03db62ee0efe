"""Checks the data that a user passes to a task.

Arrays are checked before the first step, and datasets batch by batch.
"""

from typing import Any

from keras_diet import validation
from keras_diet.models.hub.labels import (
    check_are_finite,
    check_classes,
    check_has_labels,
    check_labels_are_not_text,
    check_one_per_example,
    is_of_keras,
    numeric_labels,
    of_output,
    sparse_loss,
)
from keras_diet.models.hub.texts import as_batch, check_lengths, is_batch


def checked_data(task: Any, x: Any, y: Any, sample_weight: Any, batch_size: int | None) -> Any:
    """Check the arguments of `fit` or `evaluate`. Return the labels as numbers.

    Raises:
        ValueError: If inputs, labels or weights cannot be right, or do not go together.
    """
    validation.optional_positive_int("batch_size", batch_size)
    task.check_inputs(x)
    if is_batch(x):
        if as_batch(x) is not x:
            raise ValueError("`x` must hold several texts. Received: one text. Put it into a list.")
        check_lengths(x=x, y=y, sample_weight=sample_weight)
        check_has_labels(y, task)
        for weights in (
            sample_weight.values() if isinstance(sample_weight, dict) else [sample_weight]
        ):
            check_are_finite("sample_weight", weights)
    return checked_labels(task, y)


def checked_labels(task: Any, y: Any) -> Any:
    """Check the labels of all outputs. Return them as numbers."""
    if isinstance(y, dict):
        return {name: _of_output(task, labels, name) for name, labels in y.items()}
    return _of_output(task, y)


def _of_output(task, y, name=None):
    if y is None:
        return None
    check_labels_are_not_text(y)
    y = numeric_labels(y)
    classes = of_output(task.classes, name)
    loss = of_output(task.loss, name) if task.compiled else None
    is_sparse, ignore_class = sparse_loss(loss)
    if is_sparse and classes is not None:
        check_classes(y, classes, ignore_class)
    elif is_of_keras(loss):
        # A custom loss may take other labels, and mark missing ones by NaN.
        if classes is not None and classes.is_regression:
            check_one_per_example(
                y,
                "Labels of a regression must be one number for each example",
                " Pass one column, or write a custom loss.",
            )
        check_are_finite("y", y)
    return y
