"""The classes of texts, with their probabilities."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.texts import as_batch


def classify(
    classifier: keras.Model,
    texts: Any,
    top_k: int | None = None,
    threshold: float | None = None,
    batch_size: int | None = None,
) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
    """Return the classes of each text with their probabilities, the most probable class first.

    Args:
        texts: A string, a list of strings, or anything else that `predict` takes. A pair of texts
            is a tuple `(a, b)`, where `a` and `b` are two strings or two lists.
        top_k: int or `None`. Number of classes for each text. Defaults to `None`, which means all
            classes.
        threshold: float or `None`. Only classes with at least this probability are returned, for
            example those above 0.5 of a multi-label classifier. Defaults to `None`, which means all
            classes.
        batch_size: int or `None`. As in `predict`. Defaults to `None`.

    The probabilities of a text add up to 1. In multi-label classification, each class has its own
    probability, so their sum may be anything between 0 and the number of classes.

    Returns:
        For one text, a list of dictionaries: `"label"` is a name of `class_names`, or the index of
        the class without names, and `"probability"` is a float. For several texts, a list with such
        a list for each text.

    Raises:
        ValueError: If the model is a regression, or has an activation that does not return
            probabilities; if `top_k` is not a positive integer up to the number of classes, or
            `threshold` not in `[0, 1]`; or as in `predict`.

    Example:

    ```python
    best = classifier.classify("the quick fox", top_k=1)[0]
    best["label"], best["probability"]
    ```
    """
    number = classifier.num_classes
    if top_k is not None and validation.positive_int("top_k", top_k) > number:
        raise ValueError(
            f"`top_k` must be at most the number of classes, {number}. Received: top_k={top_k}"
        )
    threshold = 0.0 if threshold is None else validation.rate("threshold", threshold)
    labels = classifier.class_names or range(number)
    function = _probability_function(classifier)
    outputs = classifier.predict(texts, batch_size=batch_size, verbose=0)
    # Half precision would round probabilities. On PyTorch, `ops.cast` keeps an array in bfloat16.
    probabilities = ops.convert_to_numpy(function(outputs.astype("float32")))
    results = [_best(of_text, labels, top_k, threshold) for of_text in probabilities]
    is_one = isinstance(classifier.preprocessor, HubPreprocessor) and as_batch(texts) is not texts
    return results[0] if is_one else results


def _probability_function(classifier):
    """Return the function from the outputs of the model to probabilities."""
    if classifier.num_classes == 1:
        raise ValueError(
            "`classify` needs at least two classes. Received: num_classes=1, a regression. Call "
            "`predict`."
        )
    name = "sigmoid" if classifier.multi_label else "softmax"
    return probability_function(name, classifier.activation, "classify")


def probability_function(name: str, activation: Any, method: str) -> Callable[[Any], Any]:
    """Return the function from the outputs of a model to probabilities.

    Args:
        name: `"softmax"` or `"sigmoid"`, the function from logits to probabilities.
        activation: The activation of the outputs.
        method: str. The method that needs probabilities, for messages.

    Raises:
        ValueError: If the outputs are neither logits nor probabilities.
    """
    if activation is keras.activations.linear:
        return getattr(ops, name)
    if activation is not getattr(keras.activations, name):
        raise ValueError(
            f"`{method}` needs a model that returns logits or probabilities. Received: "
            f"activation={keras.activations.serialize(activation)!r}. Build it with "
            f"activation=None or {name!r}, or call `predict`."
        )
    return lambda outputs: outputs


def _best(probabilities, labels, top_k, threshold):
    order = np.argsort(-probabilities, kind="stable")[:top_k]
    return [
        {"label": labels[i], "probability": float(probabilities[i])}
        for i in order
        if probabilities[i] >= threshold
    ]
