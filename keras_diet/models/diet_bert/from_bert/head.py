"""The head of a classifier of Hugging Face, and the names of its classes."""

import re
from typing import Any

from keras_diet.models.diet_bert.from_bert.checkpoint import Checkpoint


def read_head(checkpoint: Checkpoint | None, kind: str) -> list[Any] | None:
    """Return the kernel and the bias of a head, or `None` if there is no head of this kind.

    Args:
        checkpoint: The weights of Hugging Face, or `None` for a BERT of KerasHub.
        kind: End of the architecture's name, such as `"ForTokenClassification"`. Classifiers of
            texts, of tokens and of choices have heads of the same name.
    """
    if checkpoint is None:
        return None
    architectures = checkpoint.config.get("architectures") or [""]
    if not architectures[0].endswith(kind):
        return None
    kernel, bias = (checkpoint.tensors.get(f"classifier.{name}") for name in ("weight", "bias"))
    return None if kernel is None or bias is None else [kernel.T, bias]


def read_class_names(checkpoint: Checkpoint | None) -> list[str] | None:
    """Return the names in `id2label`, or `None` if Hugging Face has made them up."""
    config = {} if checkpoint is None else checkpoint.config
    labels = {int(i): str(label) for i, label in (config.get("id2label") or {}).items()}
    names = [labels[i] for i in sorted(labels)]
    is_real = len(set(names)) == len(names) > 1 and all(names)
    return (
        names if is_real and not all(re.fullmatch(r"LABEL_\d+", name) for name in names) else None
    )
