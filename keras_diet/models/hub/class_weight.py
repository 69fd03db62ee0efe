"""The argument `class_weight` of `fit` and `train_on_batch`."""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_diet._compat import class_weight_to_sample_weights
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.listed import listed

_RULE = "`class_weight` must be a dictionary of finite numbers by index of the class."


def checked_class_weight(class_weight: Any, classes: Any) -> Any:
    """Return a dictionary with the weight of each class, by its index.

    Keras gives the weight 1 to labels that it does not find in the dictionary. So names, or classes
    that do not exist, would have no effect.

    Args:
        class_weight: Dictionary from classes to weights, or `None`. A class is an integer, or one
            of the names.
        classes: `Classes` of the output. Anything else, in models without classes or with several
            outputs, accepts all indices.

    Raises:
        ValueError: If `class_weight` is not a dictionary from classes to finite numbers that are
            not negative, or if examples do not have one class each.
    """
    if class_weight is None:
        return None
    has_classes = isinstance(classes, Classes)
    if has_classes and not classes.one_per_example:
        raise ValueError(
            "`class_weight` must be `None` if an example may have several labels. Received: "
            f"class_weight={class_weight!r}. Pass `sample_weight`."
        )
    if not isinstance(class_weight, Mapping):
        received = type(class_weight).__name__
        raise ValueError(f"{_RULE} Received: {received}. Pass {{0: 1.0, 1: 2.0}}.")
    # One output may have two classes, 0 and 1.
    number = classes.number if has_classes and classes.number > 1 else None
    names = classes.names or () if has_classes else ()
    # TensorFlow needs the weights of all classes.
    weights = dict.fromkeys(range(number or 0), 1.0)
    for label, weight in class_weight.items():
        index = names.index(label) if label in names else label
        if not _is_class(index, number) or not _is_weight(weight):
            raise ValueError(
                f"{_RULE} Received: {{{label!r}: {weight!r}}}. {_remedy(number, names)}"
            )
        weights[int(index)] = float(weight)
    return weights


def with_class_weight(batch: tuple[Any, ...], class_weight: dict[int, float]) -> tuple[Any, ...]:
    """Return `(x, y)` with the weight of each example.

    Raises:
        ValueError: If the examples have weights already, or several outputs have labels.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    if sample_weight is not None:
        raise ValueError(
            "`class_weight` must be `None` if examples have weights. Received: both. Multiply "
            "`sample_weight` by the weights of the classes."
        )
    if y is None or keras.tree.is_nested(y):
        received = "no labels" if y is None else f"labels in a {type(y).__name__}"
        raise ValueError(
            f"`class_weight` needs the labels of a single output. Received: {received}. Pass "
            "`sample_weight`."
        )
    return x, y, class_weight_to_sample_weights(y, class_weight)


def _is_class(index: Any, number: int | None) -> bool:
    is_integer = isinstance(index, numbers.Integral) and not isinstance(index, bool)
    return is_integer and index >= 0 and (number is None or index < number)


def _is_weight(weight: Any) -> bool:
    return isinstance(weight, numbers.Real) and 0 <= float(weight) < math.inf


def _remedy(number: int | None, names: Sequence[str]) -> str:
    limit = math.inf if number is None else number
    or_names = f" or the names {listed(names)}" if names else ""
    return f"Use indices in [0, {limit}){or_names}, and weights that are not negative."
