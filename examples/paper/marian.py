"""Marian models of `transformers`, for tests and benchmarks: how to make one, and how to read it.

Published Marian models have a bias of the logits, and two SentencePiece models with a vocabulary of
their own. `DietTransformerSeq2SeqLM` has neither, so the reader is not in the library.
"""

import numpy as np

from keras_diet.models import DietTransformerBackbone


def make_marian(arguments, tokenizer):
    """Return a new Marian model of the sizes that `examples/paper/translate.py` has as options."""
    import transformers

    config = transformers.MarianConfig(
        vocab_size=tokenizer.vocabulary_size(),
        d_model=arguments.hidden_dim,
        encoder_layers=arguments.num_layers,
        decoder_layers=arguments.num_layers,
        encoder_attention_heads=arguments.num_heads,
        decoder_attention_heads=arguments.num_heads,
        encoder_ffn_dim=arguments.intermediate_dim,
        decoder_ffn_dim=arguments.intermediate_dim,
        dropout=arguments.dropout,
        attention_dropout=arguments.dropout,
        activation_dropout=arguments.dropout,
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=arguments.sequence_length,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.end_token_id,
        forced_eos_token_id=None,
        decoder_start_token_id=tokenizer.start_token_id,
    )
    return transformers.MarianMTModel(config)


def read_marian(model):
    """Return the `DietTransformerBackbone` that computes the same as a `MarianMTModel`."""
    config = model.config
    assert config.scale_embedding
    assert config.share_encoder_decoder_embeddings
    assert config.encoder_layers == config.decoder_layers
    assert not model.final_logits_bias.any()
    backbone = DietTransformerBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.encoder_layers,
        num_heads=config.encoder_attention_heads,
        hidden_dim=config.d_model,
        intermediate_dim=config.encoder_ffn_dim,
        max_sequence_length=config.max_position_embeddings,
        position_encoding="sinusoidal",
        normalize_first=False,
        activation={"swish": "silu"}.get(config.activation_function, config.activation_function),
        layer_norm_epsilon=1e-5,
    )
    units = order_of_units(config.d_model)
    embeddings = model.model.shared.weight.detach().numpy()
    backbone.token_embedding.set_weights([embeddings[:, units]])
    stacks = {"encoder": ["self_attn"], "decoder": ["self_attn", "encoder_attn"]}
    for stack, attentions in stacks.items():
        blocks = getattr(backbone, stack).transformer_layers
        for block, layer in zip(blocks, getattr(model.model, stack).layers, strict=True):
            _set_block(block, layer, attentions, units)
    return backbone


def order_of_units(size):
    """Return Marian's index of each hidden unit.

    Position `i` has `sin(i f_k)` and `cos(i f_k)` for the same frequencies `f_k` in both models.
    Marian has all sines and then all cosines. KerasHub alternates them. All weights are permuted
    in the same way, so the models compute the same.
    """
    return np.arange(size).reshape(2, -1).T.reshape(-1)


def _set_block(block, layer, attentions, units):
    keras_names = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}
    for name in attentions:
        attention, marian = getattr(block, keras_names[name]), getattr(layer, name)
        for side in ("query", "key", "value"):
            projection = getattr(marian, f"{side[0]}_proj")
            _set_dense(getattr(attention, f"{side}_dense"), projection, inputs=units)
        _set_dense(attention.output_dense, marian.out_proj, outputs=units)
        layer_norm = getattr(block, f"{keras_names[name]}_layer_norm")
        _set_layer_norm(layer_norm, getattr(layer, f"{name}_layer_norm"), units)
    _set_dense(block.feedforward_intermediate_dense, layer.fc1, inputs=units)
    _set_dense(block.feedforward_output_dense, layer.fc2, outputs=units)
    _set_layer_norm(block.feedforward_layer_norm, layer.final_layer_norm, units)


def _set_dense(dense, linear, inputs=slice(None), outputs=slice(None)):
    kernel = linear.weight.detach().numpy().T[inputs][:, outputs]
    bias = linear.bias.detach().numpy()[outputs]
    dense.set_weights([kernel.reshape(dense.kernel.shape), bias.reshape(dense.bias.shape)])


def _set_layer_norm(layer_norm, marian, units):
    layer_norm.set_weights([each.detach().numpy()[units] for each in (marian.weight, marian.bias)])
