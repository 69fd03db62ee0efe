"""Checks of the methods that return what a user wants to read, such as answers or tags."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_diet.models.hub.preprocessor import check_preprocessor_fits


def checked_preprocessor(task: keras.Model, method: str) -> Any:
    """Return the preprocessor of a task, which the method needs.

    Raises:
        ValueError: If the task has none or another one, or if it does not fit the backbone.
    """
    preprocessor = task.preprocessor
    if not isinstance(preprocessor, task.preprocessor_cls):
        raise ValueError(
            f"`{method}` needs a preprocessor. Received: preprocessor={preprocessor}. Build the "
            f"model with a `{task.preprocessor_cls.__name__}`."
        )
    check_preprocessor_fits(preprocessor, task.backbone)
    return preprocessor


def check_finite(method: str, name: str, arrays: Iterable[np.ndarray]) -> None:
    """Raise a `ValueError` if what a model returns to a method is NaN or infinite."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError(
            f"`{method}` needs a model with finite {name}. Received: NaN or infinite {name}. The "
            "training may have diverged. Train again with a lower learning rate."
        )
