"""Tasks from a BERT: their backbone, and the head and the class names of Hugging Face."""

import re
import warnings
from collections.abc import Sequence
from typing import Any

import keras

from keras_diet.models.diet_bert.from_bert.checkpoint import Checkpoint, read_checkpoint
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
    backbone = _backbone(cls, bert, position_encoding, preprocessor, True, **kwargs)
    checkpoint = read_checkpoint(bert)
    if multi_label is None:
        config = {} if checkpoint is None else checkpoint.config
        multi_label = config.get("problem_type") == "multi_label_classification"
    return _classifier(
        cls,
        backbone,
        checkpoint,
        "ForSequenceClassification",
        num_classes,
        class_names,
        preprocessor=preprocessor,
        activation=activation,
        multi_label=multi_label,
    )


def convert_token_classifier(
    cls: type[keras.Model],
    bert: Any,
    position_encoding: str = "diet_abs",
    preprocessor: keras.layers.Layer | None = None,
    *,
    num_classes: int | None = None,
    class_names: Sequence[str] | None = None,
    activation: Activation = None,
    **kwargs: Any,
) -> Any:
    """Build a classifier of words from the weights of a trained BERT.

    If `bert` is Hugging Face's `BertForTokenClassification`, the classifier gets its head. With
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
        activation: As in the class. Defaults to `None`.
        **kwargs: Other arguments of `DietBertBackbone.from_bert`.

    Returns:
        A `DietBertTokenClassifier`.

    Raises:
        ValueError: If nothing says how many classes there are, or as in
            `DietBertBackbone.from_bert` and in the class.

    Example:

    ```python
    bert = keras_hub.models.BertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    tagger = keras_diet.models.DietBertTokenClassifier.from_bert(
        bert, sharing="none", class_names=["O", "B-PER", "I-PER"]
    )
    ```
    """
    return _classifier(
        cls,
        _backbone(cls, bert, position_encoding, preprocessor, False, **kwargs),
        read_checkpoint(bert),
        "ForTokenClassification",
        num_classes,
        class_names,
        preprocessor=preprocessor,
        activation=activation,
    )


def convert_question_answerer(
    cls: type[keras.Model],
    bert: Any,
    position_encoding: str = "diet_abs",
    preprocessor: keras.layers.Layer | None = None,
    **kwargs: Any,
) -> Any:
    """Build a question answerer from the weights of a trained BERT.

    If `bert` is Hugging Face's `BertForQuestionAnswering`, the question answerer gets its head.
    Otherwise the head is new.

    Args:
        bert: As in `DietBertBackbone.from_bert`.
        position_encoding: As in `DietBertBackbone.from_bert`. Defaults to `"diet_abs"`.
        preprocessor: As in the class. Its tokenizer knows the id of `[CLS]`. Defaults to `None`.
        **kwargs: Other arguments of `DietBertBackbone.from_bert`.

    Returns:
        A `DietBertQuestionAnswerer`.

    Raises:
        ValueError: As in `DietBertBackbone.from_bert` and in the class.

    Example:

    ```python
    bert = keras_hub.models.BertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    question_answerer = keras_diet.models.DietBertQuestionAnswerer.from_bert(bert, sharing="none")
    ```
    """
    backbone = _backbone(cls, bert, position_encoding, preprocessor, False, **kwargs)
    question_answerer = cls(backbone, preprocessor)
    checkpoint = read_checkpoint(bert)
    tensors = {} if checkpoint is None else checkpoint.tensors
    if "qa_outputs.weight" in tensors:
        head = [tensors["qa_outputs.weight"].T, tensors["qa_outputs.bias"]]
        question_answerer.output_dense.set_weights(head)
    return question_answerer


def _backbone(
    cls: type[keras.Model],
    bert: Any,
    position_encoding: str,
    preprocessor: keras.layers.Layer | None,
    uses_pooler: bool,
    **kwargs: Any,
) -> Any:
    """Return the backbone of a task. The tokenizer of its preprocessor knows the id of `[CLS]`."""
    tokenizer = getattr(preprocessor, "tokenizer", None)
    kwargs.setdefault("cls_token_id", getattr(tokenizer, "cls_token_id", None))
    with warnings.catch_warnings():
        if not uses_pooler:
            warnings.filterwarnings("ignore", ".*has no pooler", UserWarning)
        return cls.backbone_cls.from_bert(bert, position_encoding, **kwargs)


def _classifier(
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
        kind: As in `_head`.
        num_classes: Number of classes of a new head, or `None`.
        class_names: Names that replace those of Hugging Face, or `None`.
        **kwargs: Other arguments of the class.
    """
    head = None if num_classes is not None else _head(checkpoint, kind)
    if num_classes is None and class_names is None:
        class_names = _names_of_classes(checkpoint)
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


def _head(checkpoint: Checkpoint | None, kind: str) -> list[Any] | None:
    """Return the kernel and the bias of a head, or `None` without such a head.

    Args:
        checkpoint: The weights of Hugging Face, or `None` for a BERT of KerasHub.
        kind: End of the architecture's name, such as `"ForTokenClassification"`. Classifiers of
            texts, of tokens and of choices have heads of the same name.
    """
    architectures = (checkpoint and checkpoint.config.get("architectures")) or [""]
    if not architectures[0].endswith(kind):
        return None
    return [checkpoint.tensors["classifier.weight"].T, checkpoint.tensors["classifier.bias"]]


def _names_of_classes(checkpoint: Checkpoint | None) -> list[str] | None:
    """Return the names in `id2label`, or `None` if Hugging Face has made them up."""
    config = {} if checkpoint is None else checkpoint.config
    labels = {int(i): str(label) for i, label in (config.get("id2label") or {}).items()}
    names = [labels[i] for i in sorted(labels)]
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        return None
    return None if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else names
