"""Checks of the arguments of `DietEncoder` and of its call."""

from typing import Any

from keras import ops

from keras_diet import validation
from keras_diet.types import Tensor


def check_segment_encoding(segment_encoding: str, projection_dim: int | None) -> None:
    """Raise a `ValueError` for segments per head with projected keys."""
    if projection_dim is not None and segment_encoding == "per-head":
        raise ValueError(
            "With `projection_dim`, `segment_encoding` must be 'input' or 'none', because a "
            f"projected key has no segment. Received: projection_dim={projection_dim}, "
            f"segment_encoding={segment_encoding!r}. Pass segment_encoding='input'."
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
    if segment_ids is not None and any(
        None not in sizes and len(set(sizes)) > 1
        for sizes in zip(segment_ids.shape, inputs.shape[:2], strict=False)
    ):
        raise ValueError(
            "`segment_ids` must have the shape (batch_size, length) of the inputs. Received: "
            f"segment_ids.shape={tuple(segment_ids.shape)}, inputs.shape={tuple(inputs.shape)}. "
            "Pass one id for each token."
        )
    validation.length_within(
        ops.shape(inputs)[1], encoder.max_sequence_length, "max_sequence_length"
    )
