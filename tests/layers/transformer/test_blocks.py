"""What the contract of stacks does not say of their blocks: arguments, dropout, saving."""

import functools

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    BiasedMultiHeadAttention,
    BiasedTransformerDecoder,
    BiasedTransformerEncoder,
    RelativeMultiHeadAttention,
    RelativePositionBias,
    ScoreTerms,
)
from tests import reference
from tests.helpers import (
    assert_close,
    block_weights,
    check_config,
    norm_weights,
    normal,
    once,
    randomize,
    to_numpy,
)
from tests.layers.diet_decoders import PADDINGS, SOURCE_VALID, VALID

BATCH, LENGTH, SOURCE, NUM_HEADS, HIDDEN, SOURCE_DIM, INTERMEDIATE = 2, 5, 7, 3, 6, 10, 11
MASK = VALID[:, None] & (np.random.default_rng(5).random((BATCH, LENGTH, LENGTH)) < 0.7)
MASK |= np.eye(LENGTH, dtype="bool")
CAUSAL = np.tri(LENGTH, dtype="bool")
PADDING = VALID[:, None, None]
any_backend = pytest.mark.any_backend
# No argument has its default value.
ARGUMENTS = {
    "normalize_first": True,
    "dropout": 0.3,
    "activation": "tanh",
    "layer_norm_epsilon": 1e-4,
    "kernel_initializer": keras.initializers.RandomNormal(stddev=0.3, seed=1),
    "bias_initializer": "ones",
    "activation_dropout": 0.1,
    "attention_dropout": 0.2,
    "recompute_attention": True,
    **{"gated": True, "use_bias": False, "normalization": "rms_norm", "normalize_inputs": False},
    "head_dim": 6,
    "name": "block",
}


def encoder_block(rng, **kwargs):
    block = BiasedTransformerEncoder(INTERMEDIATE, NUM_HEADS, **kwargs)
    block.build((BATCH, LENGTH, HIDDEN))
    return randomize(block, rng)


def encoder_inputs(rng):
    return normal(rng, BATCH, LENGTH, HIDDEN), normal(rng, BATCH, NUM_HEADS, LENGTH, LENGTH)


def decoder_block(rng, **kwargs):
    block = BiasedTransformerDecoder(INTERMEDIATE, NUM_HEADS, **kwargs)
    block.build((BATCH, LENGTH, HIDDEN), (BATCH, SOURCE, SOURCE_DIM))
    return randomize(block, rng, 0.6)


def decoder_inputs(rng):
    """Target, source, and a bias for each attention sublayer."""
    biases = {
        "attention_bias": normal(rng, BATCH, NUM_HEADS, LENGTH, LENGTH),
        "cross_attention_bias": normal(rng, BATCH, NUM_HEADS, LENGTH, SOURCE),
    }
    return normal(rng, BATCH, LENGTH, HIDDEN), normal(rng, BATCH, SOURCE, SOURCE_DIM), biases


# === Encoder ===


def test_arguments_of_an_encoder_are_terms(rng):
    """`test_stacks.py` compares blocks, which get terms there, with the reference."""
    (x, bias), block = encoder_inputs(rng), encoder_block(rng)
    expected = block(x, score_terms=ScoreTerms(bias, (), VALID, MASK, is_causal=True))
    masks = {"attention_mask": MASK.astype("int32"), "padding_mask": VALID}
    arguments = {"attention_bias": bias, "use_causal_mask": True, **masks}
    assert_close(block(x, **arguments), expected)
    output, scores = block(x, return_attention_scores=True, **arguments)
    assert_close(output, expected)
    assert_close(to_numpy(scores).sum(axis=-1), np.ones((BATCH, NUM_HEADS, LENGTH)))
    mask = MASK[:, None] & CAUSAL & PADDING
    assert not to_numpy(scores)[~np.broadcast_to(mask, scores.shape)].any()


@any_backend
@pytest.mark.parametrize("rate, expected", [(None, 0.3), (0.0, 0.0), (0.2, 0.2)])
def test_dropout_of_probabilities(rng, rate, expected):
    """Without a rate of its own, attention has the rate of the sublayers."""
    block = encoder_block(rng, dropout=0.3, attention_dropout=rate)
    assert block.self_attention.dropout == expected
    assert block.self_attention_dropout.rate == block.feedforward_dropout.rate == 0.3
    plan = block.self_attention.plan(ScoreTerms(padding_mask=VALID), (2, 5, 6), training=True)
    assert plan.program == ("scores" if expected else "kernel")


SUBLAYERS = ("self_attention", "cross_attention", "feedforward")


@any_backend
@pytest.mark.parametrize(
    "make, name",
    [*(("decoder", name) for name in SUBLAYERS), *(("encoder", name) for name in SUBLAYERS[::2])],
)
def test_dropout_drops_each_sublayer(rng, make, name):
    """In training only, with the dropout of the other sublayers turned off."""
    target, source, biases = decoder_inputs(rng)
    if make == "encoder":
        block = encoder_block(rng, dropout=0.5)
        call = functools.partial(block, target)
    else:
        block = decoder_block(rng, dropout=0.5)
        call = functools.partial(block, target, source, **biases)
    for attention in SUBLAYERS[:2]:
        if hasattr(block, attention):
            getattr(block, attention).dropout_layer.rate = 0.0
            getattr(block, f"{attention}_dropout").rate = 0.0
    block.feedforward_dropout.rate = 0.0
    getattr(block, f"{name}_dropout").rate = 0.5
    outputs = [to_numpy(call(training=training)) for training in (True, True, False, None)]
    assert np.abs(outputs[0] - outputs[2]).max() > 1e-2, f"{name} drops nothing in training"
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-2, "each step drops other outputs"
    assert_close(outputs[3], outputs[2], 1e-6)


@any_backend
@pytest.mark.parametrize("normalize_first", [False, True])
def test_dropout_leaves_the_residual(rng, normalize_first):
    x, bias = encoder_inputs(rng)
    block = encoder_block(rng, dropout=0.5, normalize_first=normalize_first)
    for layer in (block.self_attention_dropout, block.feedforward_dropout):
        layer.call = lambda inputs, training: inputs * 0.0 if training else inputs
    expected = x
    if not normalize_first:
        weights = block_weights(block)
        for name in ("attention_norm", "output_norm"):
            gamma, beta = weights[f"{name}_gamma"], weights[f"{name}_beta"]
            expected = reference.layer_norm(expected, gamma, beta, 1e-12)
    assert_close(block(x, attention_bias=bias, training=True), expected)


@pytest.mark.parametrize(
    "normalization", ["rms_norm", *once("layer_norm", "layer_norm_without_beta")]
)
def test_normalization_in_half_precision(rng, normalization):
    """Squares of these numbers overflow in float16, and means of them lose digits."""
    block = encoder_block(rng, normalization=normalization, dtype="float16")
    x = (300 * normal(rng, BATCH, LENGTH, HIDDEN)).astype("float16")
    layer = block.feedforward_layer_norm
    assert [weight.name for weight in layer.weights][1:] == ["beta"] * (
        normalization == "layer_norm"
    )
    function = reference.rms_norm if normalization == "rms_norm" else reference.layer_norm
    expected = function(x, *norm_weights("", layer).values(), 1e-12)
    assert_close(layer(x), expected, 2e-3)


@any_backend
@pytest.mark.parametrize("gated", [False, True])
def test_activation_dropout_drops_the_hidden_units_only(rng, gated):
    x, _ = encoder_inputs(rng)
    # At this rate, no unit is kept.
    block = encoder_block(rng, activation_dropout=0.999999, gated=gated)
    dropped = block(x, training=True)
    kernel = block.feedforward_output_dense.kernel
    kernel.assign(np.zeros(kernel.shape))
    assert_close(dropped, block(x))


# === Decoder ===


def test_arguments_of_a_decoder_are_terms(rng):
    block, (target, source, biases) = decoder_block(rng), decoder_inputs(rng)
    terms = ScoreTerms(biases["attention_bias"], padding_mask=VALID, is_causal=True)
    cross_terms = ScoreTerms(biases["cross_attention_bias"], padding_mask=SOURCE_VALID)
    expected = block(target, source, score_terms=terms, cross_score_terms=cross_terms)
    assert_close(block(target, source, **biases, **PADDINGS), expected)
    integers = {name: mask.astype("int32") for name, mask in PADDINGS.items()}
    output, scores, cross_scores = block(
        target, source, **biases, **integers, return_attention_scores=True
    )
    assert_close(output, expected)
    assert not to_numpy(scores)[~np.broadcast_to(PADDING & CAUSAL, scores.shape)].any()
    assert_close(to_numpy(cross_scores).sum(axis=-1), np.ones((BATCH, NUM_HEADS, LENGTH)))
    assert not to_numpy(cross_scores)[1, ..., 4:].any()


@any_backend
def test_score_terms_have_the_position_of_a_step(rng):
    """For the memory, the mask, and the biases of both attention layers."""
    block = decoder_block(rng)
    target, source, _ = decoder_inputs(rng)
    bias, cross_bias = (RelativePositionBias(NUM_HEADS, 11) for _ in range(2))
    for layer in (bias, cross_bias):
        layer.build()
        randomize(layer, rng)
    biases = {"attention_bias": bias, "cross_attention_bias": cross_bias}
    expected = to_numpy(block(target, source, **biases))
    memory = block.start_memory(BATCH, LENGTH, source)
    _, memory = block(target[:, :3], memory=memory, **biases)
    terms = {"score_terms": ScoreTerms(bias, is_causal=True, start_index=3)}
    step, _ = block(target[:, 3:], memory=memory, cross_attention_bias=cross_bias, **terms)
    assert_close(step, expected[:, 3:])


@any_backend
def test_configurations():
    own = RelativeMultiHeadAttention(NUM_HEADS, 2, max_distance=4)
    cross = BiasedMultiHeadAttention(NUM_HEADS, 4)
    for block in (
        BiasedTransformerEncoder(INTERMEDIATE, NUM_HEADS, self_attention=own, **ARGUMENTS),
        BiasedTransformerDecoder(INTERMEDIATE, NUM_HEADS, cross_attention=cross, **ARGUMENTS),
    ):
        check_config(block)
