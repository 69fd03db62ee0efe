"""The parts of a model that the analyses read."""

from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np

from keras_diet._arrays import float32_array
from keras_diet.layers import DietEncoder

if TYPE_CHECKING:
    from keras_diet.models import DietBertBackbone


def as_diet_bert(model: keras.Model) -> "DietBertBackbone":
    """Return the `DietBertBackbone` of a model. KerasHub's BERT is copied into a new one.

    Args:
        model: A `DietBertBackbone`, a `keras_hub.models.BertBackbone`, or a task with one of them.
    """
    # The analysis of a `DietEncoder` does not need KerasHub.
    from keras_diet.models import DietBertBackbone
    from keras_diet.models.diet_bert.from_bert.convert import copy_bert

    backbone = getattr(model, "backbone", model)
    if isinstance(backbone, DietBertBackbone):
        return backbone
    return copy_bert(DietBertBackbone, backbone)


class EncoderParts(NamedTuple):
    """An encoder, the layer that adds embeddings to its input (if any), and the hidden size."""

    encoder: DietEncoder
    input_encoding: keras.layers.Layer | None
    hidden_dim: int


def encoder_parts(model: keras.Model | DietEncoder) -> EncoderParts:
    """Return the encoder of a model and what surrounds it.

    Args:
        model: As in `as_diet_bert`, or a built `DietEncoder`.
    """
    if not isinstance(model, DietEncoder):
        backbone = as_diet_bert(model)
        return EncoderParts(backbone.encoder, backbone.input_encoding, backbone.hidden_dim)
    hidden_dim = model.transformer_layers[0].self_attention.query_dense.kernel.shape[0]
    return EncoderParts(model, model.input_encoding, hidden_dim)


def input_positions(parts: EncoderParts, length: int) -> np.ndarray | None:
    """Return the position embeddings `(length, hidden_dim)` at the input, or `None`."""
    encoding = parts.input_encoding
    if encoding is None or encoding.position_embedding is None:
        return None
    shape = (1, length, parts.hidden_dim)
    embeddings = encoding.position_embedding(np.zeros(shape, dtype="float32"))
    return np.broadcast_to(float32_array(embeddings), shape)[0]
