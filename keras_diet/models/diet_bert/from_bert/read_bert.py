"""A BERT, wherever it comes from, as a `DietBertBackbone` with positions and segments at input."""

from pathlib import Path

from keras_hub.models import BertBackbone, BertTokenizer

from keras_diet import _keras_hub
from keras_diet.models.diet_bert.from_bert import hugging_face, hugging_face_tokenizer

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


def read_bert(backbone_class, bert):
    """Return a backbone with the weights and outputs of a BERT, and what is known of it.

    Args:
        backbone_class: `DietBertBackbone`.
        bert: As in `DietBertBackbone.from_bert`.

    Returns:
        A tuple of the backbone; the id of `[CLS]`, which is `None` where no vocabulary tells it;
        and the dtype policy of the BERT, `None` for a checkpoint, whose weights are read in
        float32 whatever the policy of the model that is made of them.

    Raises:
        ValueError: If `bert` is something else, or a checkpoint that cannot be read.
    """
    if not isinstance(bert, (str, Path)):
        tokenizer = getattr(getattr(bert, "preprocessor", None), "tokenizer", None)
        backbone = copy_bert(backbone_class, bert)
        return backbone, getattr(tokenizer, "cls_token_id", None), backbone.dtype_policy
    if not hugging_face.is_hugging_face_folder(bert):
        backbone = copy_bert(backbone_class, load_preset(BertBackbone, bert))
        cls_token_id = _cls_token_id_of_preset(bert, backbone.vocabulary_size)
        return backbone, cls_token_id, backbone.dtype_policy
    cls_token_id = hugging_face_tokenizer.read_cls_token_id(bert)
    arguments = hugging_face.read_arguments(bert)
    backbone = backbone_class(**arguments, **_AT_INPUT, dtype="float32")
    hugging_face.read_weights(bert, backbone)
    return backbone, cls_token_id, None


def copy_bert(backbone_class, bert):
    """Return KerasHub's BERT as a backbone with the same weights in the same order.

    Args:
        backbone_class: `DietBertBackbone`.
        bert: A `keras_hub.models.BertBackbone`, or a task with one.
    """
    backbone = getattr(bert, "backbone", bert)
    if not isinstance(backbone, BertBackbone):
        raise ValueError(
            "`bert` must be a `keras_hub.models.BertBackbone`, a task with one, the address of a "
            f"preset of one, or a folder with Hugging Face's BERT. Received: bert={bert!r}"
        )
    copy = backbone_class(
        **{name: getattr(backbone, name) for name in _ARGUMENTS},
        **_AT_INPUT,
        dtype=backbone.dtype_policy,
    )
    if len(backbone.weights) != len(copy.weights):
        raise ValueError(
            "The BERT must have its own weights alone, neither LoRA's nor quantized ones. "
            f"Received: {len(backbone.weights)} weights in {backbone.name}, where BERT has "
            f"{len(copy.weights)}"
        )
    copy.set_weights(backbone.get_weights())
    return copy


def load_preset(preset_class, address):
    """Return what a preset of KerasHub's BERT holds: its backbone or its tokenizer."""
    try:
        return preset_class.from_preset(str(address))
    except (ValueError, OSError) as error:
        raise ValueError(
            "`bert` must be the address of a preset of "
            f"`keras_hub.models.{preset_class.__name__}`, or a folder with the config.json, "
            "model.safetensors and vocabulary of Hugging Face's BERT. "
            f"Received: bert={str(address)!r}, which KerasHub does not load: {error}"
        ) from error


def _cls_token_id_of_preset(address, vocabulary_size):
    if not _keras_hub.check_file_exists(str(address), "tokenizer.json"):
        # A preset of a backbone alone.
        return None
    tokenizer = load_preset(BertTokenizer, address)
    hugging_face_tokenizer.check_vocabulary_fits(
        tokenizer.vocabulary_size(), vocabulary_size, address
    )
    return tokenizer.cls_token_id
