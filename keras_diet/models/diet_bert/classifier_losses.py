"""What a text classifier returns, and the default loss and metrics for it."""

from typing import Any

import keras

from keras_diet.models.hub.labels import is_of_keras, sparse_loss

_LOGITS = keras.activations.linear
_SOFTMAX = keras.activations.softmax
_SIGMOID = keras.activations.sigmoid


def check_multi_label(num_classes: int, activation: Any) -> None:
    """Raise a `ValueError` if a classifier with these arguments cannot be multi-label."""
    if num_classes == 1:
        raise ValueError(
            "`multi_label=True` needs at least two classes. Received: num_classes=1, which means "
            "regression. For a single yes or no, use two classes and multi_label=False."
        )
    if activation not in (_LOGITS, _SIGMOID):
        raise ValueError(
            "`multi_label=True` needs activation=None or 'sigmoid', because each class has its own "
            f"probability. Received: activation={keras.activations.serialize(activation)!r}"
        )


def check_activation(num_classes: int, activation: Any) -> None:
    """Raise a `ValueError` if all outputs of a classifier would be 1."""
    if num_classes == 1 and activation is _SOFTMAX:
        raise ValueError(
            "`activation` must not be 'softmax' with a single output, which would always be 1. "
            "Received: num_classes=1. Use two classes, or leave the activation out for a "
            "regression."
        )


def output_kind(activation: Any) -> str | None:
    """Return `"logits"` or `"probabilities"`, or `None` if it is not known."""
    if activation is _LOGITS:
        return "logits"
    return "probabilities" if activation in (_SOFTMAX, _SIGMOID) else None


def default_loss(num_classes: int, activation: Any, is_multi_label: bool) -> keras.losses.Loss:
    """Return the loss that `compile` chooses by itself."""
    if num_classes == 1:
        return keras.losses.MeanSquaredError()
    from_logits = output_kind(activation) != "probabilities"
    if is_multi_label:
        return keras.losses.BinaryCrossentropy(from_logits=from_logits)
    return keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)


def default_metrics(num_classes: int, activation: Any, is_multi_label: bool, loss: Any) -> list:
    """Return the metrics that `compile` chooses by itself for a loss."""
    if num_classes == 1:
        return [keras.metrics.RootMeanSquaredError()] if _is_squared_error(loss) else []
    if is_multi_label:
        # A probability of 0.5 is a logit of 0.
        threshold = 0.0 if output_kind(activation) == "logits" else 0.5
        return [keras.metrics.BinaryAccuracy(threshold=threshold)]
    if is_of_keras(loss) and not sparse_loss(loss)[0]:
        return [keras.metrics.CategoricalAccuracy()]
    return [keras.metrics.SparseCategoricalAccuracy()]


def check_loss(is_multi_label: bool, loss: Any) -> None:
    """Raise a `ValueError` if a loss takes one class for each text, but texts have several."""
    if is_multi_label and sparse_loss(loss)[0]:
        raise ValueError(
            "The loss of a multi-label classifier must take 0 or 1 for each class. Received: a "
            "sparse loss, which takes one class for each text. Leave `loss` out, or pass "
            "`keras.losses.BinaryCrossentropy(from_logits=True)`."
        )


def _is_squared_error(loss: Any) -> bool:
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    is_instance = isinstance(loss, keras.losses.MeanSquaredError)
    return is_instance or loss is keras.losses.mean_squared_error
