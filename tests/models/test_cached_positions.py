"""Copies of DietBert models for inference that hold positional scores."""

import keras
import numpy as np
import pytest

from keras_diet.layers import cache_positions
from keras_diet.models import DietBertBackbone, DietBertMaskedLM, DietBertTextClassifier
from tests.helpers import assert_close, to_numpy
from tests.models.tiny import (
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)


@pytest.mark.parametrize("position_encoding", ["diet_abs", "tupe_rel"])
def test_backbone(rng, position_encoding):
    backbone = randomize_weights(tiny_backbone(position_encoding=position_encoding))
    inputs = random_inputs(rng)
    copy = cache_positions(backbone)
    assert type(copy) is DietBertBackbone
    for name, output in copy(inputs).items():
        assert_close(output, backbone(inputs)[name])
    names = {weight.path.split("/")[-1] for weight in copy.encoder.weights}
    assert "scores" in names
    assert names.isdisjoint({"query_embedding", "relative_embedding", "position_embedding"})


def test_task_and_its_training_leave_each_other_alone(rng):
    inputs, labels, weights = random_masked_inputs(rng)
    backbone = randomize_weights(tiny_backbone(num_layers=1, position_encoding="diet_abs"))
    masked_lm = DietBertMaskedLM(backbone)
    copy = cache_positions(masked_lm)
    assert type(copy) is DietBertMaskedLM
    before = copy.predict(inputs, verbose=0)
    assert_close(before, masked_lm.predict(inputs, verbose=0))
    masked_lm.fit(inputs, labels, sample_weight=weights, verbose=0)
    assert np.abs(masked_lm.predict(inputs, verbose=0) - before).max() > 1e-4
    assert_close(copy.predict(inputs, verbose=0), before, 1e-6)
    after = masked_lm.predict(inputs, verbose=0)
    scores = to_numpy(copy.backbone.encoder.position_biases[0].scores).copy()
    copy.fit(inputs, labels, sample_weight=weights, verbose=0)
    np.testing.assert_array_equal(copy.backbone.encoder.position_biases[0].scores, scores)
    assert_close(masked_lm.predict(inputs, verbose=0), after, 1e-6)


@pytest.mark.any_backend
def test_preset_and_frozen_parts(rng, tmp_path):
    backbone = randomize_weights(tiny_backbone(position_encoding="diet_rel", dropout=0.0))
    backbone.encoder.transformer_layers[1].trainable = False
    copy = cache_positions(DietBertTextClassifier(backbone, num_classes=3))
    assert not copy.backbone.encoder.transformer_layers[1].trainable
    assert copy.backbone.encoder.transformer_layers[0].trainable
    copy.save_to_preset(tmp_path)
    loaded = DietBertTextClassifier.from_preset(tmp_path)
    inputs = random_inputs(rng)
    assert_close(loaded.predict(inputs, verbose=0), copy.predict(inputs, verbose=0))
    assert loaded.backbone.cached_positions


@pytest.mark.any_backend
def test_weights_of_the_model_do_not_load_into_the_copy(tmp_path):
    backbone = tiny_backbone(position_encoding="diet_abs")
    backbone.save_weights(tmp_path / "backbone.weights.h5")
    copy = cache_positions(backbone)
    with pytest.raises(ValueError, match=r"position_bias|expected"):
        copy.load_weights(tmp_path / "backbone.weights.h5")


def test_functional_models_of_a_backbone(rng):
    backbone = randomize_weights(tiny_backbone(position_encoding="diet_abs"))
    model = keras.Model(backbone.input, backbone(backbone.input)["sequence_output"])
    inputs = random_inputs(rng)
    copy = cache_positions(model)
    assert_close(copy.predict(inputs, verbose=0), model.predict(inputs, verbose=0))
    assert not backbone.cached_positions


@pytest.mark.any_backend
@pytest.mark.parametrize("position_encoding", ["input", "none", "shaw"])
def test_models_without_a_position_bias_are_refused(position_encoding):
    with pytest.raises(ValueError, match=f"position bias.*{position_encoding}"):
        cache_positions(tiny_backbone(position_encoding=position_encoding))


@pytest.mark.any_backend
def test_positions_are_cached_once():
    copy = cache_positions(tiny_backbone(position_encoding="diet_abs"))
    with pytest.raises(ValueError, match="cached_positions=True"):
        cache_positions(copy)
