"""Checks of the arguments of `fit` that Keras ignores, or reports where it uses them."""

import numbers
from typing import Any

import keras

from keras_diet import validation


def check_fit_arguments(task: Any, shuffle: Any, arguments: dict[str, Any]) -> None:
    """Raise a `ValueError` if an argument of `keras.Model.fit` cannot be right.

    Args:
        task: The model.
        shuffle: Whether to shuffle.
        arguments: Other keyword arguments of `fit`.
    """
    validation.boolean("shuffle", shuffle)
    for name in ("epochs", "initial_epoch"):
        if name in arguments:
            # Without epochs, `fit` returns at once, which is useful after a restart.
            validation.not_negative_int(name, arguments[name])
    for name in ("steps_per_epoch", "validation_steps"):
        validation.optional_positive_int(name, arguments.get(name))
    frequency = arguments.get("validation_freq", 1)
    if isinstance(frequency, numbers.Number):
        validation.positive_int("validation_freq", frequency)
    validation.choice("verbose", arguments.get("verbose", "auto"), ("auto", 0, 1, 2))
    _check_callbacks(arguments.get("callbacks"))
    if task.compiled and task.optimizer is None:
        raise ValueError(
            "`fit` needs an optimizer. Received: a model compiled with optimizer=None. Call "
            "`compile` with an optimizer, or without this argument."
        )


def _check_callbacks(callbacks):
    if callbacks is None or isinstance(callbacks, keras.callbacks.CallbackList):
        return
    each = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    wrong = [callback for callback in each if not isinstance(callback, keras.callbacks.Callback)]
    if wrong:
        raise ValueError(
            "`callbacks` must be a list of `keras.callbacks.Callback` objects. Received: "
            f"{wrong[0]!r}. Pass an object of a class of callbacks, and wrap a function with "
            "`keras.callbacks.LambdaCallback`."
        )
