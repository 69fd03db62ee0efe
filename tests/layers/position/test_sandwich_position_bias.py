"""Sandwich, against its definition."""

import numpy as np
import pytest

from keras_diet.layers import DietEncoder, SandwichPositionBias, cache_positions
from tests.helpers import assert_close, check_layer, compiled, to_numpy
from tests.reference import sinusoidal_positions

NUM_HEADS, POSITION_DIM = 3, 10


def make(**kwargs):
    return SandwichPositionBias(NUM_HEADS, **{"position_dim": POSITION_DIM, **kwargs})


def call(bias, query_length, key_length, start_index=0):
    query, key = np.zeros((2, query_length, 7)), np.zeros((2, key_length, 7))
    return compiled(lambda: bias(query, key, start_index=start_index))()


def expected_scores(position_dim, num_heads, query_length, key_length, start=0):
    """From the positions themselves, not from the cosines of distances."""
    positions = np.zeros((start + query_length + key_length, position_dim))
    for position, k in np.ndindex(len(positions), position_dim // 2):
        angle = position / 10_000 ** (2 * k / position_dim)
        positions[position, 2 * k : 2 * k + 2] = np.sin(angle), np.cos(angle)
    scores = np.zeros((1, num_heads, query_length, key_length))
    for h, i, j in np.ndindex(scores.shape[1:]):
        product = positions[start + i] @ positions[j]
        scores[0, h, i, j] = (product - position_dim / 2) / (8 * (h + 1) / num_heads)
    return scores


@pytest.mark.parametrize("position_dim, num_heads", [(10, 3), (128, 2), (2, 5)])
@pytest.mark.parametrize("lengths", [(5, 11, 0), (3, 2, 0), (1, 7, 6), (2, 5, 23)])
def test_scores_are_the_definition(position_dim, num_heads, lengths):
    bias = SandwichPositionBias(num_heads, position_dim=position_dim)
    expected = expected_scores(position_dim, num_heads, *lengths)
    assert_close(call(bias, *lengths), expected, 2e-5)


@pytest.mark.any_backend
def test_default_is_the_size_of_the_paper():
    bias = SandwichPositionBias(12)
    assert bias.position_dim == 128
    scores = to_numpy(call(bias, 1, 8))[0, :, 0]
    # The first head of twelve divides by 2 / 3, the last one by 8.
    assert_close(scores[0], 12 * scores[11])
    assert_close(scores[11], expected_scores(128, 12, 1, 8)[0, 11, 0], 2e-5)


@pytest.mark.any_backend
def test_scores_are_inner_products_of_the_sinusoidal_encoding():
    """Up to a constant for each head, which softmax removes."""
    positions = sinusoidal_positions(9, POSITION_DIM)
    scores = to_numpy(call(make(), 9, 9))[0, 2]
    difference = scores - positions @ positions.T / 8
    assert_close(difference, np.full((9, 9), -POSITION_DIM / 2 / 8), 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_tells_near_keys_apart(dtype):
    scores = to_numpy(call(SandwichPositionBias(12, dtype=dtype), 1, 6))
    assert_close(scores, expected_scores(128, 12, 1, 6), 1e-2)


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_distant_keys(dtype):
    """Half precision cannot hold most of these distances."""
    length = 5003
    scores = to_numpy(call(make(dtype=dtype), 1, length))[0, :, 0]
    assert_close(scores, expected_scores(POSITION_DIM, NUM_HEADS, 1, length)[0, :, 0], 1e-2)


def test_layer(rng):
    layer = make(max_length=13)
    check_layer(layer, rng.normal(size=(2, 5, 6)).astype("float32"))
    assert not layer.weights
    assert {"initializer", "share_heads", "key_length"}.isdisjoint(layer.get_config())
    with pytest.raises(ValueError, match="max_length"):
        layer(np.zeros((1, 14, 2)))


def test_encoder_takes_any_way_of_computing_it(rng):
    x = rng.normal(size=(2, 7, 6)).astype("float32")
    encoders = [
        DietEncoder(
            2,
            NUM_HEADS,
            5,
            position_encoding="sandwich",
            max_sequence_length=9,
            attention_implementation=name,
        )
        for name in ("full", "blockwise")
    ]
    for encoder in encoders:
        encoder.build(x.shape)
    encoders[1].set_weights(encoders[0].get_weights())
    assert len(encoders[0].position_biases) == 1
    cached = cache_positions(encoders[0])
    without = DietEncoder(2, NUM_HEADS, 5, position_encoding="none", max_sequence_length=9)
    without.build(x.shape)
    without.set_weights(encoders[0].get_weights())
    for causal in (False, True):
        arguments = {"use_causal_mask": causal}
        outputs = [
            to_numpy(compiled(lambda e=e, a=arguments: e(x, **a))())
            for e in (*encoders, cached, without)
        ]
        assert_close(outputs[1], outputs[0])
        assert_close(outputs[2], outputs[0])
        assert np.abs(outputs[3] - outputs[0]).max() > 1e-3


@pytest.mark.any_backend
def test_bad_arguments():
    with pytest.raises(ValueError, match=r"`position_dim` must be even.*position_dim=7"):
        SandwichPositionBias(NUM_HEADS, position_dim=7)
    with pytest.raises(ValueError, match=r"`position_dim` must be a positive integer.*=0"):
        SandwichPositionBias(NUM_HEADS, position_dim=0)
    for argument, value in (("rank", 3), ("sharing", "head-wise"), ("projection_dim", 3)):
        with pytest.raises(ValueError, match=argument):
            DietEncoder(2, NUM_HEADS, 5, position_encoding="sandwich", **{argument: value})
