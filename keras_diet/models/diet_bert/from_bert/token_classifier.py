"""From a BERT to a `DietBertTokenClassifier`, with the head and the class names of Hugging Face."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_diet.models.diet_bert.from_bert.head import convert_backbone, make_classifier
from keras_diet.models.diet_bert.from_bert.read_bert import read_checkpoint
from keras_diet.types import Activation


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
    return make_classifier(
        cls,
        convert_backbone(cls, bert, position_encoding, preprocessor, False, **kwargs),
        read_checkpoint(bert),
        "ForTokenClassification",
        num_classes,
        class_names,
        preprocessor=preprocessor,
        activation=activation,
    )
