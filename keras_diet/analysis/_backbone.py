"""What the analyses read from a model."""

import types

import numpy as np
from keras_hub.models import BertBackbone

from keras_diet._arrays import float32_array
from keras_diet.layers import DietEncoder
from keras_diet.models import DietBertBackbone
from keras_diet.models.diet_bert.from_bert.read_bert import copy_bert


def as_diet_bert(model):
    """Return the `DietBertBackbone` of a model; of KerasHub's BERT, a copy that is one.

    Args:
        model: A `DietBertBackbone`, a `keras_hub.models.BertBackbone`, or a task with one.
    """
    backbone = getattr(model, "backbone", model)
    if isinstance(backbone, DietBertBackbone):
        return backbone
    if not isinstance(backbone, BertBackbone):
        raise ValueError(
            "`backbone` must be a `keras_diet.models.DietBertBackbone`, a "
            "`keras_hub.models.BertBackbone`, or a task with one of them as its `backbone`. "
            f"Received: {type(backbone).__name__}"
        )
    return copy_bert(DietBertBackbone, backbone)


def with_positions(model):
    """Return what has the positions of a model: its `DietBertBackbone`, or the like of an encoder.

    Args:
        model: As in `as_diet_bert`, or a built `DietEncoder`.
    """
    if not isinstance(model, DietEncoder):
        return as_diet_bert(model)
    if not model.built:
        raise ValueError(f"The `DietEncoder` must be built. Received: {model.name!r}")
    names = ("max_sequence_length", "num_layers", "num_heads", "projection_dim")
    names += ("position_encoding", "segment_encoding", "input_encoding")
    return types.SimpleNamespace(
        encoder=model,
        hidden_dim=model.transformer_layers[0].self_attention.query_dense.kernel.shape[0],
        **{name: getattr(model, name) for name in names},
    )


def input_positions(backbone, length):
    """Return the position embeddings `(length, hidden_dim)` at the input, `None` without them."""
    encoding = backbone.input_encoding
    if encoding is None or encoding.position_embedding is None:
        return None
    shape = (1, length, backbone.hidden_dim)
    embeddings = encoding.position_embedding(np.zeros(shape, dtype="float32"))
    return np.broadcast_to(float32_array(embeddings), shape)[0]
