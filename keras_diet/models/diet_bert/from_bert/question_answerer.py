"""From a BERT to a `DietBertQuestionAnswerer`, with the head of Hugging Face."""

from typing import Any

import keras

from keras_diet.models.diet_bert.from_bert.head import convert_backbone
from keras_diet.models.diet_bert.from_bert.read_bert import read_checkpoint


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
    backbone = convert_backbone(cls, bert, position_encoding, preprocessor, False, **kwargs)
    question_answerer = cls(backbone, preprocessor)
    checkpoint = read_checkpoint(bert)
    tensors = {} if checkpoint is None else checkpoint.tensors
    if "qa_outputs.weight" in tensors:
        head = [tensors["qa_outputs.weight"].T, tensors["qa_outputs.bias"]]
        question_answerer.output_dense.set_weights(head)
    return question_answerer
