"""`BiasedTransformerEncoder` and `BiasedTransformerDecoder` against the reference and KerasHub."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers import (
    BiasedMultiHeadAttention,
    BiasedTransformerDecoder,
    BiasedTransformerEncoder,
    DietDecoder,
    DietEncoder,
    LinformerMultiHeadAttention,
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
    once,
    randomize,
    to_numpy,
)

BATCH, LENGTH, SOURCE, NUM_HEADS, HIDDEN, SOURCE_DIM, INTERMEDIATE = 2, 5, 7, 3, 6, 10, 11
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])
SOURCE_VALID = np.array([[True] * 7, [True] * 4 + [False] * 3])
PADDINGS = {"padding_mask": VALID, "encoder_padding_mask": SOURCE_VALID}
MASK = VALID[:, None] & (np.random.default_rng(5).random((BATCH, LENGTH, LENGTH)) < 0.7)
MASK |= np.eye(LENGTH, dtype="bool")
CAUSAL = np.tri(LENGTH, dtype="bool")
PADDING = VALID[:, None, None]
# Call arguments, and the mask that they mean to the reference.
MASKS = {
    "unmasked": ({}, None),
    "mask": ({"attention_mask": MASK}, MASK[:, None]),
    "keys": ({"attention_mask": VALID[:, None]}, PADDING),
    "padding": ({"padding_mask": VALID.astype("int32")}, PADDING),
    "all": (
        {"attention_mask": MASK, "use_causal_mask": True, "padding_mask": VALID},
        MASK[:, None] & CAUSAL & PADDING,
    ),
}
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


def own_attention(kind, **kwargs):
    """A custom attention layer."""
    if kind == "shaw":
        return RelativeMultiHeadAttention(NUM_HEADS, 2, max_distance=3, **kwargs)
    if kind == "linformer":
        return LinformerMultiHeadAttention(NUM_HEADS, 2, LENGTH, 4, **kwargs)
    return None


# === Encoder ===


@norms
@pytest.mark.parametrize(
    "masks, kind",
    [
        *((masks, None) for masks in ("unmasked", "all")),
        *once(*((masks, None) for masks in ("mask", "keys", "padding"))),
        *(("padding", kind) for kind in ("shaw", "linformer")),
    ],
)
def test_encoder_equals_reference(rng, masks, kind, normalize_first):
    x, bias = encoder_inputs(rng)
    # Keras's "gelu" is the exact one.
    kwargs = {"normalize_first": normalize_first, "layer_norm_epsilon": 0.3}
    block = encoder_block(rng, **kwargs, self_attention=own_attention(kind))
    bias = bias[..., :4] if kind == "linformer" else bias
    bias = None if masks == "keys" else bias
    arguments, mask = MASKS[masks]
    weights = block_weights(block)
    options = {"activation": reference.gelu_exact, "epsilon": 0.3}
    expected = reference.encoder_block(
        *(x, weights, NUM_HEADS, bias, mask), normalize_first=normalize_first, **options
    )
    assert_close(block(x, attention_bias=bias, **arguments), expected)
    if kind is None:
        output, scores = block(x, attention_bias=bias, return_attention_scores=True, **arguments)
        assert_close(output, expected)
        if normalize_first:
            x = reference.layer_norm(
                x, weights["attention_norm_gamma"], weights["attention_norm_beta"], 0.3
            )
        _, expected = reference.multi_head_attention(
            *(x, x, weights["attention"]), bias=bias, mask=mask, return_scores=True
        )
        assert_close(scores, expected)


@norms
@pytest.mark.parametrize("masks", ["mask", "padding"])
def test_without_bias_equals_keras_hub(rng, masks, normalize_first):
    x, _ = encoder_inputs(rng)
    arguments = {"dropout": 0.5, "activation": "relu", "normalize_first": normalize_first}
    arguments |= {"layer_norm_epsilon": 1e-5}
    theirs = keras_hub.layers.TransformerEncoder(INTERMEDIATE, NUM_HEADS, **arguments)
    theirs.build(x.shape)
    ours = encoder_block(rng, **arguments)
    # Both create their sublayers in the order in which they are applied.
    ours.set_weights(randomize(theirs, rng).get_weights())
    mask = {"mask": {"attention_mask": MASK}, "padding": {"padding_mask": VALID}}[masks]
    assert_close(ours(x, **mask), theirs(x, **mask), 1e-6)


@any_backend
def test_weights(rng):
    weights = {weight.path.split("/", 1)[1]: weight.shape for weight in encoder_block(rng).weights}
    head_dim = HIDDEN // NUM_HEADS
    projections = {"kernel": (HIDDEN, NUM_HEADS, head_dim), "bias": (NUM_HEADS, head_dim)}
    norms_of = ("self_attention_layer_norm", "feedforward_layer_norm")
    assert weights == {
        **{
            f"self_attention/{name}/{weight}": shape
            for name in ("query", "key", "value")
            for weight, shape in projections.items()
        },
        "self_attention/attention_output/kernel": (NUM_HEADS, head_dim, HIDDEN),
        "self_attention/attention_output/bias": (HIDDEN,),
        **{f"{name}/{weight}": (HIDDEN,) for name in norms_of for weight in ("gamma", "beta")},
        "feedforward_intermediate_dense/kernel": (HIDDEN, INTERMEDIATE),
        "feedforward_intermediate_dense/bias": (INTERMEDIATE,),
        "feedforward_output_dense/kernel": (INTERMEDIATE, HIDDEN),
        "feedforward_output_dense/bias": (HIDDEN,),
    }


@any_backend
@norms
@pytest.mark.parametrize("returns_scores", [False, True])
def test_keras_mask_is_obeyed_and_goes_on(rng, returns_scores, normalize_first):
    x, bias = encoder_inputs(rng)
    x = np.where(VALID[..., None], x, 0).astype("float32")
    block = encoder_block(rng, normalize_first=normalize_first)
    masked = keras.layers.Masking()(x)
    outputs = block(masked, attention_bias=bias, return_attention_scores=returns_scores)
    output = outputs[0] if returns_scores else outputs
    expected = block(x, attention_bias=bias, attention_mask=VALID[:, None])
    assert_close(to_numpy(output)[VALID], to_numpy(expected)[VALID])
    for tensor in (masked, output):
        np.testing.assert_array_equal(to_numpy(get_keras_mask(tensor)), VALID)


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
    "kind, arguments, policies",
    [
        (None, {"attention_mask": MASK, "return_attention_scores": True}, ()),
        (None, {"use_causal_mask": True}, HALF_POLICIES),
        pytest.param("shaw", {"padding_mask": VALID}, (), marks=any_backend),
        pytest.param("linformer", {"return_attention_scores": True}, (), marks=any_backend),
    ],
)
def test_encoder_as_a_layer(rng, kind, arguments, policies):
    x, bias = encoder_inputs(rng)
    kwargs = ARGUMENTS
    if kind is not None:
        initializer = keras.initializers.RandomNormal(stddev=0.3, seed=1)
        attention = own_attention(kind, name="own", kernel_initializer=initializer)
        kwargs = {**ARGUMENTS, "self_attention": attention}
    check_layer(
        BiasedTransformerEncoder(
            INTERMEDIATE, NUM_HEADS, normalize_first=kind is None and not policies, **kwargs
        ),
        x,
        attention_bias=bias[..., :4] if kind == "linformer" else bias,
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


def decode(block, target, memory, sizes, padding_mask=None):
    """The outputs of steps of these sizes, one after the other."""
    outputs, start = [], 0
    for size in sizes:
        step = target[:, start : start + size]
        output, memory = block(step, memory=memory, start_index=start, padding_mask=padding_mask)
        outputs.append(to_numpy(output))
        start += size
    return np.concatenate(outputs, axis=1)


@norms
@pytest.mark.parametrize("kind", ["biased", "shaw"])
def test_decoder_equals_reference(rng, kind, normalize_first):
    attentions = {}
    if kind == "shaw":
        attentions = {
            "self_attention": RelativeMultiHeadAttention(NUM_HEADS, 2, max_distance=3),
            "cross_attention": RelativeMultiHeadAttention(NUM_HEADS, 4, max_distance=5),
        }
    options = {"normalize_first": normalize_first}
    block = decoder_block(rng, activation="tanh", layer_norm_epsilon=0.3, **attentions, **options)
    target, source, biases = decoder_inputs(rng)
    weights = decoder_block_weights(block)
    expected = reference.decoder_block(
        *(target, source, weights, *biases.values(), PADDING, SOURCE_VALID[:, None, None]),
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
    if not (normalize_first or attentions):
        _, expected_scores = reference.multi_head_attention(
            *(target, target, weights["attention"]),
            bias=biases["attention_bias"],
            mask=PADDING & CAUSAL,
            return_scores=True,
        )
        assert_close(scores, expected_scores)
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
    assert_close(decode(block, targets, memory, sizes), expected)


def test_scores_and_padding_of_a_step(rng):
    block, (target, source, _) = decoder_block(rng), decoder_inputs(rng)
    options = {"padding_mask": VALID, "return_attention_scores": True}
    output, scores, cross_scores = block(target, source, **options)
    memory = block.start_memory(BATCH, LENGTH, source)
    _, memory = block(target[:, :3], memory=memory, padding_mask=VALID)
    step = block(target[:, 3:], memory=memory, start_index=3, **options)
    assert_close(step[0], output[:, 3:])
    assert_close(step[1], scores[:, :, 3:])
    assert_close(step[2], cross_scores[:, :, 3:])
    # The symbolic outputs have the same shapes.
    symbolic = keras.tree.map_structure(
        lambda x: keras.KerasTensor(x.shape, dtype=keras.backend.standardize_dtype(x.dtype)),
        (target[:, 3:], memory),
    )
    spec = block.compute_output_spec(symbolic[0], memory=symbolic[1], return_attention_scores=True)
    keras.tree.assert_same_structure(spec, step)
    shapes = [[tuple(x.shape) for x in keras.tree.flatten(outputs)] for outputs in (spec, step)]
    assert shapes[0] == shapes[1]


def test_keras_masks_are_paddings(rng):
    block, (target, source, _) = decoder_block(rng), decoder_inputs(rng)
    expected = block(target, source, **PADDINGS)
    target, source = map(keras.ops.convert_to_tensor, (target, source))
    set_keras_mask(target, keras.ops.convert_to_tensor(VALID))
    set_keras_mask(source, keras.ops.convert_to_tensor(SOURCE_VALID))
    output = block(target, source)
    assert_close(output, expected, 1e-6)
    for tensor, mask in [(target, VALID), (source, SOURCE_VALID), (output, VALID)]:
        assert np.array_equal(to_numpy(get_keras_mask(tensor)), mask)
    # A step reads none: it would have a value for each token of the step, not of the memory.
    memory = block.start_memory(BATCH, LENGTH, source)
    step = keras.ops.convert_to_tensor(to_numpy(target)[:, :1])
    expected, _ = block(step, memory=memory)
    set_keras_mask(step, keras.ops.convert_to_tensor(np.array([[True], [False]])))
    assert_close(block(step, memory=memory)[0], expected, 1e-6)


@pytest.mark.parametrize("returns_scores, policies", [(False, HALF_POLICIES), (True, ())])
def test_decoder_as_a_layer(rng, returns_scores, policies):
    attention = BiasedMultiHeadAttention(NUM_HEADS, 4, name="cross_attention")
    block = BiasedTransformerDecoder(
        INTERMEDIATE, NUM_HEADS, normalize_first=True, cross_attention=attention, **ARGUMENTS
    )
    target, source, biases = decoder_inputs(rng)
    check_layer(
        *(block, target, source),
        **biases,
        **PADDINGS,
        return_attention_scores=returns_scores,
        zero_gradient=["key/bias"],
        policies=policies,
    )
