"""Decoding with `start_index`: one step equals the row of the full pass."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    BucketedRelativePositionBias,
    RelativeMultiHeadAttention,
    RelativePositionBias,
    UntiedPositionBias,
    cache_positions,
)
from keras_diet.layers.attention.score_terms import ScoreTerms
from tests.helpers import assert_close, randomize, to_numpy

BATCH, LENGTH, HIDDEN, NUM_HEADS, KEY_DIM, MAX_LENGTH = 2, 7, 11, 3, 4, 13
# The queries of a step begin here. Distances differ from any other start.
START, STEP = 4, 2
BIASES = {
    "absolute": lambda: AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, rank=2),
    "relative": lambda: RelativePositionBias(NUM_HEADS, MAX_LENGTH),
    "bucketed": lambda: BucketedRelativePositionBias(NUM_HEADS, 8, 11),
    "untied": lambda: UntiedPositionBias(NUM_HEADS, 2, MAX_LENGTH, 6),
    "cached": lambda: RelativePositionBias(NUM_HEADS, MAX_LENGTH),
}
as_int_and_tensor = pytest.mark.parametrize("as_tensor", [False, True], ids=["int", "tensor"])


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make_bias(rng, name):
    layer = BIASES[name]()
    layer.build()
    randomize(layer, rng)
    return cache_positions(layer) if name == "cached" else layer


def make(rng, attention):
    attention.build((BATCH, LENGTH, HIDDEN), (BATCH, LENGTH, HIDDEN))
    return randomize(attention, rng, 0.6)


def assert_step_is_row(attention, x, as_tensor, features=None, tolerance=1e-5, **arguments):
    start = ops.convert_to_tensor(START, "int32") if as_tensor else START
    query = x[:, START : START + STEP]
    full = to_numpy(attention(x, x, attention_features=features, **arguments))
    rows = full[:, START : START + STEP]
    if features is not None:
        features = (features[0][:, START : START + STEP], features[1])
    options = {"attention_features": features, **arguments}
    assert_close(attention(query, x, start_index=start, **options), rows, tolerance)
    # The position matters.
    assert np.abs(to_numpy(attention(query, x, **options)) - rows).max() > 1e-2


@as_int_and_tensor
@pytest.mark.parametrize("name", BIASES)
def test_every_bias_layer(rng, name, as_tensor):
    attention = make(rng, BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM))
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    assert_step_is_row(attention, x, as_tensor, attention_bias=make_bias(rng, name))


@as_int_and_tensor
@pytest.mark.parametrize("block_size", [None, 1])
@pytest.mark.parametrize("name", ["absolute", "bucketed"])
def test_all_terms_together(rng, name, block_size, as_tensor):
    attention = make(rng, BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, sliding_window=3))
    features = normal(rng, 1, LENGTH, NUM_HEADS, 2), normal(rng, BATCH, LENGTH, 1, 2)
    assert_step_is_row(
        attention,
        normal(rng, BATCH, LENGTH, HIDDEN),
        as_tensor,
        features,
        attention_bias=make_bias(rng, name),
        use_causal_mask=True,
        block_size=block_size,
    )


@as_int_and_tensor
@pytest.mark.parametrize(
    "window, arguments", [(None, {"use_causal_mask": True}), (2, {})], ids=["causal", "window"]
)
def test_masks_of_positions(rng, window, arguments, as_tensor):
    attention = make(rng, BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, sliding_window=window))
    assert_step_is_row(attention, normal(rng, BATCH, LENGTH, HIDDEN), as_tensor, **arguments)


@as_int_and_tensor
@pytest.mark.parametrize("use_value_embedding", [True, False], ids=["values", "keys"])
def test_vectors_of_distances(rng, use_value_embedding, as_tensor):
    attention = RelativeMultiHeadAttention(
        NUM_HEADS, KEY_DIM, max_distance=5, use_value_embedding=use_value_embedding
    )
    x, attention = normal(rng, BATCH, LENGTH, HIDDEN), make(rng, attention)
    assert_step_is_row(attention, x, as_tensor)
    bias = make_bias(rng, "relative")
    assert_step_is_row(attention, x, as_tensor, attention_bias=bias, use_causal_mask=True)


def test_padding_of_keys_in_a_step(rng):
    """The padding of score terms, with fewer queries than keys."""
    attention = make(rng, BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM))
    x, bias = normal(rng, BATCH, LENGTH, HIDDEN), make_bias(rng, "absolute")
    valid = np.array([[True] * 5 + [False] * 2, [True] * 7])
    terms = ScoreTerms(bias=bias, padding_mask=ops.convert_to_tensor(valid), start_index=START)
    expected = attention(x, x, attention_bias=bias, value_mask=valid)
    found = attention(x[:, START : START + STEP], x, score_terms=terms)
    assert_close(found, to_numpy(expected)[:, START : START + STEP])


def test_a_bias_layer_without_rows_is_refused(rng):
    class Zeros(keras.layers.Layer):
        def call(self, query, key=None):
            return ops.zeros((1, 1, query.shape[1], LENGTH))

    attention = make(rng, BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM))
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    with pytest.raises(ValueError, match=r"needs a method `rows\(.*start_index=4"):
        attention(x[:, :1], x, attention_bias=Zeros(), start_index=4)
