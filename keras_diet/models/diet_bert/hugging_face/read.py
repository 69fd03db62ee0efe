"""From a trained encoder of Hugging Face to a backbone with the same outputs."""

import os
from typing import Any

import keras

from keras_diet.models.diet_bert.hugging_face.architectures import ARCHITECTURES, type_of
from keras_diet.models.diet_bert.hugging_face.checkpoint import Checkpoint, read_checkpoint
from keras_diet.models.diet_bert.hugging_face.weights import set_weights
from keras_diet.types import DType


def read_backbone(
    cls: type[keras.Model],
    source: str | os.PathLike[str] | Any,
    *,
    dropout: float | None = None,
    attention_implementation: str = "auto",
    recompute: str = "none",
    dtype: DType = None,
    name: str | None = None,
    trainable: bool | None = None,
) -> Any:
    """Build a backbone with the weights and the outputs of a trained encoder of Hugging Face.

    The `model_type` of its configuration chooses the arguments, e.g. `"roberta"`, `"mpnet"`,
    `"modernbert"` or `"t5"`, of which only the encoder is read. The page on
    trained encoders lists all types.

    Args:
        source: A folder with `config.json` and `model.safetensors`, which may be divided into
            several files, or a model of `transformers`.
        dropout: float or `None`. As in the class. Defaults to `None`, which means that of the
            configuration.
        attention_implementation: As in the class. Defaults to `"auto"`.
        recompute: As in the class. Defaults to `"none"`.
        dtype: As in the class. Defaults to `None`.
        name: As in the class.
        trainable: As in the class.

    Returns:
        A `DietBertBackbone`.

    Raises:
        ValueError: If `source` is something else; if its type is unknown; if its configuration
            lacks a size, or has a value that the backbone does not compute; if weights are missing
            or left over; or if the folder has no weights in the format of safetensors.

    Example:

    ```python
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )
    backbone = keras_diet.models.DietBertBackbone.from_hugging_face(transformers.BertModel(config))
    ```
    """
    checkpoint = read_checkpoint(source)
    if checkpoint is None:
        raise ValueError(
            "`source` must be a folder with Hugging Face's `config.json` and `model.safetensors`, "
            f"or a model of `transformers`. Received: source={source!r}. For a preset, call "
            "`from_preset`."
        )
    arguments = {
        "attention_implementation": attention_implementation,
        "recompute": recompute,
        "dtype": dtype,
        "name": name,
        "trainable": trainable,
    }
    if dropout is not None:
        arguments["dropout"] = dropout
    return backbone_of_checkpoint(cls, checkpoint, **arguments)


def backbone_of_checkpoint(cls: type[keras.Model], checkpoint: Checkpoint, **arguments: Any) -> Any:
    """Return the backbone of a checkpoint. Arguments replace those of its configuration."""
    model_type = type_of(checkpoint.config)
    architecture = ARCHITECTURES[model_type]
    of_config = architecture.backbone_arguments(checkpoint.config, checkpoint.source)
    backbone = cls(**{**of_config, **arguments})
    set_weights(backbone, checkpoint, architecture)
    backbone.hugging_face_type = model_type
    return backbone
