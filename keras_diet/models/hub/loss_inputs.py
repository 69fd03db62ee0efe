"""Whether a loss takes what a task returns: logits, probabilities or embeddings."""

import sys
import warnings
from typing import Any

import keras

_CLASSES = {
    keras.losses.binary_crossentropy: keras.losses.BinaryCrossentropy,
    keras.losses.binary_focal_crossentropy: keras.losses.BinaryFocalCrossentropy,
    keras.losses.categorical_crossentropy: keras.losses.CategoricalCrossentropy,
    keras.losses.categorical_focal_crossentropy: keras.losses.CategoricalFocalCrossentropy,
    keras.losses.sparse_categorical_crossentropy: keras.losses.SparseCategoricalCrossentropy,
    keras.losses.kl_divergence: keras.losses.KLDivergence,
}
_BINARY = (keras.losses.BinaryCrossentropy, keras.losses.BinaryFocalCrossentropy)
_LIBRARIES = ("keras", "keras_hub", "keras_diet")


def warn_if_loss_does_not_fit(task: keras.Model, output_kind: str | None) -> None:
    """Warn if the loss of a compiled task takes other outputs than the task returns.

    Only the losses of Keras are checked.

    Args:
        task: A task that is compiled.
        output_kind: `"logits"`, `"probabilities"`, `"embeddings"`, or `None` if it is not known.
    """
    if output_kind is None:
        return
    for loss in keras.tree.flatten(task.loss):
        loss_class, expected = _class_and_inputs(loss)
        if expected in (None, output_kind):
            continue
        if output_kind == "embeddings" and expected == "logits":
            # A custom model may use embeddings as logits.
            continue
        warnings.warn(
            f"`{loss_class.__name__}` takes {expected} here, but `{type(task).__name__}` returns "
            f"{output_kind}. {_remedy(task, loss_class, output_kind)}",
            stacklevel=_level_of_user(),
        )


def _class_and_inputs(loss: Any) -> tuple[Any, str | None]:
    """Return the class of a loss, and `"logits"`, `"probabilities"` or `None`."""
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    # The functions have `from_logits=False`.
    loss_class = _CLASSES.get(loss, type(loss))
    if loss_class not in _CLASSES.values():
        return loss_class, None
    return loss_class, "logits" if getattr(loss, "from_logits", False) else "probabilities"


def _remedy(task: keras.Model, loss_class: Any, output_kind: str) -> str:
    if output_kind == "embeddings":
        return "Use a loss for vectors, such as `keras.losses.CosineSimilarity()`."
    returns_logits = output_kind == "logits"
    remedies = []
    if loss_class is not keras.losses.KLDivergence:
        name = f"keras.losses.{loss_class.__name__}"
        remedies.append(f"compile with `{name}(from_logits={returns_logits})`")
    if hasattr(task, "activation"):
        function = "sigmoid" if loss_class in _BINARY else "softmax"
        activation = function if returns_logits else None
        remedies.append(f"build the model with activation={activation!r}")
    remedy = ", or ".join(remedies) or "apply the softmax in a custom loss"
    return f"{remedy[0].upper()}{remedy[1:]}."


def _level_of_user() -> int:
    """Return the `stacklevel` of the first caller outside the libraries."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level
