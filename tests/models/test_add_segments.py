"""Segments for models that were pretrained without (appendix A of the paper)."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertMaskedLM, add_segments
from tests.helpers import to_numpy
from tests.models.tiny import (
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)


def without_segments(**arguments):
    return randomize_weights(tiny_backbone(segment_encoding="none", **arguments))


@pytest.mark.parametrize(("position_encoding", "num_segments"), [("diet_rel", 2), ("input", 3)])
def test_outputs_are_those_of_the_pretrained_model(rng, position_encoding, num_segments):
    pretrained = without_segments(position_encoding=position_encoding)
    backbone = add_segments(pretrained, num_segments)
    assert backbone.segment_encoding == "per-head"
    assert backbone.num_segments == num_segments
    inputs = random_inputs(rng, num_segments=num_segments)
    expected = pretrained(inputs)
    for name, output in backbone(inputs).items():
        np.testing.assert_allclose(to_numpy(output), to_numpy(expected[name]), atol=1e-5)


def test_segments_are_trained_and_the_pretrained_model_is_not(rng):
    """On JAX, compiled training steps destroy arrays that another model shares."""
    pretrained = without_segments()
    before = [to_numpy(weight) for weight in pretrained.weights]
    backbone = add_segments(pretrained)
    model = keras.Model(backbone.input, backbone(backbone.input)["sequence_output"])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    inputs = random_inputs(rng)
    model.fit(inputs, rng.normal(size=(2, 11, 15)), verbose=0)
    for layer in backbone.encoder.segment_biases:
        assert np.abs(to_numpy(layer.segment_embedding)).max() > 1e-6
    for weight, values in zip(pretrained.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), values)


@pytest.mark.any_backend
def test_a_task_keeps_its_head(rng):
    task = DietBertMaskedLM(without_segments())
    randomize_weights(task)
    inputs, _, _ = random_masked_inputs(rng)
    extended = add_segments(task)
    assert isinstance(extended, DietBertMaskedLM)
    np.testing.assert_allclose(to_numpy(extended(inputs)), to_numpy(task(inputs)), atol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("segment_encoding", ["per-head", "input"])
def test_segments_that_are_there_are_not_replaced(segment_encoding):
    model = tiny_backbone(segment_encoding=segment_encoding)
    with pytest.raises(ValueError, match=f"has segments already.*{segment_encoding!r}"):
        add_segments(model)


@pytest.mark.any_backend
def test_models_that_cannot_get_segments():
    with pytest.raises(ValueError, match=r"`model` must be.*DietBertBackbone.*Dense"):
        add_segments(keras.layers.Dense(3))
    with pytest.raises(ValueError, match="`num_segments` must be a positive int"):
        add_segments(without_segments(), num_segments=0)
    with pytest.raises(ValueError, match="a projected key has no segment"):
        add_segments(without_segments(projection_dim=5))


@pytest.mark.any_backend
def test_a_model_with_lora_is_refused():
    model = without_segments()
    model.enable_lora(rank=2)
    with pytest.raises(ValueError, match=r"before `quantize` and `enable_lora`"):
        add_segments(model)
