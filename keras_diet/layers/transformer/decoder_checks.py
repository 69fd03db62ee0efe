"""Checks of the arguments of decoders and of their calls."""

import numbers
from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.attention.input_checks import check_masks
from keras_diet.layers.attention.key_memory import memory_length
from keras_diet.layers.transformer.attention_arguments import takes_score_terms
from keras_diet.layers.transformer.encoder_checks import check_float
from keras_diet.types import Tensor


def check_attention(name: str, attention: keras.layers.Layer | None) -> None:
    """Raise a `ValueError` if a decoder cannot use a custom attention layer."""
    if attention is None:
        return
    if not takes_score_terms(attention) or not attention.takes_projected_keys:
        raise ValueError(
            f"`{name}` must derive from `BiasedMultiHeadAttention`, and may not project keys along "
            "the sequence, as Linformer does: a projected key mixes all tokens, also later ones. "
            f"Received: {name}={attention}. Use another attention layer or position encoding."
        )


def check_bias(bias: keras.layers.Layer) -> None:
    """Raise a `ValueError` if a decoder cannot use a bias layer."""
    if not callable(getattr(bias, "rows", None)):
        raise ValueError(
            "A decoder needs bias layers with a method `rows(query, key, start_index)`, because "
            "decoding begins at any position and a source has another length than its target. "
            f"Received: {bias}. Add the method, or derive the layer from "
            "`keras_diet.layers.PositionBias`."
        )


def lengths_of_keys(inputs: Tensor, encoder_outputs: Tensor | None, memory: Any) -> Any:
    """Return the number of keys of self-attention and of cross-attention.

    Args:
        inputs: Target `(B, T, hidden_dim)`.
        encoder_outputs: Source, or `None` with a memory.
        memory: Memory of a block, or `None`.
    """
    if encoder_outputs is not None:
        return inputs.shape[1], encoder_outputs.shape[1]
    return tuple(map(memory_length, memory))


def check_source(encoder_outputs: Tensor | None, memory: Any) -> None:
    """Raise a `ValueError` unless the source is given in one way."""
    if (encoder_outputs is None) == (memory is None):
        received = "neither" if memory is None else "both"
        raise ValueError(
            "A decoder needs either `encoder_outputs` or a `memory`, which holds the keys and "
            f"values of the source. Received: {received}. Pass the output of an encoder, or a "
            "memory that `start_memory` returned."
        )


def check_tensors(
    decoder: Any,
    inputs: Tensor,
    encoder_outputs: Tensor | None,
    memory: Any,
    padding_mask: Any,
    encoder_padding_mask: Any,
) -> None:
    """Raise a `ValueError` unless target, source, memory and masks fit each other.

    Args:
        decoder: The block, or a stack of such blocks.
        inputs: Target `(B, T, hidden_dim)`.
        encoder_outputs: Source, or `None` with a memory.
        memory: Memory of a block, or `None`.
        padding_mask: Mask of the target, or `None`.
        encoder_padding_mask: Mask of the source, or `None`.
    """
    check_float(inputs)
    batch_size, length = inputs.shape[:2]
    if memory is None:
        check_source_tensor(encoder_outputs, batch_size)
    else:
        _check_memory_batch(inputs, memory)
    masks = {"padding_mask": padding_mask, "encoder_padding_mask": encoder_padding_mask}
    key_lengths = lengths_of_keys(inputs, encoder_outputs, memory)
    for (name, mask), key_length in zip(masks.items(), key_lengths, strict=True):
        check_masks((batch_size, decoder.num_heads, length, key_length), **{name: mask})


def check_source_tensor(encoder_outputs: Any, batch_size: Any = None) -> None:
    """Raise a `ValueError` unless the source is a batch of vectors, one for each token."""
    shape: Any = getattr(encoder_outputs, "shape", ())
    dtype = getattr(encoder_outputs, "dtype", None)
    if len(shape) != 3 or not keras.backend.is_float_dtype(dtype):
        rule = "be floating point numbers of shape (batch_size, source_length, source_dim)"
        remedy = "Pass the output of an encoder."
    elif batch_size != 1 and shape[0] != 1 and _differ(batch_size, shape[0]):
        rule = f"have the batch size of the inputs, {batch_size}"
        remedy = "Pass one source for each target."
    else:
        return
    kind = type(encoder_outputs).__name__
    if dtype is not None:
        kind = f"dtype={keras.backend.standardize_dtype(dtype)}, shape={tuple(shape)}"
    raise ValueError(f"`encoder_outputs` must {rule}. Received: {kind}. {remedy}")


def _check_memory_batch(inputs, memory):
    num_targets = memory[0][0].shape[0]
    if _differ(inputs.shape[0], num_targets):
        raise ValueError(
            f"`inputs` must have one target for each of the {num_targets} targets of the memory. "
            f"Received: inputs.shape={tuple(inputs.shape)}. Pass another `batch_size` to "
            "`start_memory`."
        )


def _differ(size, other):
    """Return whether two sizes are known and differ."""
    return isinstance(size, int) and isinstance(other, int) and size != other


def check_step(inputs: Tensor, memory: Any, start_index: Any) -> None:
    """Raise a `ValueError` if the inputs do not fit into the memory.

    Args:
        inputs: Tensor `(B, T, hidden_dim)`.
        memory: Memory of a block, or `None`.
        start_index: int or scalar tensor. Whether a tensor fits is not checked.
    """
    if not isinstance(start_index, numbers.Integral):
        validation.start_index(start_index)
        if memory is None:
            raise ValueError(_index_without_memory(start_index))
        return
    if memory is None:
        if start_index != 0:
            raise ValueError(_index_without_memory(start_index))
        return
    length, end = memory_length(memory[0]), start_index + (inputs.shape[1] or 0)
    if start_index < 0 or (length is not None and end > length):
        raise ValueError(
            "The inputs must fit into the memory, at positions from 0 on. Received: "
            f"start_index={start_index}, inputs.shape={tuple(inputs.shape)}, and a memory of "
            f"{length} positions. Start a memory with a larger `length`."
        )


def _index_without_memory(start_index):
    return (
        "`start_index` needs a `memory` with the tokens before it. Received: "
        f"start_index={start_index}, memory=None. Pass a memory, or leave `start_index` at 0."
    )


def check_start(decoder: Any, batch_size: Any, length: Any, encoder_outputs: Tensor) -> None:
    """Raise a `ValueError` if a memory of these sizes cannot be made."""
    if not decoder.built:
        raise ValueError(
            "A memory needs the weights of the decoder. Received: built=False. Call the decoder or "
            "its `build` first."
        )
    validation.positive_int("length", length)
    check_source_tensor(encoder_outputs)
    num_sources = ops.shape(encoder_outputs)[0]
    if isinstance(batch_size, int) and isinstance(num_sources, int) and batch_size % num_sources:
        raise ValueError(
            "`batch_size` must be a multiple of the number of sources. Received: "
            f"batch_size={batch_size}, encoder_outputs.shape={tuple(encoder_outputs.shape)}. Pass "
            "the number of targets."
        )


# Arguments of `DietEncoder` that a decoder does not have, with the reason.
_ENCODER_ARGUMENTS = {
    "projection_dim": "a projected key of Linformer mixes all tokens, also later ones",
    "segment_encoding": "a decoder has no segments",
    "num_segments": "a decoder has no segments",
}


def check_decoder_arguments(arguments: dict[str, Any]) -> None:
    """Raise a `ValueError` for arguments that only `DietEncoder` has."""
    for name, reason in _ENCODER_ARGUMENTS.items():
        if name in arguments:
            raise ValueError(
                f"`DietDecoder` has no argument `{name}`: {reason}. Received: "
                f"{name}={arguments[name]!r}. Leave it out."
            )


def check_decoder_call(
    decoder: Any,
    inputs: Tensor,
    encoder_outputs: Tensor | None,
    padding_mask: Tensor | None,
    encoder_padding_mask: Tensor | None,
    memory: Any,
    start_index: Any,
) -> None:
    """Raise a `ValueError` for arguments of a call that a `DietDecoder` cannot use."""
    check_source(encoder_outputs, memory)
    masks = (padding_mask, encoder_padding_mask)
    if memory is None:
        check_step(inputs, None, start_index)
        check_tensors(decoder, inputs, encoder_outputs, None, *masks)
        check_lengths(decoder, ops.shape(inputs)[1], encoder_outputs)
        return
    if len(memory.target) != decoder.num_layers:
        raise ValueError(
            "`memory` must come from this decoder. Received: a memory of "
            f"{len(memory.target)} layers for num_layers={decoder.num_layers}. Call `start_memory` "
            "of this decoder."
        )
    if encoder_padding_mask is not None:
        raise ValueError(
            "A memory holds the padding of the source. Received: `encoder_padding_mask` with a "
            "`memory`. Pass the mask to `start_memory`."
        )
    check_step(inputs, memory.of_block(0), start_index)
    check_tensors(decoder, inputs, None, memory.of_block(0), *masks)


def check_lengths(decoder: Any, length: Any, encoder_outputs: Tensor) -> None:
    """Raise a `ValueError` if the target or the source has more positions than the decoder."""
    limit = decoder.max_sequence_length
    validation.length_within(length, limit, "max_sequence_length", "target")
    if decoder.cross_position_biases:
        source_length = ops.shape(encoder_outputs)[1]
        validation.length_within(source_length, limit, "max_sequence_length", "source")
