"""Cached positions of a backbone inside other models: no compiled function uses old scores."""

import gc

import keras
import numpy as np
import pytest

from keras_diet.layers import cache_positions
from keras_diet.models import DietBertMaskedLM
from tests.helpers import to_numpy
from tests.models.tiny import random_masked_inputs, randomize_weights, tiny_backbone

pytestmark = pytest.mark.usefixtures("compiled_steps")


@pytest.fixture
def backbone():
    return randomize_weights(tiny_backbone(position_encoding="diet_abs"))


def wrapped(backbone):
    return keras.Model(backbone.input, backbone(backbone.input)["sequence_output"])


def change_positions(backbone):
    bias = backbone.encoder.position_biases[0]
    bias.query_embedding.assign(2 * to_numpy(bias.query_embedding) + 1)


def assert_up_to_date(model, inputs):
    # An eager call compiles nothing.
    np.testing.assert_allclose(model.predict(inputs, verbose=0), to_numpy(model(inputs)), atol=1e-5)


@pytest.mark.parametrize("wrap", [DietBertMaskedLM, wrapped])
def test_models_around_a_cached_backbone_follow_its_weights(rng, backbone, wrap):
    inputs = random_masked_inputs(rng)[0]
    model = wrap(backbone)
    inputs = {name: inputs[name] for name in model.input}
    cache_positions(backbone)
    before = model.predict(inputs, verbose=0)
    change_positions(backbone)
    assert_up_to_date(model, inputs)
    assert np.abs(model.predict(inputs, verbose=0) - before).max() > 1e-2


def test_models_that_the_collector_has_put_aside(rng, backbone):
    inputs = random_masked_inputs(rng)[0]
    masked_lm = DietBertMaskedLM(backbone)
    cache_positions(backbone)
    masked_lm.predict(inputs, verbose=0)
    gc.freeze()
    change_positions(backbone)
    assert_up_to_date(masked_lm, inputs)


def test_two_models_that_cache_the_same_layer_follow_its_weights(rng, backbone):
    inputs = random_masked_inputs(rng)[0]
    first, second = DietBertMaskedLM(backbone), DietBertMaskedLM(backbone)
    cache_positions(first)
    first.predict(inputs, verbose=0)
    cache_positions(second)
    first.predict(inputs, verbose=0)
    change_positions(backbone)
    assert_up_to_date(first, inputs)
    assert_up_to_date(second, inputs)


def test_training_around_a_cached_backbone_drops_its_scores(rng, backbone):
    inputs, labels, weights = random_masked_inputs(rng)
    masked_lm = DietBertMaskedLM(backbone)
    masked_lm.fit(inputs, labels, sample_weight=weights, verbose=0)
    cache_positions(backbone)
    masked_lm.predict(inputs, verbose=0)
    masked_lm.fit(inputs, labels, sample_weight=weights, verbose=0)
    assert not backbone.encoder.position_biases[0].has_cached_scores
    assert_up_to_date(masked_lm, inputs)
