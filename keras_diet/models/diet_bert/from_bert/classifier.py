"""From a BERT to a `DietBertTextClassifier`, with the head and the class names of Hugging Face."""

import re
from collections.abc import Sequence
from typing import Any

import keras

from keras_diet.models.diet_bert.from_bert.checkpoint import Checkpoint
from keras_diet.models.diet_bert.from_bert.read_bert import read_checkpoint
from keras_diet.types import Activation


def convert_classifier(
    cls: type[keras.Model],
    bert: Any,
    position_encoding: str = "diet_abs",
    preprocessor: keras.layers.Layer | None = None,
    *,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    multi_label: bool | None = None,
    activation: Activation = None,
    **kwargs: Any,
) -> Any:
    """Build a classifier from the weights of a trained BERT.

    If `bert` is Hugging Face's `BertForSequenceClassification`, the classifier gets its head. With
    `position_encoding="input"` the outputs are then the outputs of that model. Otherwise the head
    is new.

    Args:
        bert: As in `DietBertBackbone.from_bert`.
        position_encoding: As in `DietBertBackbone.from_bert`. Defaults to `"diet_abs"`.
        preprocessor: As in the class. Its tokenizer knows the id of `[CLS]`. Defaults to `None`.
        num_classes: As in the class, for a new head. Defaults to `None`, which means the classes of
            Hugging Face's head, or one class for each name.
        class_names: As in the class. Defaults to `None`, which means the names of `id2label` in
            Hugging Face's configuration. Names such as `"LABEL_0"` are left out.
        multi_label: As in the class. Defaults to `None`, which means what `problem_type` in Hugging
            Face's configuration says.
        activation: As in the class. Defaults to `None`.
        **kwargs: Other arguments of `DietBertBackbone.from_bert`.

    Returns:
        A `DietBertTextClassifier`.

    Raises:
        ValueError: If nothing says how many classes there are, or as in
            `DietBertBackbone.from_bert` and in the class.

    Example:

    ```python
    bert = keras_hub.models.BertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    classifier = keras_diet.models.DietBertTextClassifier.from_bert(
        bert, sharing="none", class_names=["negative", "positive"]
    )
    ```
    """
    tokenizer = getattr(preprocessor, "tokenizer", None)
    kwargs.setdefault("cls_token_id", getattr(tokenizer, "cls_token_id", None))
    backbone = cls.backbone_cls.from_bert(bert, position_encoding, **kwargs)
    checkpoint = read_checkpoint(bert)
    config = {} if checkpoint is None else checkpoint.config
    head = None if checkpoint is None or num_classes is not None else _head(checkpoint)
    if num_classes is None and class_names is None:
        class_names = _names(config)
    if multi_label is None:
        multi_label = config.get("problem_type") == "multi_label_classification"
    classifier = cls(
        backbone,
        num_classes if head is None else len(head[1]),
        preprocessor,
        activation=activation,
        dropout=backbone.dropout,
        class_names=class_names,
        multi_label=multi_label,
    )
    if head is not None:
        classifier.output_dense.set_weights(head)
    return classifier


def _head(checkpoint: Checkpoint) -> list[Any] | None:
    """Return the kernel and the bias of Hugging Face's classifier of texts, if there is one."""
    architectures = checkpoint.config.get("architectures") or [""]
    if not architectures[0].endswith("ForSequenceClassification"):
        # Classifiers of tokens and of choices have a head of the same name.
        return None
    kernel, bias = (checkpoint.tensors.get(f"classifier.{name}") for name in ("weight", "bias"))
    return None if kernel is None or bias is None else [kernel.T, bias]


def _names(config: dict[str, Any]) -> list[str] | None:
    """Return the names in `id2label`, or `None` if Hugging Face has made them up."""
    labels = {int(i): str(label) for i, label in (config.get("id2label") or {}).items()}
    names = [labels[i] for i in sorted(labels)]
    is_real = len(set(names)) == len(names) > 1 and all(names)
    return (
        names if is_real and not all(re.fullmatch(r"LABEL_\d+", name) for name in names) else None
    )
