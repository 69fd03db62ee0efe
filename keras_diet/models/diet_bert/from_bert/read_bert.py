"""A BERT or its tokenizer from KerasHub or Hugging Face, as our model or its arguments."""

import os
from typing import Any

import keras
from keras_hub.models import BertBackbone, BertTokenizer

from keras_diet import _compat
from keras_diet.models.diet_bert.from_bert import hugging_face, transformers_model
from keras_diet.models.diet_bert.from_bert.checkpoint import (
    Checkpoint,
    read_arguments,
    set_weights,
)
from keras_diet.types import Config

_ARGUMENTS = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "dropout",
    "max_sequence_length",
    "num_segments",
)
_AT_INPUT = {"position_encoding": "input", "segment_encoding": "input"}


def read_bert(
    backbone_class: type[keras.Model], bert: Any
) -> tuple[keras.Model, int | None, keras.DTypePolicy | None]:
    """Return a backbone with the weights and outputs of a BERT, and what is known about the BERT.

    Args:
        backbone_class: `DietBertBackbone`.
        bert: As in `DietBertBackbone.from_bert`.

    Returns:
        A tuple of three. First, the backbone, with positions and segments at its input. Second, the
        id of `[CLS]`, or `None` without a vocabulary. Third, the dtype policy of the BERT, or
        `None` for Hugging Face's weights, which are always read in float32.

    Raises:
        ValueError: If `bert` is something else, or a checkpoint that cannot be read.
    """
    checkpoint = read_checkpoint(bert)
    if checkpoint is not None:
        is_folder = isinstance(bert, (str, os.PathLike))
        cls_token_id = hugging_face.read_cls_token_id(bert) if is_folder else None
        arguments = read_arguments(checkpoint.config, checkpoint.source)
        backbone = backbone_class(**arguments, **_AT_INPUT, dtype="float32")
        set_weights(backbone, checkpoint)
        return backbone, cls_token_id, None
    if not isinstance(bert, (str, os.PathLike)):
        tokenizer = getattr(getattr(bert, "preprocessor", None), "tokenizer", None)
        backbone = copy_bert(backbone_class, bert)
        return backbone, getattr(tokenizer, "cls_token_id", None), backbone.dtype_policy
    backbone = copy_bert(backbone_class, _load_preset(BertBackbone, bert))
    cls_token_id = _cls_token_id_of_preset(bert, backbone.vocabulary_size)
    return backbone, cls_token_id, backbone.dtype_policy


def read_checkpoint(bert: Any) -> Checkpoint | None:
    """Return the configuration and the weights of Hugging Face's BERT. `None` for other values.

    Args:
        bert: A folder or a model of Hugging Face's `transformers`, or anything else.
    """
    if isinstance(bert, (str, os.PathLike)):
        return hugging_face.read_checkpoint(bert) if hugging_face.is_checkpoint(bert) else None
    if transformers_model.is_of_transformers(bert):
        return transformers_model.read_checkpoint(bert)
    return None


def copy_bert(backbone_class: type[keras.Model], bert: Any) -> keras.Model:
    """Return KerasHub's BERT as a backbone with the same weights in the same order.

    Args:
        backbone_class: `DietBertBackbone`.
        bert: A `keras_hub.models.BertBackbone`, or a task with one.
    """
    backbone = getattr(bert, "backbone", bert)
    if not isinstance(backbone, BertBackbone):
        raise ValueError(
            "`bert` must be a `keras_hub.models.BertBackbone`, a task with one, the address of a "
            "preset of one, a BERT of `transformers`, or a folder with Hugging Face's BERT. "
            f"Received: bert={bert!r}"
        )
    copy = backbone_class(
        **{name: getattr(backbone, name) for name in _ARGUMENTS},
        **_AT_INPUT,
        dtype=backbone.dtype_policy,
    )
    if len(backbone.weights) != len(copy.weights):
        raise ValueError(
            "`bert` must not be quantized or have LoRA. "
            f"Received: {len(backbone.weights)} weights in {backbone.name}, where BERT has "
            f"{len(copy.weights)}. Convert it before `quantize` and `enable_lora`."
        )
    copy.set_weights(backbone.get_weights())
    return copy


def read_tokenizer(bert: Any) -> Config:
    """Return the arguments with which `DietBertTokenizer` is the tokenizer of a BERT.

    Args:
        bert: As in `DietBertTokenizer.from_bert`.

    Raises:
        ValueError: If `bert` is something else, or has no vocabulary that fits.
    """
    if isinstance(bert, (str, os.PathLike)):
        if hugging_face.is_checkpoint(bert):
            return hugging_face.read_tokenizer(bert)
        bert = _load_preset(BertTokenizer, bert)
    if transformers_model.is_of_transformers(bert):
        raise ValueError(
            "`bert` must be a folder if it is a tokenizer of Hugging Face. Received: "
            f"{type(bert).__name__}. Save the model and its tokenizer with `save_pretrained` in "
            "one folder, and pass the folder."
        )
    if not isinstance(bert, BertTokenizer):
        raise ValueError(
            "`bert` must be a `keras_hub.models.BertTokenizer`, the address of a preset of one, or "
            f"a folder with Hugging Face's BERT. Received: bert={bert!r}"
        )
    config = bert.get_config()
    names = [
        *("lowercase", "strip_accents", "split", "suffix_indicator", "oov_token"),
        *("special_tokens_in_strings", "sequence_length"),
    ]
    return {
        "vocabulary": bert.get_vocabulary(),
        "split_on_cjk": bert.split_on_cjk,
        **{name: config[name] for name in names},
    }


def _load_preset(preset_class: Any, address: str | os.PathLike[str]) -> Any:
    """Return the backbone or the tokenizer in a preset of KerasHub's BERT."""
    try:
        return preset_class.from_preset(str(address))
    except (ValueError, OSError) as error:
        raise ValueError(
            "`bert` must be the address of a preset of "
            f"`keras_hub.models.{preset_class.__name__}`, or a folder with the config.json, "
            "model.safetensors and vocabulary of Hugging Face's BERT. "
            f"Received: bert={str(address)!r}, which KerasHub cannot load: {error}"
        ) from error


def _cls_token_id_of_preset(address: str | os.PathLike[str], vocabulary_size: int) -> int | None:
    if not _compat.check_file_exists(str(address), "tokenizer.json"):
        # A preset of a backbone alone.
        return None
    tokenizer = _load_preset(BertTokenizer, address)
    hugging_face.check_vocabulary_fits(tokenizer.vocabulary_size(), vocabulary_size, address)
    return tokenizer.cls_token_id
