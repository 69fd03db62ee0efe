"""`BiasedMultiHeadAttention` with a bias; without one, see the tests that end in `_as_keras`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention
from tests import reference
from tests.helpers import (
    assert_close,
    attention_weights,
    gradients,
    randomize,
    to_numpy,
    weighted_sum,
)

BATCH, QUERIES, KEYS, HIDDEN, NUM_HEADS, HEAD_DIM = 2, 5, 7, 6, 3, 2
FULL_SHAPE = (BATCH, NUM_HEADS, QUERIES, KEYS)
BIAS_SHAPES = [
    FULL_SHAPE,
    (1, NUM_HEADS, QUERIES, KEYS),
    (BATCH, 1, QUERIES, KEYS),
    (BATCH, NUM_HEADS, 1, KEYS),
    (BATCH, NUM_HEADS, QUERIES, 1),
    (1, 1, 1, 1),
    (NUM_HEADS, QUERIES, KEYS),
    (NUM_HEADS, 1, KEYS),
    (QUERIES, KEYS),
    (KEYS,),
]
MASK = np.random.default_rng(5).random((BATCH, QUERIES, KEYS)) < 0.6
MASK[:, range(QUERIES), range(QUERIES)] = True
CAUSAL = np.tri(QUERIES, KEYS, dtype="bool")
# Call arguments, and the mask that they mean to the reference.
MASKS = {
    "unmasked": ({}, None),
    "mask": ({"attention_mask": MASK}, MASK[:, None]),
    "keys": ({"attention_mask": MASK[:, :1]}, MASK[:, None, :1]),
    "causal": ({"use_causal_mask": True}, CAUSAL),
    "both": ({"attention_mask": MASK, "use_causal_mask": True}, MASK[:, None] & CAUSAL),
}


def make(rng, **kwargs):
    attention = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM, **kwargs)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    return randomize(attention, rng)


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make_inputs(rng):
    return normal(rng, BATCH, QUERIES, HIDDEN), normal(rng, BATCH, KEYS, HIDDEN)


@pytest.mark.parametrize(
    "bias_shape, masks",
    [(FULL_SHAPE, masks) for masks in MASKS]
    + [(shape, masks) for shape in BIAS_SHAPES[1:] for masks in ("unmasked", "both")],
    ids=str,
)
def test_equals_reference(rng, bias_shape, masks):
    attention = make(rng)
    query, value = make_inputs(rng)
    bias = normal(rng, *bias_shape)
    arguments, mask = MASKS[masks]
    expected, expected_scores = reference.multi_head_attention(
        query, value, attention_weights(attention), bias=bias, mask=mask, return_scores=True
    )
    fused = attention(query, value, attention_bias=bias, **arguments)
    output, scores = attention(
        query, value, attention_bias=bias, return_attention_scores=True, **arguments
    )
    assert_close(fused, expected)
    assert_close(output, expected)
    assert_close(scores, expected_scores)


@pytest.mark.parametrize("return_attention_scores", [False, True])
@pytest.mark.parametrize("kwargs", [{}, {"value_dim": 5}, {"output_shape": 11}], ids=str)
def test_separate_keys_equal_reference(rng, kwargs, return_attention_scores):
    attention = make(rng, **kwargs)
    (query, value), key = make_inputs(rng), normal(rng, BATCH, KEYS, HIDDEN)
    bias = normal(rng, *FULL_SHAPE)
    output = attention(
        query,
        value,
        key,
        attention_bias=bias,
        attention_mask=MASK,
        return_attention_scores=return_attention_scores,
    )
    output = output[0] if return_attention_scores else output
    weights = attention_weights(attention)
    expected = reference.multi_head_attention(
        query, value, weights, key=key, bias=bias, mask=MASK[:, None]
    )
    assert_close(output, expected)


@pytest.mark.parametrize("return_attention_scores", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_scale_equals_reference(rng, biased, return_attention_scores):
    attention = make(rng, scale=1.7)
    query, value = make_inputs(rng)
    bias = normal(rng, *FULL_SHAPE) if biased else None
    weights = {**attention_weights(attention), "scale": 1.7}
    expected = reference.multi_head_attention(query, value, weights, bias=bias)
    output = attention(
        query, value, attention_bias=bias, return_attention_scores=return_attention_scores
    )
    assert_close(output[0] if return_attention_scores else output, expected)


@pytest.mark.parametrize("return_attention_scores", [False, True])
@pytest.mark.parametrize("masks", MASKS)
def test_zero_bias_equals_no_bias(rng, masks, return_attention_scores):
    attention = make(rng)
    arguments = {**MASKS[masks][0], "return_attention_scores": return_attention_scores}
    query, value = make_inputs(rng)
    actual = attention(query, value, attention_bias=np.zeros(FULL_SHAPE, "float32"), **arguments)
    expected = attention(query, value, **arguments)
    keras.tree.map_structure(lambda x, y: assert_close(x, y, 1e-6), actual, expected)


@pytest.mark.parametrize("masks", ["unmasked", "both"])
def test_bias_of_keras_masked_inputs_equals_reference(rng, masks):
    attention = make(rng)
    query, value = make_inputs(rng)
    arguments, mask = MASKS[masks]
    valid = np.array([[True] * 4 + [False] * 3, [True] * 7])
    value = np.where(valid[..., None], value, 0).astype("float32")
    bias = normal(rng, *FULL_SHAPE)
    output = attention(query, keras.layers.Masking()(value), attention_bias=bias, **arguments)
    mask = valid[:, None, None] if mask is None else mask & valid[:, None, None]
    weights = attention_weights(attention)
    assert_close(
        output, reference.multi_head_attention(query, value, weights, bias=bias, mask=mask)
    )


def test_bias_with_sliding_window_and_gate(rng):
    attention = make(rng, sliding_window=2, use_gate=True)
    query, value = make_inputs(rng)
    bias = normal(rng, *FULL_SHAPE)
    distance = np.abs(np.arange(QUERIES)[:, None] - np.arange(KEYS))
    weights = attention_weights(attention)
    gate_kernel, gate_bias = map(to_numpy, attention._gate_dense.weights)
    gate = 1 / (1 + np.exp(-(np.einsum("btd,dhv->bthv", query, gate_kernel) + gate_bias)))
    # The reference without its output projection: the gate comes before that.
    identity = np.eye(NUM_HEADS * HEAD_DIM).reshape(NUM_HEADS, HEAD_DIM, -1)
    heads = reference.multi_head_attention(
        query,
        value,
        {**weights, "output_kernel": identity, "output_bias": np.zeros(NUM_HEADS * HEAD_DIM)},
        bias=bias,
        mask=distance < 2,
    ).reshape(gate.shape)
    kernel = weights["output_kernel"]
    expected = np.einsum("bthv,hvd->btd", heads * gate, kernel) + weights["output_bias"]
    assert_close(attention(query, value, attention_bias=bias), expected)


@pytest.mark.parametrize("attention_axes, bias_shape", [(2, (1, 3, 1, 5, 5)), (None, (3, 5, 3, 5))])
def test_bias_of_grids(rng, attention_axes, bias_shape):
    """Attention along one axis is that along sequences; along both, that of the flat grid."""
    x, bias = normal(rng, 2, 3, 5, HIDDEN), normal(rng, *bias_shape)
    attention = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM, attention_axes=attention_axes)
    attention.build(x.shape, x.shape)
    weights = attention_weights(randomize(attention, rng))
    if attention_axes == 2:
        rows, bias_of_rows = x.reshape(6, 5, HIDDEN), np.tile(bias[0], (2, 1, 1, 1))
    else:
        rows, bias_of_rows = x.reshape(2, 15, HIDDEN), bias.reshape(15, 15)
    expected = reference.multi_head_attention(rows, rows, weights, bias=bias_of_rows)
    assert_close(attention(x, x, attention_bias=bias), expected.reshape(x.shape))


@pytest.mark.parametrize("return_attention_scores", [False, True])
@pytest.mark.parametrize("mask", [None, MASK], ids=["unmasked", "masked"])
def test_gradients_equal_finite_differences(rng, mask, return_attention_scores):
    attention = make(rng)
    query, value = make_inputs(rng)
    bias = keras.Variable(normal(rng, 1, NUM_HEADS, QUERIES, KEYS))
    random = normal(rng, BATCH, QUERIES, HIDDEN)

    def loss():
        outputs = attention(
            query,
            value,
            attention_bias=ops.convert_to_tensor(bias),
            attention_mask=mask,
            return_attention_scores=return_attention_scores,
        )
        return weighted_sum(outputs[0] if return_attention_scores else outputs, random)

    values = {**attention_weights(attention), "bias": to_numpy(bias)}
    denses = [getattr(attention, f"{name}_dense") for name in ("query", "key", "value", "output")]
    variables = [variable for dense in denses for variable in (dense.kernel, dense.bias)]
    actual = dict(zip(values, gradients(loss, [*variables, bias]), strict=True))

    def reference_loss(name, array):
        weights = {**values, name: array}
        output = reference.multi_head_attention(
            query,
            value,
            weights,
            bias=weights["bias"],
            mask=None if mask is None else mask[:, None],
        )
        return np.sum(output * random)

    for name, array in values.items():
        for flat_index in rng.choice(array.size, size=2, replace=False):
            index = np.unravel_index(flat_index, array.shape)
            slope = reference.finite_difference(
                lambda changed, name=name: reference_loss(name, changed), array, index
            )
            np.testing.assert_allclose(
                actual[name][index], slope, rtol=1e-3, atol=1e-4, err_msg=name
            )


def test_masked_entries_of_the_bias_have_no_gradient(rng):
    attention = make(rng)
    query, value = make_inputs(rng)
    bias = keras.Variable(normal(rng, *FULL_SHAPE))
    random = normal(rng, BATCH, QUERIES, HIDDEN)
    (gradient,) = gradients(
        lambda: weighted_sum(
            attention(
                query, value, attention_bias=ops.convert_to_tensor(bias), attention_mask=MASK
            ),
            random,
        ),
        [bias],
    )
    masked = np.broadcast_to(~MASK[:, None], FULL_SHAPE)
    assert_close(gradient[masked], np.zeros(masked.sum()), 1e-7)
    # Softmax removes constants: along keys, the gradient sums to zero.
    assert_close(gradient.sum(axis=-1), np.zeros(FULL_SHAPE[:-1]), 1e-5)
    assert np.abs(gradient).max() > 1e-3


def test_training_with_dropout(rng):
    attention = make(rng, dropout=0.5, seed=3)
    query, value = make_inputs(rng)
    bias = normal(rng, *FULL_SHAPE)
    arguments = {"attention_bias": bias, "attention_mask": MASK}
    expected, expected_scores = reference.multi_head_attention(
        query,
        value,
        attention_weights(attention),
        bias=bias,
        mask=MASK[:, None],
        return_scores=True,
    )
    output, scores = attention(
        query, value, training=True, return_attention_scores=True, **arguments
    )
    # Dropout acts on the output, and the scores are those before it, as in Keras.
    assert_close(scores, expected_scores)
    assert np.abs(to_numpy(output) - expected).max() > 1e-2
    assert_close(attention(query, value, training=False, **arguments), expected)


class ALiBi(keras.layers.Layer):
    """A user's own bias: scores fall with the distance, with a slope per head."""

    def call(self, query, key):
        position = np.arange(max(query.shape[1], key.shape[1]))
        distance = np.abs(position[: query.shape[1], None] - position[: key.shape[1]])
        slopes = 2.0 ** -np.arange(1, NUM_HEADS + 1).reshape(1, NUM_HEADS, 1, 1)
        return ops.convert_to_tensor((-slopes * distance).astype("float32"))


def test_bias_layer_of_the_user(rng):
    attention = make(rng)
    query, value = make_inputs(rng)
    bias = np.zeros((1, NUM_HEADS, QUERIES, KEYS))
    for h, i, j in np.ndindex(bias.shape[1:]):
        bias[0, h, i, j] = -(2.0 ** -(h + 1)) * abs(i - j)
    expected = reference.multi_head_attention(query, value, attention_weights(attention), bias=bias)
    assert_close(attention(query, value, attention_bias=ALiBi()(query, value)), expected)
