"""The losses and metrics of tasks: what they take, and what fits the outputs of a task."""

import warnings
from typing import Any

import keras
from keras import ops

from keras_diet.training.smoothed_categorical_crossentropy import label_weights
from keras_diet.types import Config, Tensor


def of_output(values: Any, name: str | None) -> Any:
    """Return what `values` holds for an output of a model, such as its loss.

    Args:
        values: One value for all outputs, or a list, tuple or dictionary with one for each output.
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


def is_of_keras(loss: Any) -> bool:
    """Return whether Keras brings the loss, so that it is known which labels it takes."""
    return isinstance(loss, str) or (
        getattr(loss, "__module__", type(loss).__module__).startswith("keras.")
    )


def token_loss(loss: Any, from_logits: bool = True) -> Any:
    """Return the cross-entropy averaged over tokens for `"auto"`, and another loss as it is.

    KerasHub's default is a mean over all labels, also over those with weight 0.
    """
    if not (isinstance(loss, str) and loss == "auto"):
        return loss
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=from_logits, reduction="mean_with_sample_weight"
    )


def divides_by_weights(loss: Any) -> bool:
    """Return whether a loss divides the sum over a batch by the weights, or the number, of labels.

    `ignore_class` leaves labels out of the mean.
    """
    reduction = getattr(loss, "reduction", None)
    ignores = getattr(loss, "ignore_class", None) is not None
    return reduction == "mean_with_sample_weight" or (
        ignores and reduction in ("mean", "sum_over_batch_size")
    )


def divisor(loss: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> Tensor:
    """Return the number by which a loss divides its sum over the labels of a batch.

    Args:
        loss: A loss for which `divides_by_weights`.
        y_true: Labels of a single output.
        y_pred: Values of the output.
        sample_weight: Weights, or `None`.
    """
    y_true, y_pred, sample_weight = (
        of_output(part, None) for part in (y_true, y_pred, sample_weight)
    )
    labels = y_pred[..., 0]
    if sparse_loss(loss)[0]:
        labels = ops.reshape(y_true, ops.shape(labels))
    if loss.reduction != "mean_with_sample_weight":
        sample_weight = None
    return ops.sum(label_weights(labels, sample_weight, sparse_loss(loss)[1]))


def default_accuracy(loss: Any) -> keras.metrics.Metric:
    """Return the accuracy of the labels that a loss of classes takes."""
    is_sparse, ignore_class = sparse_loss(loss)
    if is_of_keras(loss) and not is_sparse:
        return keras.metrics.CategoricalAccuracy()
    return LabelAccuracy(ignore_class=ignore_class)


def accuracy_by_default(metrics: Any, loss: Any) -> Any:
    """Return metrics of a task, where `"auto"` means the accuracy of the labels of its loss."""
    is_auto = isinstance(metrics, str) and metrics == "auto"
    return [default_accuracy(loss)] if is_auto else metrics


def warn_if_loss_does_not_fit(task: keras.Model, output_kind: str | None) -> None:
    """Warn if a loss of a compiled task takes other outputs than the task returns.

    Only the losses of Keras are checked.

    Args:
        task: A task that is compiled.
        output_kind: `"logits"`, `"probabilities"`, `"embeddings"`, or `None` if it is not known.
    """
    for loss in keras.tree.flatten(task.loss):
        loss = keras.losses.get(loss) if isinstance(loss, str) else loss
        name = getattr(loss, "__name__", type(loss).__name__)
        kind = name.replace("_", "").lower()
        of_classes = kind.endswith("crossentropy") or kind == "kldivergence"
        # The functions have `from_logits=False`.
        expected = "logits" if getattr(loss, "from_logits", False) else "probabilities"
        # A custom model may use embeddings as logits.
        fits = expected == output_kind or (expected, output_kind) == ("logits", "embeddings")
        if of_classes and is_of_keras(loss) and output_kind is not None and not fits:
            remedy = f"Compile with `from_logits={output_kind == 'logits'}`, or use another loss."
            warnings.warn(
                f"`{name}` takes {expected} here, but `{type(task).__name__}` returns "
                f"{output_kind}. {remedy}",
                # The caller of `compile`.
                stacklevel=3,
            )


@keras.saving.register_keras_serializable(package="keras_diet")
class LabelAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """Keras's accuracy, where each label counts the same in batches of all lengths.

        accuracy = sum(w * correct) / sum(w)

    Keras takes the mean over the tokens of a sequence first. So it gives the tokens of shorter
    batches, as preprocessors with `length_buckets` make them, a larger weight.

    Args:
        name: str. Defaults to `"sparse_categorical_accuracy"`, the name in Keras.
        dtype: The dtype of the result, or `None`, which means `keras.config.floatx()`.
        ignore_class: int or `None`. A label that does not count. Defaults to `None`.
    """

    def __init__(
        self,
        name: str = "sparse_categorical_accuracy",
        dtype: Any = None,
        ignore_class: int | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.ignore_class = ignore_class

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch.

        Args:
            y_true: Classes, integers of shape `(...)` or `(..., 1)`.
            y_pred: Logits or probabilities of shape `(..., num_classes)`.
            sample_weight: Weights of shape `(...)` or of its first axes, or `None`, which means 1.
        """
        y_pred = ops.convert_to_tensor(y_pred)
        labels = ops.reshape(y_true, ops.shape(y_pred)[:-1])
        weights = label_weights(labels, sample_weight, self.ignore_class)
        rows = ops.reshape(y_pred, (-1, y_pred.shape[-1]))
        return super().update_state(ops.reshape(labels, (-1,)), rows, ops.reshape(weights, (-1,)))

    def get_config(self) -> Config:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "ignore_class": self.ignore_class}
