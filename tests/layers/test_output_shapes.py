"""`compute_output_shape` of every layer, which wrappers such as `TimeDistributed` call."""

import keras
import numpy as np
import pytest

from keras_diet import layers

BATCH, QUERIES, KEYS, HIDDEN, NUM_HEADS = 2, 5, 7, 12, 3
QUERY, KEY = (BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN)
SAME = {
    "encoder": lambda: layers.DietEncoder(1, NUM_HEADS, 11, max_sequence_length=13),
    "block": lambda: layers.BiasedTransformerEncoder(11, NUM_HEADS),
    "input": lambda: layers.InputEncoding(max_sequence_length=13, num_segments=2),
}
ATTENTION = {
    "biased": lambda: layers.BiasedMultiHeadAttention(NUM_HEADS, 4),
    "linformer": lambda: layers.LinformerMultiHeadAttention(NUM_HEADS, 4, 13, 6),
    "shaw": lambda: layers.RelativeMultiHeadAttention(NUM_HEADS, 4, max_distance=3),
    "rotary": lambda: layers.RotaryMultiHeadAttention(NUM_HEADS, 4),
    "transformer_xl": lambda: layers.TransformerXLMultiHeadAttention(NUM_HEADS, 4),
}
BIASES = {
    "absolute": lambda: layers.AbsolutePositionBias(NUM_HEADS, 13, rank=4),
    "relative": lambda: layers.RelativePositionBias(NUM_HEADS, 13),
    "t5": lambda: layers.BucketedRelativePositionBias(NUM_HEADS),
    "alibi": lambda: layers.AlibiPositionBias(NUM_HEADS),
    "kerple": lambda: layers.KerplePositionBias(NUM_HEADS),
    "sandwich": lambda: layers.SandwichPositionBias(NUM_HEADS),
    "fire": lambda: layers.FirePositionBias(NUM_HEADS),
    "tupe": lambda: layers.UntiedPositionBias(NUM_HEADS, 4, 13, position_dim=HIDDEN),
    "cached": lambda: layers.CachedPositionBias(NUM_HEADS, 13),
}


@pytest.mark.parametrize("name", SAME)
def test_outputs_have_the_shape_of_the_input(name):
    layer = SAME[name]()
    assert layer.compute_output_shape(QUERY) == QUERY
    assert tuple(layer(np.zeros(QUERY)).shape) == QUERY


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_has_the_shape_of_the_query(name):
    layer = ATTENTION[name]()
    assert tuple(layer.compute_output_shape(QUERY, KEY)) == QUERY
    assert tuple(layer(np.zeros(QUERY), np.zeros(KEY)).shape) == QUERY


@pytest.mark.parametrize("name", BIASES)
def test_scores_of_positions(name):
    layer = BIASES[name]()
    assert layer.compute_output_shape(QUERY) == (1, NUM_HEADS, QUERIES, QUERIES)
    assert layer.compute_output_shape(QUERY, KEY) == (1, NUM_HEADS, QUERIES, KEYS)
    assert tuple(layer(np.zeros(QUERY), np.zeros(KEY)).shape) == (1, NUM_HEADS, QUERIES, KEYS)


def test_scores_of_segments():
    layer = layers.SegmentBias(NUM_HEADS)
    assert layer.compute_output_shape(QUERY[:2]) == (BATCH, NUM_HEADS, QUERIES, QUERIES)
    assert layer.compute_output_shape(QUERY[:2], KEY[:2]) == (BATCH, NUM_HEADS, QUERIES, KEYS)
    scores = layer(np.zeros(QUERY[:2], "int32"), np.ones(KEY[:2], "int32"))
    assert tuple(scores.shape) == (BATCH, NUM_HEADS, QUERIES, KEYS)


@pytest.mark.parametrize("name", ["encoder", "block", "input"])
def test_time_distributed(rng, name):
    inputs = keras.Input((4, QUERIES, HIDDEN))
    layer = SAME[name]()
    model = keras.Model(inputs, keras.layers.TimeDistributed(layer)(inputs))
    assert model.output_shape == (None, 4, QUERIES, HIDDEN)
    x = rng.normal(size=(BATCH, 4, QUERIES, HIDDEN)).astype("float32")
    expected = keras.ops.convert_to_numpy(layer(x[:, 3]))
    np.testing.assert_allclose(model.predict(x, verbose=0)[:, 3], expected, rtol=1e-4, atol=1e-5)
