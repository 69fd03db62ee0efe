import keras
import keras_hub
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask
from keras_diet.layers import (
    BiasedTransformerEncoder,
    LinformerMultiHeadAttention,
    RelativeMultiHeadAttention,
)
from tests import reference
from tests.helpers import (
    HALF_POLICIES,
    assert_close,
    block_weights,
    check_layer,
    randomize,
    to_numpy,
)

BATCH, LENGTH, NUM_HEADS, HIDDEN, INTERMEDIATE = 2, 5, 3, 6, 11
SCORES = (BATCH, NUM_HEADS, LENGTH, LENGTH)
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])
MASK = VALID[:, None] & (np.random.default_rng(5).random((BATCH, LENGTH, LENGTH)) < 0.7)
MASK |= np.eye(LENGTH, dtype="bool")
CAUSAL = np.tri(LENGTH, dtype="bool")
# Call arguments, and the mask that they mean to the reference.
MASKS = {
    "unmasked": ({}, None),
    "mask": ({"attention_mask": MASK}, MASK[:, None]),
    "keys": ({"attention_mask": VALID[:, None]}, VALID[:, None, None]),
    "causal": ({"use_causal_mask": True}, CAUSAL),
    "both": ({"attention_mask": MASK, "use_causal_mask": True}, MASK[:, None] & CAUSAL),
}
norms = pytest.mark.parametrize("normalize_first", [False, True], ids=["post_norm", "pre_norm"])


def make(rng, **kwargs):
    block = BiasedTransformerEncoder(INTERMEDIATE, NUM_HEADS, **kwargs)
    block.build((BATCH, LENGTH, HIDDEN))
    return randomize(block, rng)


def make_inputs(rng):
    x = rng.normal(size=(BATCH, LENGTH, HIDDEN)).astype("float32")
    return x, rng.normal(size=SCORES).astype("float32")


@norms
@pytest.mark.parametrize("masks", MASKS)
def test_equals_reference(rng, masks, normalize_first):
    x, bias = make_inputs(rng)
    bias = None if masks == "keys" else bias
    # Keras's "gelu" is the exact one.
    kwargs = {"normalize_first": normalize_first, "layer_norm_epsilon": 0.3}
    block = make(rng, **kwargs)
    arguments, mask = MASKS[masks]
    expected = reference.encoder_block(
        x,
        block_weights(block),
        NUM_HEADS,
        bias=bias,
        mask=mask,
        normalize_first=normalize_first,
        epsilon=0.3,
        activation=reference.gelu_exact,
    )
    assert_close(block(x, attention_bias=bias, **arguments), expected)


@norms
def test_scores_equal_reference(rng, normalize_first):
    x, bias = make_inputs(rng)
    block = make(rng, normalize_first=normalize_first)
    output, scores = block(
        x, attention_bias=bias, attention_mask=MASK, return_attention_scores=True
    )
    weights = block_weights(block)
    attended = x
    if normalize_first:
        gamma, beta = weights["attention_norm_gamma"], weights["attention_norm_beta"]
        attended = reference.layer_norm(x, gamma, beta, 1e-12)
    _, expected = reference.multi_head_attention(
        attended,
        attended,
        weights["attention"],
        bias=bias,
        mask=MASK[:, None],
        return_scores=True,
    )
    assert_close(scores, expected)
    assert_close(output, block(x, attention_bias=bias, attention_mask=MASK))


@norms
@pytest.mark.parametrize("masks", ["mask", "padding"])
def test_without_bias_equals_keras_hub(rng, masks, normalize_first):
    x, _ = make_inputs(rng)
    arguments = {"dropout": 0.5, "activation": "relu", "normalize_first": normalize_first}
    theirs = keras_hub.layers.TransformerEncoder(
        INTERMEDIATE, NUM_HEADS, layer_norm_epsilon=1e-5, **arguments
    )
    theirs.build(x.shape)
    randomize(theirs, rng)
    ours = make(rng, layer_norm_epsilon=1e-5, **arguments)
    # Both create their sublayers in the order in which they are applied.
    ours.set_weights(theirs.get_weights())
    ours_mask, theirs_masks = {
        "mask": (MASK, {"attention_mask": MASK}),
        "padding": (VALID[:, None], {"padding_mask": VALID}),
    }[masks]
    assert_close(ours(x, attention_mask=ours_mask), theirs(x, **theirs_masks), 1e-6)




def test_weights(rng):
    weights = {weight.path.split("/", 1)[1]: weight.shape for weight in make(rng).weights}
    head_dim = HIDDEN // NUM_HEADS
    attention = {
        f"self_attention/{name}/{weight}": shape
        for name in ("query", "key", "value")
        for weight, shape in [
            ("kernel", (HIDDEN, NUM_HEADS, head_dim)),
            ("bias", (NUM_HEADS, head_dim)),
        ]
    }
    assert weights == {
        **attention,
        "self_attention/attention_output/kernel": (NUM_HEADS, head_dim, HIDDEN),
        "self_attention/attention_output/bias": (HIDDEN,),
        "self_attention_layer_norm/gamma": (HIDDEN,),
        "self_attention_layer_norm/beta": (HIDDEN,),
        "feedforward_layer_norm/gamma": (HIDDEN,),
        "feedforward_layer_norm/beta": (HIDDEN,),
        "feedforward_intermediate_dense/kernel": (HIDDEN, INTERMEDIATE),
        "feedforward_intermediate_dense/bias": (INTERMEDIATE,),
        "feedforward_output_dense/kernel": (INTERMEDIATE, HIDDEN),
        "feedforward_output_dense/bias": (HIDDEN,),
    }




@norms
@pytest.mark.parametrize("return_attention_scores", [False, True])
def test_keras_mask_is_obeyed_and_goes_on(rng, return_attention_scores, normalize_first):
    x, bias = make_inputs(rng)
    x = np.where(VALID[..., None], x, 0).astype("float32")
    block = make(rng, normalize_first=normalize_first)
    outputs = block(
        keras.layers.Masking()(x),
        attention_bias=bias,
        return_attention_scores=return_attention_scores,
    )
    output = outputs[0] if return_attention_scores else outputs
    expected = block(x, attention_bias=bias, attention_mask=VALID[:, None])
    assert_close(to_numpy(output)[VALID], to_numpy(expected)[VALID])
    np.testing.assert_array_equal(to_numpy(get_keras_mask(output)), VALID)




@norms
def test_dropout_drops_each_sublayer(rng, normalize_first):
    """With all outputs of the sublayers dropped, what is left is the residual."""
    x, bias = make_inputs(rng)
    block = make(rng, dropout=0.5, normalize_first=normalize_first)
    for layer in (block.self_attention_dropout, block.feedforward_dropout):
        layer.call = lambda inputs, training: inputs * 0.0 if training else inputs
    expected = x
    if not normalize_first:
        weights = block_weights(block)
        for name in ("attention_norm", "output_norm"):
            gamma, beta = weights[f"{name}_gamma"], weights[f"{name}_beta"]
            expected = reference.layer_norm(expected, gamma, beta, 1e-12)
    assert_close(block(x, attention_bias=bias, training=True), expected)






def own_attention(kind, **kwargs):
    """A custom attention layer that fits into `make`."""
    arguments = {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.3, seed=1)}
    if kind == "shaw":
        return RelativeMultiHeadAttention(NUM_HEADS, 2, 3, **arguments, **kwargs)
    return LinformerMultiHeadAttention(NUM_HEADS, 2, LENGTH, 4, **arguments, **kwargs)


@norms
@pytest.mark.parametrize("kind", ["shaw", "linformer"])
def test_own_attention_equals_reference(rng, kind, normalize_first):
    attention = own_attention(kind)
    block = make(rng, self_attention=attention, normalize_first=normalize_first)
    assert block.self_attention is attention
    x, bias = make_inputs(rng)
    bias = bias if kind == "shaw" else bias[..., :4]
    expected = reference.encoder_block(
        x,
        block_weights(block),
        NUM_HEADS,
        bias=bias,
        mask=VALID[:, None, None],
        normalize_first=normalize_first,
        activation=reference.gelu_exact,
    )
    for padding_mask in (VALID, VALID.astype("int32")):
        output = block(x, attention_bias=bias, padding_mask=padding_mask)
        assert_close(output, expected)


@norms
def test_padding_mask_is_a_mask_of_keys(rng, normalize_first):
    x, bias = make_inputs(rng)
    block = make(rng, normalize_first=normalize_first)
    expected = block(x, attention_bias=bias, attention_mask=MASK & VALID[:, None])
    actual = block(x, attention_bias=bias, attention_mask=MASK, padding_mask=VALID)
    assert_close(actual, expected, 1e-6)


@pytest.mark.parametrize("kind, return_attention_scores", [("shaw", False), ("linformer", True)])
def test_own_attention_as_a_layer(rng, kind, return_attention_scores):
    x, bias = make_inputs(rng)
    block = BiasedTransformerEncoder(
        INTERMEDIATE,
        NUM_HEADS,
        self_attention=own_attention(kind, name="own"),
        name="block",
    )
    check_layer(
        block,
        x,
        attention_bias=bias if kind == "shaw" else bias[..., :4],
        padding_mask=VALID,
        return_attention_scores=return_attention_scores,
        zero_gradient=["key/bias"],
        policies=(),
    )


@pytest.mark.parametrize(
    "normalize_first, return_attention_scores, policies",
    [(True, False, HALF_POLICIES), (False, True, ())],
)
def test_as_a_layer(rng, normalize_first, return_attention_scores, policies):
    x, bias = make_inputs(rng)
    block = BiasedTransformerEncoder(
        INTERMEDIATE,
        NUM_HEADS,
        dropout=0.3,
        activation="tanh",
        layer_norm_epsilon=1e-4,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=1),
        bias_initializer="ones",
        normalize_first=normalize_first,
        name="block",
    )
    check_layer(
        block,
        x,
        attention_bias=bias,
        attention_mask=MASK,
        return_attention_scores=return_attention_scores,
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=policies,
    )


