"""The losses and metrics of tasks: their inputs, and which ones fit the outputs of a task."""

import warnings
from typing import Any

import keras


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


def sparse_loss(loss: Any) -> tuple[bool, int | None, bool]:
    """Return whether a loss takes classes as integers, which one it ignores, and `from_logits`."""
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.SparseCategoricalCrossentropy):
        return True, loss.ignore_class, loss.from_logits
    return loss is keras.losses.sparse_categorical_crossentropy, None, False


def is_kind_of(loss: Any, cls: Any) -> bool:
    """Return whether a loss is of a class of Keras. It may be the function, or a name."""
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    return isinstance(loss, cls) or loss is cls().fn


def is_of_keras(loss: Any) -> bool:
    """Return whether Keras brings the loss, so that it is known which labels it takes."""
    return isinstance(loss, str) or (
        getattr(loss, "__module__", type(loss).__module__).startswith("keras.")
    )


def token_loss(from_logits: bool = True) -> keras.losses.Loss:
    """Return the cross-entropy averaged over tokens.

    KerasHub's default is a mean over all labels, also over those with weight 0.
    """
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=from_logits, reduction="mean_with_sample_weight"
    )


def default_accuracy(loss: Any) -> keras.metrics.Metric:
    """Return the accuracy of the labels that a loss of classes takes."""
    if is_of_keras(loss) and not sparse_loss(loss)[0]:
        return keras.metrics.CategoricalAccuracy()
    return keras.metrics.SparseCategoricalAccuracy()


def warn_if_loss_does_not_fit(task: Any) -> None:
    """Warn if a loss of a compiled task takes other outputs than the task returns.

    Only the losses of Keras are checked.

    Args:
        task: A task that is compiled.
    """
    output_kind = task.output_kind
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
