"""The classes of texts, with their probabilities."""

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
    batch_size: int | None = None,
) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
    """Return the classes of each text with their probabilities, the most probable class first.

    Args:
        texts: A string, a list of strings, or anything else that `predict` takes. A pair of texts
            is a tuple `(a, b)`, where `a` and `b` are two strings or two lists.
        top_k: int or `None`. Number of classes for each text. Defaults to `None`, which means all
            classes.
        batch_size: int or `None`. As in `predict`. Defaults to `None`.

    Returns:
        For one text, a list of dictionaries: `"label"` is a name of `class_names`, or the index of
        the class without names, and `"probability"` is a float. For several texts, a list with such
        a list for each text.

    Raises:
        ValueError: If the model is a regression, or has an activation that does not return
            probabilities; if `top_k` is not a positive integer up to the number of classes; or as
            in `predict`.

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
    labels = classifier.class_names or range(number)
    function = _probability_function(classifier)
    outputs = classifier.predict(texts, batch_size=batch_size, verbose=0)
    # Half precision would round probabilities near 1.
    probabilities = ops.convert_to_numpy(function(ops.cast(outputs, "float32")))
    results = [_best(of_text, labels, top_k) for of_text in probabilities]
    is_one = isinstance(classifier.preprocessor, HubPreprocessor) and as_batch(texts) is not texts
    return results[0] if is_one else results


def _probability_function(classifier):
    """Return the function from the outputs of the model to probabilities."""
    if classifier.num_classes == 1:
        raise ValueError(
            "`classify` needs at least two classes. Received: num_classes=1, a regression. Call "
            "`predict`."
        )
    functions = {
        keras.activations.linear: ops.softmax,
        keras.activations.softmax: lambda outputs: outputs,
    }
    if classifier.activation not in functions:
        raise ValueError(
            "`classify` needs a model that returns logits or probabilities. Received: "
            f"activation={classifier.activation}. Build it with activation=None or 'softmax', or "
            "call `predict`."
        )
    return functions[classifier.activation]


def _best(probabilities, labels, top_k):
    order = np.argsort(-probabilities, kind="stable")[:top_k]
    return [{"label": labels[i], "probability": float(probabilities[i])} for i in order]
