"""Attention for a block of queries at a time equals attention for all at once."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    RelativePositionBias,
)
from tests.helpers import (
    assert_close,
    gradients,
    once,
    randomize,
    to_numpy,
    weighted_sum,
)

BATCH, QUERIES, KEYS, HIDDEN, NUM_HEADS, HEAD_DIM, BLOCK_SIZE = 2, 7, 5, 11, 3, 2, 3
MAX_LENGTH = 13
any_backend = pytest.mark.any_backend
MASK = np.random.default_rng(5).random((BATCH, 13, KEYS)) < 0.6
MASK[:, :, 1] = True
VALID = np.array([[True] * 3 + [False] * 2, [True] * 5])


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make_attention(rng, attention_class=BiasedMultiHeadAttention, **kwargs):
    attention = attention_class(NUM_HEADS, HEAD_DIM, value_dim=5, **kwargs)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    return randomize(attention, rng)


def make_layer(rng, kind):
    """A bias layer of the library, trained or frozen."""
    name, *frozen = kind.split()
    layer = {
        "relative": lambda: RelativePositionBias(NUM_HEADS, MAX_LENGTH),
        "absolute": lambda: AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, rank=3, share_heads=True),
    }[name]()
    layer.build()
    layer.trainable = not frozen
    return randomize(layer, rng)


def make_features(rng, length):
    return normal(rng, 1, length, NUM_HEADS, 2), normal(rng, BATCH, KEYS, 1, 2)


def make_mask(length):
    return MASK[:, :length]


# What an encoder or a user may add to the scores: of a generator and the number of queries.
TERMS = {
    "causal": lambda rng, length: {"use_causal_mask": True},
    "rows": lambda rng, length: {"attention_bias": normal(rng, NUM_HEADS, length, KEYS)},
    "one row and padding": lambda rng, length: {
        "attention_bias": normal(rng, BATCH, NUM_HEADS, 1, KEYS),
        "value_mask": VALID,
    },
    "relative": lambda rng, length: {"attention_bias": make_layer(rng, "relative")},
    "frozen": lambda rng, length: {"attention_bias": make_layer(rng, "relative frozen")},
    "all of rows": lambda rng, length: {
        "attention_bias": normal(rng, BATCH, 1, length, KEYS),
        "attention_features": make_features(rng, length),
        "attention_mask": make_mask(length),
        "query_mask": np.arange(length) < np.array([[length], [length - 1]]),
        "value_mask": VALID,
        "use_causal_mask": True,
    },
    "all of a layer": lambda rng, length: {
        "attention_bias": make_layer(rng, "absolute"),
        "attention_features": make_features(rng, length),
        "attention_mask": make_mask(length),
        "use_causal_mask": True,
    },
}


def assert_blocks_equal_all(attention, rng, name, length, training=False):
    """Assert equal outputs, and gradients by inputs, weights, and bias or weights of its layer."""
    terms = TERMS[name](rng, length)
    query = keras.Variable(normal(rng, BATCH, length, HIDDEN))
    value = keras.Variable(normal(rng, BATCH, KEYS, HIDDEN))
    # The gradient of the loss by these is the output.
    random = keras.Variable(normal(rng, BATCH, length, HIDDEN))
    variables = [query, value, random, *attention.trainable_variables]
    bias = terms.pop("attention_bias", None)
    if isinstance(bias, keras.layers.Layer):
        variables += bias.trainable_variables
    elif bias is not None:
        bias = keras.Variable(bias)
        variables.append(bias)

    def loss(block_size):
        is_variable = isinstance(bias, keras.Variable)
        output = attention(
            ops.convert_to_tensor(query),
            ops.convert_to_tensor(value),
            attention_bias=ops.convert_to_tensor(bias) if is_variable else bias,
            block_size=block_size,
            training=training,
            **terms,
        )
        return weighted_sum(output, random)

    expected = gradients(lambda: loss(None), variables)
    actual = gradients(lambda: loss(BLOCK_SIZE), variables)
    for variable, gradient, expected_gradient in zip(variables, actual, expected, strict=True):
        np.testing.assert_allclose(
            gradient, expected_gradient, rtol=1e-4, atol=1e-4, err_msg=variable.path
        )
        # Adds the same to the scores of all keys, which softmax removes.
        if not variable.path.endswith("key/bias"):
            assert np.abs(gradient).max() > 1e-3, variable.path


@pytest.mark.parametrize(
    "name, length",
    # Not a multiple of the block, a multiple, less than a block.
    [
        *((name, 7) for name in ("all of rows", "all of a layer")),
        *once(*((name, 7) for name in ("causal", "rows", "one row and padding", "frozen"))),
        *once(("all of rows", 6), ("relative", 2)),
    ],
)
def test_blocks_equal_all(rng, name, length):
    assert_blocks_equal_all(make_attention(rng), rng, name, length)


@any_backend
@settings(deadline=None, max_examples=15, derandomize=True)
@given(length=st.integers(1, MAX_LENGTH), block_size=st.integers(1, MAX_LENGTH + 1))
def test_any_lengths_and_blocks(length, block_size):
    rng = np.random.default_rng(length)
    attention, query = make_attention(rng), normal(rng, BATCH, length, HIDDEN)
    value, terms = normal(rng, BATCH, KEYS, HIDDEN), TERMS["all of a layer"](rng, length)
    found = attention(query, value, block_size=block_size, **terms)
    assert_close(found, attention(query, value, **terms))


@any_backend
@pytest.mark.parametrize("name", ["rows", "all of a layer"])
def test_blocks_equal_all_where_scores_are_needed(rng, name):
    """With a rate of dropout too small to drop anything, as in training."""
    assert_blocks_equal_all(make_attention(rng, dropout=1e-8), rng, name, 7, training=True)


def make_dropping(rng, rate):
    attention = make_attention(rng, dropout=rate, seed=3)
    state = attention._dropout_layer.seed_generator.state

    def attend(*inputs, **kwargs):
        # The same masks in each call.
        state.assign(np.array([3, 0], "uint32"))
        return attention(*inputs, training=True, block_size=BLOCK_SIZE, **kwargs)

    return attention, attend


def test_blocks_and_examples_drop_different_probabilities(rng):
    _, attend = make_dropping(rng, 0.5)
    # Equal queries and examples: without dropout all outputs are the same.
    query = np.repeat(normal(rng, 1, 1, HIDDEN), 9, axis=1).repeat(2, axis=0)
    value = np.repeat(normal(rng, 1, KEYS, HIDDEN), 2, axis=0)
    output = to_numpy(attend(query, value))
    rows = output.reshape(18, HIDDEN)
    distances = np.abs(rows[:, None] - rows[None]).max(axis=-1)
    assert distances[~np.eye(18, dtype="bool")].min() > 1e-4


def test_gradients_with_dropout_are_those_of_the_same_masks(rng):
    attention, attend = make_dropping(rng, 0.3)
    layer = make_layer(rng, "relative")
    query, value = normal(rng, BATCH, 7, HIDDEN), normal(rng, BATCH, KEYS, HIDDEN)
    random = normal(rng, BATCH, 7, HIDDEN)
    variables = [*attention.trainable_variables, layer.relative_embedding]

    def loss():
        return weighted_sum(attend(query, value, attention_bias=layer), random)

    found = gradients(loss, variables)
    start = [to_numpy(variable).copy() for variable in variables]
    directions = [np.sign(gradient) for gradient in found]
    step, losses = 1e-3, []
    for sign in (1, -1):
        for variable, values, direction in zip(variables, start, directions, strict=True):
            variable.assign(values + sign * step * direction)
        losses.append(float(to_numpy(loss())))
    slope = (losses[0] - losses[1]) / (2 * step)
    np.testing.assert_allclose(sum(np.abs(gradient).sum() for gradient in found), slope, rtol=1e-2)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph for any length")
@pytest.mark.parametrize(
    "name, length",
    [("all of a layer", 7), ("rows", 6), ("rows", 2)],
)
def test_one_graph_for_all_lengths(rng, name, length):
    import tensorflow as tf

    attention = make_attention(rng)
    terms = TERMS[name](rng, MAX_LENGTH)
    bias, features = terms["attention_bias"], terms.get("attention_features")
    is_layer = isinstance(bias, keras.layers.Layer)

    def attend(query, value, block_size):
        length = ops.shape(query)[1]
        given = {"attention_bias": bias if is_layer else tf.constant(bias)[:, :length]}
        if features is not None:
            given["attention_features"] = tf.constant(features[0])[:, :length], features[1]
            given["attention_mask"] = tf.constant(terms["attention_mask"])[:, :length]
        return attention(query, value, block_size=block_size, use_causal_mask=True, **given)

    blockwise = tf.function(
        lambda query, value: attend(query, value, BLOCK_SIZE),
        input_signature=[tf.TensorSpec((None, None, HIDDEN)), tf.TensorSpec((None, KEYS, HIDDEN))],
    )
    query, value = normal(rng, BATCH, length, HIDDEN), normal(rng, BATCH, KEYS, HIDDEN)
    assert_close(blockwise(query, value), attend(query, value, None))


class WithState(RelativePositionBias):
    """Its rows are others each time they are computed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.dropping = keras.layers.Dropout(0.5)


@any_backend
def test_a_layer_with_state_is_refused(rng):
    x, layer = normal(rng, BATCH, KEYS, HIDDEN), WithState(NUM_HEADS, MAX_LENGTH)
    with pytest.raises(ValueError, match=r"`block_size` needs.*no state.*WithState"):
        make_attention(rng)(x, x, attention_bias=layer, block_size=BLOCK_SIZE)
