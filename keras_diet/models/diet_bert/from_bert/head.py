"""Tasks from a BERT: their backbone, and the head and the class names of Hugging Face."""

import re
import warnings
from collections.abc import Sequence
from typing import Any

import keras

from keras_diet.models.diet_bert.from_bert.checkpoint import Checkpoint


def convert_backbone(
    cls: type[keras.Model],
    bert: Any,
    position_encoding: str,
    preprocessor: keras.layers.Layer | None,
    uses_pooler: bool,
    **kwargs: Any,
) -> Any:
    """Return the backbone of a task. The tokenizer of its preprocessor knows the id of `[CLS]`.

    Args:
        cls: Class of the task.
        bert: As in `DietBertBackbone.from_bert`.
        position_encoding: As in `DietBertBackbone.from_bert`.
        preprocessor: The preprocessor of the task, or `None`.
        uses_pooler: bool. If `False`, a BERT without a pooler gives no warning.
        **kwargs: Other arguments of `DietBertBackbone.from_bert`.
    """
    tokenizer = getattr(preprocessor, "tokenizer", None)
    kwargs.setdefault("cls_token_id", getattr(tokenizer, "cls_token_id", None))
    with warnings.catch_warnings():
        if not uses_pooler:
            warnings.filterwarnings("ignore", ".*has no pooler", UserWarning)
        return cls.backbone_cls.from_bert(bert, position_encoding, **kwargs)


def make_classifier(
    cls: type[keras.Model],
    backbone: Any,
    checkpoint: Checkpoint | None,
    kind: str,
    num_classes: int | None,
    class_names: Sequence[str] | None,
    **kwargs: Any,
) -> Any:
    """Return a classifier with the head and the class names of Hugging Face, if there are any.

    Args:
        cls: Class of the classifier.
        backbone: Its backbone.
        checkpoint: The weights of Hugging Face, or `None` for a BERT of KerasHub.
        kind: As in `read_head`.
        num_classes: Number of classes of a new head, or `None`.
        class_names: Names that replace those of Hugging Face, or `None`.
        **kwargs: Other arguments of the class.
    """
    head = None if num_classes is not None else read_head(checkpoint, kind)
    if num_classes is None and class_names is None:
        class_names = read_class_names(checkpoint)
    classifier = cls(
        backbone,
        num_classes if head is None else len(head[1]),
        dropout=backbone.dropout,
        class_names=class_names,
        **kwargs,
    )
    if head is not None:
        classifier.output_dense.set_weights(head)
    return classifier


def read_head(checkpoint: Checkpoint | None, kind: str) -> list[Any] | None:
    """Return the kernel and the bias of a head, or `None` without such a head.

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
