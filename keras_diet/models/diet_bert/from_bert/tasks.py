"""Tasks from a BERT: their backbone, and Hugging Face's heads, names of classes and pooling."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from keras_diet import validation
from keras_diet.models.diet_bert.hugging_face.checkpoint import (
    Checkpoint,
    is_hugging_face_folder,
    read_checkpoint,
    read_json,
)
from keras_diet.types import Activation, Config

# What a BERT of KerasHub has of Hugging Face.
_NOTHING = Checkpoint({}, {}, "")
# Our names of the poolings of sentence-transformers.
_POOLING = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}


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
    """Build a classifier of texts or of words from the weights of a trained BERT.

    If `bert` is Hugging Face's `BertForSequenceClassification`, or `BertForTokenClassification` for
    a classifier of words, the classifier gets its head. With
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
        multi_label: As in `DietBertTextClassifier`. Defaults to `None`, which means what
            `problem_type` in Hugging Face's configuration says.
        activation: As in the class. Defaults to `None`.
        **kwargs: Other arguments of `DietBertBackbone.from_bert`.

    Returns:
        A `DietBertTextClassifier` or a `DietBertTokenClassifier`.

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
        bert, class_names=["negative", "positive"]
    )
    ```
    """
    checkpoint = read_checkpoint(bert) or _NOTHING
    is_of_texts = cls.backbone_output == "pooled_output"
    options = {} if multi_label is None else {"multi_label": multi_label}
    if is_of_texts:
        problem = checkpoint.config.get("problem_type")
        options.setdefault("multi_label", problem == "multi_label_classification")
    # Classifiers of texts, of tokens and of choices have heads of the same name.
    kind = "ForSequenceClassification" if is_of_texts else "ForTokenClassification"
    architecture = (checkpoint.config.get("architectures") or [""])[0]
    head = None
    if num_classes is None:
        if architecture.endswith(kind):
            names = ("classifier.weight", "classifier.bias")
            head = [checkpoint.tensors[name].T for name in names]
            num_classes = len(head[1])
        class_names = class_names or _names_of_classes(checkpoint)
    backbone = _backbone(cls, bert, position_encoding, preprocessor, is_of_texts, **kwargs)
    classifier = cls(
        backbone,
        num_classes,
        preprocessor,
        activation,
        dropout=backbone.dropout,
        class_names=class_names,
        **options,
    )
    if head is not None:
        classifier.output_dense.set_weights(head)
    return classifier


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
    question_answerer = keras_diet.models.DietBertQuestionAnswerer.from_bert(bert)
    ```
    """
    backbone = _backbone(cls, bert, position_encoding, preprocessor, False, **kwargs)
    question_answerer = cls(backbone, preprocessor)
    tensors = (read_checkpoint(bert) or _NOTHING).tensors
    if "qa_outputs.weight" in tensors:
        head = [tensors["qa_outputs.weight"].T, tensors["qa_outputs.bias"]]
        question_answerer.output_dense.set_weights(head)
    return question_answerer


def convert_text_embedder(
    cls: type[keras.Model],
    bert: Any,
    position_encoding: str = "diet_abs",
    preprocessor: keras.layers.Layer | None = None,
    *,
    pooling_mode: str | None = None,
    normalize: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Build a text embedder from the weights of a trained BERT.

    If `bert` is a folder of sentence-transformers, with `modules.json`, the embedder gets its
    pooling and its normalization. With `position_encoding="input"` the embeddings are then those of
    that model.

    Args:
        bert: As in `DietBertBackbone.from_bert`.
        position_encoding: As in `DietBertBackbone.from_bert`. Defaults to `"diet_abs"`.
        preprocessor: As in the class. Its tokenizer knows the id of `[CLS]`. Defaults to `None`.
        pooling_mode: As in the class. Defaults to `None`, which means that of the folder, or
            `"mean"` if the folder does not say it.
        normalize: As in the class. Defaults to `None`, which means that of the folder, or `True` if
            the folder does not say it.
        **kwargs: Other arguments of `DietBertBackbone.from_bert`.

    Returns:
        A `DietBertTextEmbedder`.

    Raises:
        ValueError: If the folder has a pooling or a module that the class does not have, or as in
            `DietBertBackbone.from_bert` and in the class.

    Example:

    ```python
    bert = keras_hub.models.BertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    embedder = keras_diet.models.DietBertTextEmbedder.from_bert(bert, pooling_mode="cls")
    ```

    References:
     - [Reimers and Gurevych, 2019](https://aclanthology.org/D19-1410/)
    """
    options = {"pooling_mode": pooling_mode, "normalize": normalize}
    options = {name: value for name, value in options.items() if value is not None}
    if is_hugging_face_folder(bert) and (Path(bert) / "modules.json").is_file():
        options = {**_read_pooling(bert), **options}
    backbone = _backbone(cls, bert, position_encoding, preprocessor, False, **kwargs)
    return cls(backbone, preprocessor, **options)


def _read_pooling(folder: Any) -> Config:
    """Return the pooling and the normalization of a folder of sentence-transformers."""
    modules = {m["type"].split(".")[-1]: m["path"] for m in read_json(folder, "modules.json")}
    for name in modules:
        validation.choice("type in modules.json", name, ("Transformer", "Pooling", "Normalize"))
    path = f"{modules['Pooling']}/config.json"
    config, prefix = read_json(folder, path), "pooling_mode_"
    # Older versions have a flag for each pooling. Several vectors are joined.
    flags = [name for name, is_on in config.items() if name.startswith(prefix) and is_on]
    modes = config.get("pooling_mode", [name.removeprefix(prefix) for name in flags])
    mode = modes if isinstance(modes, str) else "+".join(modes)
    mode = _POOLING.get(mode, mode)
    validation.choice(f"pooling_mode in {path}", mode, tuple(_POOLING.values()))
    return {"pooling_mode": mode, "normalize": "Normalize" in modules}


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


def _names_of_classes(checkpoint: Checkpoint) -> list[str] | None:
    """Return the names in `id2label`, or `None` if Hugging Face has made them up."""
    id2label = checkpoint.config.get("id2label") or {}
    labels = {int(i): str(label) for i, label in id2label.items()}
    names = [labels[i] for i in sorted(labels)]
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        return None
    return None if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else names
