"""Checks of the arguments of `DietEncoder` and of its call."""

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.attention.input_checks import check_masks
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.types import Tensor

_SEGMENT_ENCODINGS = ("per-head", "input", "none")


def check_encoder_arguments(
    position_encoding: str | keras.layers.Layer, segment_encoding: str, projection_dim: int | None
) -> None:
    """Raise a `ValueError` for an unknown segment encoding, or one that projected keys exclude."""
    # Not every position encoding works with projected keys.
    find_position_encoding(position_encoding, projection_dim=projection_dim)
    validation.choice("segment_encoding", segment_encoding, _SEGMENT_ENCODINGS)
    if projection_dim is not None and segment_encoding == "per-head":
        raise ValueError(
            "With `projection_dim`, `segment_encoding` must be 'input' or 'none', because a "
            f"projected key has no segment. Received: projection_dim={projection_dim}, "
            f"segment_encoding={segment_encoding!r}. Pass segment_encoding='input'."
        )


def check_is_tensor(inputs: Any) -> None:
    """Raise a `ValueError` for inputs of a model in the place of one tensor."""
    if isinstance(inputs, (Mapping, list, tuple)):
        raise ValueError(
            "`inputs` must be a tensor of shape (batch_size, length, hidden_dim). Received: "
            f"{type(inputs).__name__}. Pass the embeddings of the tokens, or call a "
            "`DietBertBackbone` with token ids."
        )


def check_call(
    encoder: Any,
    inputs: Tensor,
    segment_ids: Tensor | None,
    attention_mask: Tensor | None,
    use_causal_mask: bool,
) -> None:
    """Raise a `ValueError` for arguments that the encoder would ignore or cannot use."""
    if encoder.projection_dim is not None and (attention_mask is not None or use_causal_mask):
        name = "use_causal_mask" if attention_mask is None else "attention_mask"
        raise ValueError(
            f"`{name}` is not supported with `projection_dim`, because a projected key mixes "
            f"all tokens. Received: {name} with projection_dim={encoder.projection_dim}. Use "
            "`padding_mask` to exclude padding."
        )
    if segment_ids is not None and encoder.segment_encoding == "none":
        raise ValueError(
            "`segment_ids` would be ignored. Received: segment_ids with segment_encoding="
            "'none'. Leave them out, or use segment_encoding='per-head' or 'input'."
        )
    if (
        segment_ids is not None
        and encoder.segment_encoding == "input"
        and not encoder.encode_inputs
    ):
        raise ValueError(
            "`segment_ids` would be ignored. Received: segment_ids with segment_encoding="
            "'input' and encode_inputs=False. Leave them out: the inputs hold the segments."
        )
    if segment_ids is not None:
        validation.shape_of_segment_ids("segment_ids", segment_ids, inputs.shape[:2])
    check_float(inputs)
    validation.length_within(
        ops.shape(inputs)[1], encoder.max_sequence_length, "max_sequence_length"
    )


def check_float(inputs: Tensor) -> None:
    """Raise a `ValueError` unless the inputs are floating point numbers."""
    if not keras.backend.is_float_dtype(inputs.dtype):
        raise ValueError(
            "`inputs` must be floating point numbers. Received: dtype="
            f"{keras.backend.standardize_dtype(inputs.dtype)}. Embed token ids first."
        )


def check_mask_shapes(encoder: Any, inputs: Tensor, attention_mask: Any, padding_mask: Any) -> None:
    """Raise a `ValueError` unless the masks fit the inputs and hold booleans, or 0 and 1."""
    batch_size, length = inputs.shape[:2]
    scores_shape = (batch_size, encoder.num_heads, length, length)
    check_masks(scores_shape, attention_mask, padding_mask=padding_mask)
