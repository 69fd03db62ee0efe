"""`BiasedTransformerEncoder` and `BiasedTransformerDecoder` against the reference and KerasHub."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    BiasedMultiHeadAttention,
    BiasedTransformerDecoder,
    BiasedTransformerEncoder,
    DietDecoder,
    DietEncoder,
    RelativeMultiHeadAttention,
    ScoreTerms,
)
from tests import reference
from tests.helpers import (
    HALF_POLICIES,
    assert_close,
    block_weights,
    check_layer,
    decoder_block_weights,
    randomize,
    to_numpy,
)
from tests.layers.diet_decoders import decode

BATCH, LENGTH, SOURCE, NUM_HEADS, HIDDEN, SOURCE_DIM, INTERMEDIATE = 2, 5, 7, 3, 6, 10, 11
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])
SOURCE_VALID = np.array([[True] * 7, [True] * 4 + [False] * 3])
PADDINGS = {"padding_mask": VALID, "encoder_padding_mask": SOURCE_VALID}
MASK = VALID[:, None] & (np.random.default_rng(5).random((BATCH, LENGTH, LENGTH)) < 0.7)
MASK |= np.eye(LENGTH, dtype="bool")
CAUSAL = np.tri(LENGTH, dtype="bool")
PADDING = VALID[:, None, None]
norms = pytest.mark.parametrize("normalize_first", [False, True], ids=["post_norm", "pre_norm"])
any_backend = pytest.mark.any_backend
# No argument has its default value.
ARGUMENTS = {
    "dropout": 0.3,
    "activation": "tanh",
    "layer_norm_epsilon": 1e-4,
    "kernel_initializer": keras.initializers.RandomNormal(stddev=0.3, seed=1),
    "bias_initializer": "ones",
    "activation_dropout": 0.1,
    "recompute_attention": True,
    "name": "block",
}


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


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


@norms
def test_encoder_equals_reference(rng, normalize_first):
    x, bias = encoder_inputs(rng)
    # Keras's "gelu" is the exact one.
    block = encoder_block(rng, normalize_first=normalize_first, layer_norm_epsilon=0.3)
    masks = {"attention_mask": MASK.astype("int32"), "padding_mask": VALID}
    arguments = {"attention_bias": bias, "use_causal_mask": True, **masks}
    mask = MASK[:, None] & CAUSAL & PADDING
    expected = reference.encoder_block(
        *(x, block_weights(block), NUM_HEADS, bias, mask),
        normalize_first=normalize_first,
        activation=reference.gelu_exact,
        epsilon=0.3,
    )
    assert_close(block(x, **arguments), expected)
    output, scores = block(x, return_attention_scores=True, **arguments)
    assert_close(output, expected)
    assert_close(to_numpy(scores).sum(axis=-1), np.ones((BATCH, NUM_HEADS, LENGTH)))
    assert not to_numpy(scores)[~np.broadcast_to(mask, scores.shape)].any()
    terms = ScoreTerms(bias, (), VALID, MASK, is_causal=True)
    assert_close(block(x, score_terms=terms), expected)


@any_backend
@norms
def test_dropout_drops_each_sublayer(rng, normalize_first):
    """With all outputs of the sublayers dropped, what is left is the residual."""
    x, bias = encoder_inputs(rng)
    block = encoder_block(rng, dropout=0.5, normalize_first=normalize_first)
    outputs = [to_numpy(block(x, training=training)) for training in (None, True, True)]
    assert min(np.abs(outputs[i] - outputs[i - 1]).max() for i in range(3)) > 1e-2
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
    "arguments, policies",
    [
        ({"attention_mask": MASK, "return_attention_scores": True}, ()),
        ({"use_causal_mask": True}, HALF_POLICIES),
    ],
)
def test_encoder_as_a_layer(rng, arguments, policies):
    x, bias = encoder_inputs(rng)
    attention = RelativeMultiHeadAttention(NUM_HEADS, 2, max_distance=4, name="own")
    kwargs = {} if policies else {"normalize_first": True, "self_attention": attention}
    check_layer(
        *(BiasedTransformerEncoder(INTERMEDIATE, NUM_HEADS, **ARGUMENTS, **kwargs), x),
        attention_bias=bias,
        **arguments,
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=policies,
    )


# At this rate, no unit is kept.
ALL = 0.999999
STACK = {"num_layers": 2, "num_heads": 3, "intermediate_dim": 11, "max_sequence_length": 9}
MAKE = {
    "encoder block": lambda **kwargs: BiasedTransformerEncoder(11, 3, **kwargs),
    "decoder block": lambda **kwargs: BiasedTransformerDecoder(11, 3, **kwargs),
    "encoder": lambda **kwargs: DietEncoder(**STACK, **kwargs),
    "decoder": lambda **kwargs: DietDecoder(**STACK, **kwargs),
}


@any_backend
@pytest.mark.parametrize("name", MAKE)
def test_activation_dropout_drops_the_hidden_units_only(name, rng):
    x = normal(rng, 2, 5, 6)
    inputs = (x, 2 * x) if "decoder" in name else (x,)
    layer = MAKE[name](activation_dropout=ALL, bias_initializer="random_normal")
    dropped, whole = layer(*inputs, training=True), layer(*inputs, training=False)
    plain = MAKE[name]()
    plain(*inputs)
    plain.set_weights(layer.get_weights())
    assert_close(plain(*inputs, training=True), whole)
    for weight in plain.weights:
        if "feedforward_output_dense/kernel" in weight.path:
            weight.assign(np.zeros(weight.shape))
    assert_close(dropped, plain(*inputs, training=False))
    assert np.abs(to_numpy(dropped) - to_numpy(whole)).max() > 0.01


# === Decoder ===


@norms
def test_decoder_equals_reference(rng, normalize_first):
    options = {"normalize_first": normalize_first}
    block = decoder_block(rng, activation="tanh", layer_norm_epsilon=0.3, **options)
    target, source, biases = decoder_inputs(rng)
    expected = reference.decoder_block(
        *(target, source, decoder_block_weights(block), *biases.values()),
        *(PADDING, SOURCE_VALID[:, None, None]),
        epsilon=0.3,
        activation=np.tanh,
        **options,
    )
    assert_close(block(target, source, **biases, **PADDINGS), expected)
    integers = {name: mask.astype("int32") for name, mask in PADDINGS.items()}
    output, scores, cross_scores = block(
        target, source, **biases, **integers, return_attention_scores=True
    )
    assert_close(output, expected)
    assert not to_numpy(scores)[~np.broadcast_to(PADDING & CAUSAL, scores.shape)].any()
    assert_close(to_numpy(cross_scores).sum(axis=-1), np.ones((BATCH, NUM_HEADS, LENGTH)))
    assert not to_numpy(cross_scores)[1, ..., 4:].any()
    terms = ScoreTerms(biases["attention_bias"], padding_mask=VALID, is_causal=True)
    cross_terms = ScoreTerms(biases["cross_attention_bias"], padding_mask=SOURCE_VALID)
    found = block(target, source, score_terms=terms, cross_score_terms=cross_terms)
    assert_close(found, expected)


@pytest.mark.parametrize(
    "sizes", [(2, 3), pytest.param((1, 1, 1, 1, 1), marks=any_backend)], ids=str
)
def test_steps_equal_the_full_pass(rng, sizes):
    """Also with values of another size than keys, and two targets for each source."""
    block = decoder_block(
        rng,
        normalize_first=True,
        self_attention=BiasedMultiHeadAttention(NUM_HEADS, 2, value_dim=5),
        cross_attention=RelativeMultiHeadAttention(NUM_HEADS, 4, max_distance=5),
    )
    target, source, _ = decoder_inputs(rng)
    targets = np.concatenate([target, normal(rng, *target.shape)])
    memory = block.start_memory(2 * BATCH, LENGTH + 2, source)
    expected = block(targets, np.repeat(source, 2, axis=0))
    assert_close(decode(block, targets, memory, sizes)[0], expected)


def test_decoder_as_a_layer(rng):
    attention = BiasedMultiHeadAttention(NUM_HEADS, 4, name="cross_attention")
    block = BiasedTransformerDecoder(
        INTERMEDIATE, NUM_HEADS, normalize_first=True, cross_attention=attention, **ARGUMENTS
    )
    target, source, biases = decoder_inputs(rng)
    check_layer(
        *(block, target, source),
        **biases,
        **PADDINGS,
        return_attention_scores=True,
        zero_gradient=["key/bias"],
        policies=(),
    )
