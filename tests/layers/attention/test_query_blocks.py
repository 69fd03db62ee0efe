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
from tests.helpers import assert_close, gradients, once, randomize, to_numpy, weighted_sum
from tests.layers.attention.variants import normal

BATCH, QUERIES, KEYS, HIDDEN, NUM_HEADS, BLOCK_SIZE, MAX_LENGTH = 2, 7, 5, 11, 3, 3, 13
any_backend = pytest.mark.any_backend
MASK = np.random.default_rng(5).random((BATCH, MAX_LENGTH, KEYS)) < 0.6
MASK[:, :, 1] = True
VALID = np.array([[True] * 3 + [False] * 2, [True] * 5])


def make_attention(rng, **kwargs):
    attention = BiasedMultiHeadAttention(NUM_HEADS, 2, value_dim=5, **kwargs)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    return randomize(attention, rng)


def make_layer(rng, layer, trainable=True):
    """A bias layer with random weights."""
    layer.build()
    layer.trainable = trainable
    return randomize(layer, rng)


def relative(rng, **kwargs):
    return make_layer(rng, RelativePositionBias(NUM_HEADS, MAX_LENGTH), **kwargs)


def absolute(rng):
    return make_layer(rng, AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, rank=3, share_heads=True))


def features_and_masks(rng, length):
    return {
        "attention_features": (
            normal(rng, 1, length, NUM_HEADS, 2),
            normal(rng, BATCH, KEYS, 1, 2),
        ),
        "attention_mask": MASK[:, :length],
        "use_causal_mask": True,
    }


# What an encoder or a user may add to the scores: of a generator and the number of queries.
TERMS = {
    "causal": lambda rng, length: {"use_causal_mask": True},
    "rows": lambda rng, length: {"attention_bias": normal(rng, NUM_HEADS, length, KEYS)},
    "one row and padding": lambda rng, length: {
        "attention_bias": normal(rng, BATCH, NUM_HEADS, 1, KEYS),
        "value_mask": VALID,
    },
    "relative": lambda rng, length: {"attention_bias": relative(rng)},
    "frozen": lambda rng, length: {"attention_bias": relative(rng, trainable=False)},
    "all of rows": lambda rng, length: {
        "attention_bias": normal(rng, BATCH, 1, length, KEYS),
        "query_mask": np.arange(length) < np.array([[length], [length - 1]]),
        "value_mask": VALID,
        **features_and_masks(rng, length),
    },
    "all of a layer": lambda rng, length: {
        "attention_bias": absolute(rng),
        **features_and_masks(rng, length),
    },
}


@pytest.mark.parametrize(
    "name, length, dropout",
    # Not a multiple of the block, a multiple, less than a block.
    [
        *((name, 7, 0.0) for name in ("all of rows", "all of a layer")),
        *once(*((name, 7, 0.0) for name in ("causal", "rows", "one row and padding", "frozen"))),
        *once(("all of rows", 6, 0.0), ("relative", 2, 0.0)),
        # The rate is too small to drop anything, but the program has to have all scores.
        *once(*((name, 7, 1e-8) for name in ("rows", "all of a layer"))),
    ],
)
def test_blocks_equal_all(rng, name, length, dropout):
    """Outputs, and gradients by inputs, weights, and the bias or the weights of its layer."""
    attention, terms = make_attention(rng, dropout=dropout), TERMS[name](rng, length)
    query, value, random = inputs = [
        keras.Variable(normal(rng, BATCH, size, HIDDEN)) for size in (length, KEYS, length)
    ]
    # The gradient of the loss by `random` is the output.
    variables = [*inputs, *attention.trainable_variables]
    bias = terms.pop("attention_bias", None)
    is_layer = isinstance(bias, keras.layers.Layer)
    if is_layer:
        variables += bias.trainable_variables
    elif bias is not None:
        variables.append(keras.Variable(bias))

    def loss(block_size):
        has_tensor = bias is not None and not is_layer
        output = attention(
            ops.convert_to_tensor(query),
            ops.convert_to_tensor(value),
            attention_bias=ops.convert_to_tensor(variables[-1]) if has_tensor else bias,
            block_size=block_size,
            training=dropout > 0,
            **terms,
        )
        return weighted_sum(output, random)

    expected = gradients(lambda: loss(None), variables)
    found = gradients(lambda: loss(BLOCK_SIZE), variables)
    for variable, gradient, wanted in zip(variables, found, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-4, err_msg=variable.path)
        # Adds the same to the scores of all keys, which softmax removes.
        assert variable.path.endswith("key/bias") or np.abs(gradient).max() > 1e-3, variable.path


@any_backend
@settings(deadline=None, max_examples=15, derandomize=True)
@given(length=st.integers(1, MAX_LENGTH), block_size=st.integers(1, MAX_LENGTH + 1))
def test_any_lengths_and_blocks(length, block_size):
    rng = np.random.default_rng(length)
    attention, query = make_attention(rng), normal(rng, BATCH, length, HIDDEN)
    value, terms = normal(rng, BATCH, KEYS, HIDDEN), TERMS["all of a layer"](rng, length)
    found = attention(query, value, block_size=block_size, **terms)
    assert_close(found, attention(query, value, **terms))


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
    query = np.tile(normal(rng, 1, 1, HIDDEN), (2, 9, 1))
    value = np.tile(normal(rng, 1, KEYS, HIDDEN), (2, 1, 1))
    rows = to_numpy(attend(query, value)).reshape(18, HIDDEN)
    distances = np.abs(rows[:, None] - rows[None]).max(axis=-1)
    assert distances[~np.eye(18, dtype="bool")].min() > 1e-4


def test_gradients_with_dropout_are_those_of_the_same_masks(rng):
    attention, attend = make_dropping(rng, 0.3)
    layer = relative(rng)
    query, value, random = (normal(rng, BATCH, size, HIDDEN) for size in (7, KEYS, 7))
    variables = [*attention.trainable_variables, layer.relative_embedding]

    def loss():
        return weighted_sum(attend(query, value, attention_bias=layer), random)

    found = gradients(loss, variables)
    start = [to_numpy(variable).copy() for variable in variables]
    step, losses = 1e-3, []
    for sign in (1, -1):
        for variable, values, gradient in zip(variables, start, found, strict=True):
            variable.assign(values + sign * step * np.sign(gradient))
        losses.append(float(to_numpy(loss())))
    slope = (losses[0] - losses[1]) / (2 * step)
    np.testing.assert_allclose(sum(np.abs(gradient).sum() for gradient in found), slope, rtol=1e-2)


@any_backend
def test_a_layer_with_state_is_refused(rng):
    """Its rows would be others each time they are computed."""
    x, layer = normal(rng, BATCH, KEYS, HIDDEN), RelativePositionBias(NUM_HEADS, MAX_LENGTH)
    layer.dropping = keras.layers.Dropout(0.5)
    with pytest.raises(ValueError, match=r"`block_size` needs.*no state.*Relative"):
        make_attention(rng)(x, x, attention_bias=layer, block_size=BLOCK_SIZE)
