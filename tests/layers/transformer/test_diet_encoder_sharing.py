"""`DietEncoder`: which layers and heads have the same position parameters."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    BucketedRelativePositionBias,
    RelativePositionBias,
    UntiedPositionBias,
)
from tests.helpers import assert_close, gradients, to_numpy, weighted_sum
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    MAX_LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    Slopes,
    copy_weights,
    expected_output,
    make_encoder,
    make_inputs,
)

ABSOLUTE = {"position_encoding": "diet_abs", "rank": 5}
T5, TUPE = {"position_encoding": "t5"}, {"position_encoding": "tupe_rel"}
RELATIVE = {"position_encoding": "diet_rel"}
encodings = pytest.mark.parametrize("encoding", [ABSOLUTE, RELATIVE], ids=["absolute", "relative"])












@pytest.mark.parametrize(
    "encoding, sharing",
    [(ABSOLUTE, "none"), (ABSOLUTE, "layer-wise"), (RELATIVE, "head-wise")],
)
def test_number_of_parameters(rng, sharing, encoding):
    encoder = make_encoder(rng, **encoding, sharing=sharing)
    block = 4 * (HIDDEN + 1) * HIDDEN + 4 * HIDDEN + (HIDDEN + 1) * 11 + (11 + 1) * HIDDEN
    positions = 2 * MAX_LENGTH * 5 if encoding is ABSOLUTE else 2 * MAX_LENGTH - 1
    heads = 1 if sharing == "head-wise" else NUM_HEADS
    layers = 1 if sharing == "layer-wise" else NUM_LAYERS
    segments = NUM_LAYERS * NUM_HEADS * 2 * 2
    assert encoder.count_params() == NUM_LAYERS * block + layers * heads * positions + segments


def position_gradients(encoder, x, random):
    """The gradients of the weights of each position bias."""
    biases = encoder.position_biases
    variables = [weight for bias in biases for weight in bias.weights]
    found = gradients(lambda: weighted_sum(encoder(x), random), variables)
    return np.split(np.array(found), len(biases))


@encodings
def test_gradient_of_a_layer_wise_bias_is_the_sum_over_layers(rng, encoding):
    shared = make_encoder(rng, **encoding, sharing="layer-wise")
    own = make_encoder(rng, **encoding, sharing="none")
    copy_weights(shared, own)
    for bias in own.position_biases:
        bias.set_weights(shared.position_biases[0].get_weights())
    x, _ = make_inputs(rng)
    random = rng.normal(size=x.shape).astype("float32")
    assert_close(shared(x), own(x), 1e-6)
    (shared_gradient,) = position_gradients(shared, x, random)
    own_gradients = position_gradients(own, x, random)
    assert_close(shared_gradient, sum(own_gradients), 1e-4)
    assert all(np.abs(gradient).max() > 1e-3 for gradient in own_gradients)


@encodings
def test_gradient_of_a_head_wise_bias_is_the_sum_over_heads(rng, encoding):
    shared = make_encoder(rng, **encoding, sharing="head-wise")
    own = make_encoder(rng, **encoding, sharing="none")
    copy_weights(shared, own)
    for shared_bias, bias in zip(shared.position_biases, own.position_biases, strict=True):
        bias.set_weights([np.repeat(weight, NUM_HEADS, 1) for weight in shared_bias.get_weights()])
    x, _ = make_inputs(rng)
    random = rng.normal(size=x.shape).astype("float32")
    assert_close(shared(x), own(x), 1e-6)
    shared_gradients = position_gradients(shared, x, random)
    own_gradients = position_gradients(own, x, random)
    for shared_gradient, gradient in zip(shared_gradients, own_gradients, strict=True):
        assert_close(shared_gradient, gradient.sum(axis=2, keepdims=True), 1e-4)
        assert np.abs(shared_gradient).max() > 1e-2


@pytest.mark.parametrize(
    "encoding, bias_class, sharing, calls",
    [
        (ABSOLUTE, AbsolutePositionBias, "layer-wise", 1),
        (ABSOLUTE, AbsolutePositionBias, "head-wise", 2),
        (RELATIVE, RelativePositionBias, "none", 2),
        (T5, BucketedRelativePositionBias, "layer-wise", 1),
        (TUPE, UntiedPositionBias, "none", 2),
    ],
)
def test_shared_scores_are_computed_once(rng, monkeypatch, encoding, bias_class, sharing, calls):
    encoder = make_encoder(rng, **encoding, sharing=sharing)
    counted = []
    compute_scores = bias_class.compute_scores

    def count(self, *args):
        counted.append(self.name)
        return compute_scores(self, *args)

    monkeypatch.setattr(bias_class, "compute_scores", count)
    encoder(make_inputs(rng)[0])
    assert len(counted) == len(set(counted)) == calls


@pytest.mark.parametrize("sharing", [None, "layer-wise"])
def test_own_bias_layer_is_shared_by_all_layers(rng, sharing):
    bias = Slopes(NUM_HEADS)
    encoder = make_encoder(rng, position_encoding=bias, sharing=sharing)
    x, segment_ids = make_inputs(rng)
    output = encoder(x, segment_ids=segment_ids)
    assert bias.num_calls == 1
    assert encoder.position_biases == [bias]
    assert sum(weight is bias.slopes for weight in encoder.weights) == 1
    assert_close(output, expected_output(encoder, x, segment_ids))


def test_own_bias_layer_is_copied(rng):
    bias = Slopes(NUM_HEADS, name="slopes")
    encoder = make_encoder(rng, position_encoding=bias, sharing="none")
    x, segment_ids = make_inputs(rng)
    output = encoder(x, segment_ids=segment_ids)
    first, second = encoder.position_biases
    assert first is bias
    assert type(second) is Slopes
    assert (first.num_calls, second.num_calls) == (1, 1)
    slopes = [weight for weight in encoder.weights if weight.name == "slopes"]
    assert len(slopes) == len({weight.path for weight in slopes}) == NUM_LAYERS
    assert np.abs(to_numpy(slopes[0]) - to_numpy(slopes[1])).max() > 1e-2
    assert_close(output, expected_output(encoder, x, segment_ids))




class Constant(keras.layers.Layer):
    """A bias layer without weights that broadcasts over heads and queries."""

    def call(self, inputs):
        return keras.ops.ones((1, 1, 1, 1)) * inputs[:1, None, None, :, 0]


def test_own_bias_may_broadcast_and_read_the_inputs(rng):
    encoder = make_encoder(rng, position_encoding=Constant(), segment_encoding="none")
    x = np.repeat(make_inputs(rng)[0][:1], BATCH, axis=0)
    plain = make_encoder(rng, position_encoding="none", segment_encoding="none")
    copy_weights(encoder, plain)
    scores = [model(x, return_attention_scores=True)[1][0] for model in (encoder, plain)]
    biased, unbiased = (np.log(to_numpy(layer_scores)) for layer_scores in scores)
    difference = biased - unbiased - x[:, None, None, :, 0]
    # Softmax is unique up to a constant per row.
    assert_close(difference - difference[..., :1], np.zeros_like(difference), 1e-4)


