"""ALiBi, against its definition."""

import keras
import numpy as np
import pytest

from keras_diet.layers import DietEncoder, cache_positions
from keras_diet.layers.position.alibi_position_bias import AlibiPositionBias, alibi_slopes
from tests.helpers import assert_close, check_layer, compiled, to_numpy


def expected_scores(slopes, query_length, key_length, start=0):
    scores = np.zeros((1, len(slopes), query_length, key_length))
    for h, i, j in np.ndindex(scores.shape[1:]):
        scores[0, h, i, j] = -slopes[h] * abs(start + i - j)
    return scores


# From section 3 of Press et al. for 8 and 16 heads, and between for 6 and 12.
@pytest.mark.parametrize(
    "num_heads, slopes",
    [
        (1, [1 / 256]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
        (3, [1 / 16, 1 / 256, 1 / 4]),
    ],
)
def test_slopes(num_heads, slopes):
    assert_close(alibi_slopes(num_heads), np.array(slopes), 1e-6)


def test_slopes_of_sixteen_heads_begin_at_the_root_of_a_half():
    assert_close(alibi_slopes(16)[:3], 0.5 ** np.array([0.5, 1.0, 1.5]), 1e-6)


@pytest.mark.parametrize("start", [0, 4])
def test_scores_are_the_definition(start):
    bias = AlibiPositionBias(num_heads=3)
    query, key = np.zeros((2, 5, 7)), np.zeros((2, 11, 7))
    scores = bias(query, key, start_index=start)
    assert_close(scores, expected_scores([1 / 16, 1 / 256, 1 / 4], 5, 11, start), 1e-6)


def test_layer(rng):
    layer = AlibiPositionBias(num_heads=3, max_length=13)
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    check_layer(layer, x)
    assert not layer.weights
    with pytest.raises(ValueError, match="max_length"):
        layer(np.zeros((1, 14, 2)))


def test_encoder_takes_any_way_of_computing_it(rng):
    x = rng.normal(size=(2, 7, 6)).astype("float32")
    encoders = [
        DietEncoder(
            2, 3, 5, position_encoding="alibi", max_sequence_length=9, attention_implementation=name
        )
        for name in ("full", "blockwise")
    ]
    for encoder in encoders:
        encoder.build(x.shape)
    encoders[1].set_weights(encoders[0].get_weights())
    assert len(encoders[0].position_biases) == 1
    outputs = [to_numpy(compiled(lambda encoder=encoder: encoder(x))()) for encoder in encoders]
    assert_close(outputs[0], outputs[1])
    assert_close(cache_positions(encoders[0])(x), outputs[0])
    without = DietEncoder(2, 3, 5, position_encoding="none", max_sequence_length=9)
    without.build(x.shape)
    without.set_weights(encoders[0].get_weights())
    assert np.abs(to_numpy(without(x)) - outputs[0]).max() > 1e-3


@pytest.mark.parametrize("argument", ["rank", "sharing", "projection_dim"])
def test_arguments_without_meaning_are_refused(argument):
    value = "head-wise" if argument == "sharing" else 3
    with pytest.raises(ValueError, match=argument):
        DietEncoder(2, 3, 5, position_encoding="alibi", **{argument: value})


def test_config_has_no_weights_or_initializer():
    config = AlibiPositionBias(num_heads=3, max_length=13).get_config()
    assert {"initializer", "share_heads", "key_length"}.isdisjoint(config)
    assert (
        keras.layers.deserialize(
            keras.layers.serialize(AlibiPositionBias(num_heads=3, max_length=13))
        ).max_length
        == 13
    )
