"""The layers that a stack makes: blocks, their attention layers, and bias layers."""

from typing import Any

import keras

from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.linformer_multi_head_attention import LinformerMultiHeadAttention
from keras_diet.layers.initializers import fresh
from keras_diet.layers.position.cached_position_bias import CachedPositionBias
from keras_diet.layers.position.position_encoding import EncoderSizes, PositionEncoding
from keras_diet.layers.position.segment_bias import SegmentBias
from keras_diet.layers.transformer.biased_transformer_decoder import BiasedTransformerDecoder
from keras_diet.layers.transformer.biased_transformer_encoder import BiasedTransformerEncoder
from keras_diet.types import DType


def make_attention(
    encoding: PositionEncoding, sizes: EncoderSizes, **kwargs: Any
) -> keras.layers.Layer:
    """Return the attention layer of a block."""
    if encoding.attention is not None:
        return encoding.attention(sizes, **kwargs)
    if encoding.scale is not None:
        kwargs["scale"] = encoding.scale(sizes)
    if sizes.projection_dim is None:
        return BiasedMultiHeadAttention(sizes.num_heads, sizes.head_dim, **kwargs)
    return LinformerMultiHeadAttention(
        sizes.num_heads, sizes.head_dim, sizes.max_length, sizes.projection_dim, **kwargs
    )


def make_position_biases(
    encoding: PositionEncoding,
    sizes: EncoderSizes,
    sharing: str | None,
    cached: bool,
    dtype: DType,
    prefix: str = "",
) -> list[keras.layers.Layer]:
    """Return the bias layers of a stack: none, one for all its layers, or one for each.

    Their names begin with `prefix`.
    """
    if encoding.bias is None:
        return []
    sharing = sharing or encoding.sharing_modes[0]
    arguments = {"share_heads": sharing == "head-wise", "dtype": dtype}
    names = [f"{prefix}position_bias_{i}" for i in range(sizes.num_layers)]
    if sharing == "layer-wise":
        names = [f"{prefix}position_bias"]
    biases = [encoding.bias(sizes, name=name, **arguments) for name in names]
    return [CachedPositionBias.like(bias) for bias in biases] if cached else biases


def make_segment_biases(
    num_layers: int, num_heads: int, num_segments: int, dtype: DType
) -> list[SegmentBias]:
    """Return the segment bias of each layer."""
    return [
        SegmentBias(num_heads, num_segments, dtype=dtype, name=f"segment_bias_{i}")
        for i in range(num_layers)
    ]


def make_encoder_block(stack: Any, index: int, sizes: EncoderSizes) -> BiasedTransformerEncoder:
    """Return block number `index` of a `DietEncoder`."""
    arguments = _arguments_of_layers(stack)
    return BiasedTransformerEncoder(
        **_arguments_of_block(stack, index),
        self_attention=make_attention(stack.encoding, sizes, name="self_attention", **arguments),
        **arguments,
    )


def make_decoder_block(
    stack: Any, index: int, sizes: EncoderSizes, cross_sizes: EncoderSizes
) -> BiasedTransformerDecoder:
    """Return block number `index` of a `DietDecoder`."""
    arguments = _arguments_of_layers(stack)
    attention = make_attention(stack.encoding, sizes, name="self_attention", **arguments)
    cross_attention = make_attention(
        stack.cross_encoding, cross_sizes, name="cross_attention", **arguments
    )
    return BiasedTransformerDecoder(
        **_arguments_of_block(stack, index),
        self_attention=attention,
        cross_attention=cross_attention,
        **arguments,
    )


def _arguments_of_layers(stack):
    return {
        "dropout": stack.dropout,
        "kernel_initializer": fresh(stack.kernel_initializer),
        "bias_initializer": fresh(stack.bias_initializer),
        "dtype": stack.dtype_policy,
    }


def _arguments_of_block(stack, index):
    return {
        "intermediate_dim": stack.intermediate_dim,
        "num_heads": stack.num_heads,
        "activation": stack.activation,
        "layer_norm_epsilon": stack.layer_norm_epsilon,
        "normalize_first": stack.normalize_first,
        "activation_dropout": stack.activation_dropout,
        "recompute_attention": stack.recompute == "attention",
        "name": f"transformer_layer_{index}",
    }
