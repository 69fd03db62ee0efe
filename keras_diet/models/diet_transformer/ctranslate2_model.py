"""Writes a translator as a CTranslate2 model."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_diet._backend import float32_array
from keras_diet.layers.attention.relative_multi_head_attention import RelativeMultiHeadAttention

_ENCODINGS = ("sinusoidal", "shaw", "input", "none")
# Keras's functions, and the names in `ctranslate2.specs.Activation`.
_ACTIVATIONS: dict[Callable[..., Any], str] = {
    keras.activations.relu: "RELU",
    keras.activations.gelu: "GELU",
    keras.activations.silu: "SWISH",
}


def write_ctranslate2_model(translator: keras.Model, folder: str | os.PathLike[str]) -> None:
    """Write a `DietTransformerSeq2SeqLM` to a folder. Its method documents arguments and errors."""
    from ctranslate2 import specs

    backbone, tokenizer = translator.backbone, translator.preprocessor.tokenizer
    _check_can_be_written(backbone)
    spec = specs.TransformerSpec.from_config(
        backbone.num_layers,
        backbone.num_heads,
        with_relative_position=backbone.position_encoding == "shaw",
        pre_norm=backbone.normalize_first,
        activation=getattr(specs.Activation, _ACTIVATIONS[backbone.activation]),
    )
    _set_encoder(spec.encoder, backbone)
    _set_decoder(spec.decoder, backbone)
    _set_vocabulary(spec, tokenizer)
    spec.config.layer_norm_epsilon = backbone.encoder.layer_norm_epsilon
    spec.validate()
    # Weights with equal values, such as the embeddings, are stored once.
    spec.optimize()
    Path(folder).mkdir(parents=True, exist_ok=True)
    spec.save(os.fspath(folder))
    tokenizer.save_assets(folder)


def _check_can_be_written(backbone):
    """Raise a `ValueError` if CTranslate2 cannot compute the same as the backbone."""
    encoding = backbone.position_encoding
    remedy = ""
    if encoding not in _ENCODINGS:
        received = f"position_encoding={encoding!r}"
        remedy = f"Only {', '.join(map(repr, _ENCODINGS))} can be written. Use `generate`."
    elif encoding == "shaw" and backbone.cross_attention_positions:
        received = "position_encoding='shaw', cross_attention_positions=True"
        remedy = "Train a model with `cross_attention_positions=False`."
    elif backbone.activation not in _ACTIVATIONS:
        received = f"activation={keras.activations.serialize(backbone.activation)!r}"
        names = ", ".join(repr(function.__name__) for function in _ACTIVATIONS)
        remedy = f"Only {names} can be written."
    elif any("int" in weight.dtype for weight in backbone.weights):
        received = "quantized weights"
        remedy = (
            "Write the model before `quantize`, and let CTranslate2 quantize it: "
            "`ctranslate2.Translator(folder, compute_type='int8')`."
        )
    if remedy:
        raise ValueError(f"CTranslate2 cannot compute this model. Received: {received}. {remedy}")


# === Weights ===


def _set_encoder(spec, backbone):
    _set_inputs(spec, spec.embeddings[0], backbone, backbone.encoder_input_encoding)
    _set_stack(spec, backbone.encoder)


def _set_decoder(spec, backbone):
    _set_inputs(spec, spec.embeddings, backbone, backbone.decoder_input_encoding)
    _set_stack(spec, backbone.decoder)
    spec.projection.weight = spec.embeddings.weight
    for block_spec, block in zip(spec.layer, backbone.decoder.transformer_layers, strict=True):
        attention = block.cross_attention
        keys_and_values = [attention.key_dense, attention.value_dense]
        _set_linear(block_spec.attention.linear[0], [attention.query_dense])
        _set_linear(block_spec.attention.linear[1], keys_and_values)
        _set_linear(block_spec.attention.linear[2], [attention.output_dense])
        _set_layer_norm(block_spec.attention.layer_norm, block.cross_attention_layer_norm)


def _set_inputs(spec, embeddings_spec, backbone, input_encoding):
    """Set the embeddings, and positions that are added to them."""
    embeddings_spec.weight = float32_array(backbone.token_embedding.embeddings)
    if backbone.position_encoding == "shaw":
        return
    # Positions only, because the tokens are zeros. Without positions, zeros.
    positions = np.zeros((1, backbone.max_sequence_length, backbone.hidden_dim), "float32")
    if input_encoding is not None:
        positions = float32_array(input_encoding(positions))
    spec.position_encodings.encodings = positions[0]


def _set_stack(spec, stack):
    """Set what encoder and decoder have in common."""
    if stack.normalize_first:
        _set_layer_norm(spec.layer_norm, stack.output_layer_norm)
    for block_spec, block in zip(spec.layer, stack.transformer_layers, strict=True):
        attention_spec, attention = block_spec.self_attention, block.self_attention
        projections = [attention.query_dense, attention.key_dense, attention.value_dense]
        _set_linear(attention_spec.linear[0], projections)
        _set_linear(attention_spec.linear[1], [attention.output_dense])
        _set_layer_norm(attention_spec.layer_norm, block.self_attention_layer_norm)
        if isinstance(attention, RelativeMultiHeadAttention):
            attention_spec.relative_position_keys = float32_array(attention.key_embedding)
            attention_spec.relative_position_values = float32_array(attention.value_embedding)
        _set_linear(block_spec.ffn.linear_0, [block.feedforward_intermediate_dense])
        _set_linear(block_spec.ffn.linear_1, [block.feedforward_output_dense])
        _set_layer_norm(block_spec.ffn.layer_norm, block.feedforward_layer_norm)


def _set_linear(spec, layers):
    """Set the weights of dense layers of the same inputs, as one layer."""
    biases = [float32_array(layer.bias) for layer in layers]
    kernels = [float32_array(layer.kernel) for layer in layers]
    spec.bias = np.concatenate([bias.reshape(-1) for bias in biases])
    # The heads are axes of their own in kernels and biases of attention layers.
    matrices = [kernel.reshape(-1, bias.size) for kernel, bias in zip(kernels, biases, strict=True)]
    spec.weight = np.concatenate(matrices, axis=1).T


def _set_layer_norm(spec, layer):
    spec.gamma, spec.beta = float32_array(layer.gamma), float32_array(layer.beta)


# === Vocabulary ===


def _set_vocabulary(spec, tokenizer):
    """Set the names of the tokens, and what CTranslate2 adds to sources and targets."""
    tokens = tokenizer.get_vocabulary()
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.unk_token = tokenizer.unk_token
    spec.config.bos_token = spec.config.decoder_start_token = tokenizer.start_token
    spec.config.eos_token = tokenizer.end_token
    spec.config.add_source_eos = True
