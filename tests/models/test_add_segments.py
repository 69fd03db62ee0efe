"""Segments for models that were pretrained without (appendix A of the paper)."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertMaskedLM, add_segments
from tests.helpers import assert_close, once, to_numpy
from tests.models.tiny import (
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)


def without_segments(**arguments):
    return randomize_weights(tiny_backbone(segment_encoding="none", **arguments))


@pytest.mark.parametrize(
    ("position_encoding", "num_segments", "segment_encoding"),
    [
        ("diet_rel", 2, "per-head"),
        ("input", 3, "per-head"),
        ("diet_abs", 3, "input"),
        *once(("input", 2, "input"), ("sinusoidal", 3, "input"), ("shaw", 2, "input")),
    ],
)
def test_outputs_are_those_of_the_pretrained_model(
    rng, position_encoding, num_segments, segment_encoding
):
    pretrained = without_segments(position_encoding=position_encoding)
    backbone = add_segments(pretrained, num_segments, segment_encoding)
    assert backbone.segment_encoding == segment_encoding
    assert backbone.num_segments == num_segments
    inputs = random_inputs(rng, num_segments=num_segments)
    expected = pretrained(inputs)
    for name, output in backbone(inputs).items():
        np.testing.assert_allclose(to_numpy(output), to_numpy(expected[name]), atol=1e-5)


@pytest.mark.parametrize("segment_encoding", ["per-head", "input"])
def test_segments_are_trained_and_the_pretrained_model_is_not(rng, segment_encoding):
    """On JAX, compiled training steps destroy arrays that another model shares."""
    pretrained = without_segments()
    before = [to_numpy(weight) for weight in pretrained.weights]
    backbone = add_segments(pretrained, segment_encoding=segment_encoding)
    model = keras.Model(backbone.input, backbone(backbone.input)["sequence_output"])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    inputs = random_inputs(rng)
    model.fit(inputs, rng.normal(size=(2, 11, 15)), verbose=0)
    weights = [layer.segment_embedding for layer in backbone.encoder.segment_biases]
    if segment_encoding == "input":
        assert weights == []
        weights = [backbone.input_encoding.segment_embedding.embeddings]
        assert weights[0].shape == (2, 15)
    for weight in weights:
        # Each segment gets another vector or score.
        assert np.abs(np.diff(to_numpy(weight), axis=-2)).max() > 1e-6
    for weight, values in zip(pretrained.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), values)


@pytest.mark.any_backend
@pytest.mark.parametrize("segment_encoding", ["per-head", "input"])
def test_a_task_keeps_its_head_and_its_frozen_layers(rng, segment_encoding):
    task = DietBertMaskedLM(without_segments())
    randomize_weights(task)
    task.backbone.embeddings_layer_norm.trainable = False
    inputs, _, _ = random_masked_inputs(rng)
    extended = add_segments(task, segment_encoding=segment_encoding)
    assert not extended.backbone.embeddings_layer_norm.trainable
    added = len(extended.trainable_weights) - len(task.trainable_weights)
    assert added == {"per-head": 2, "input": 1}[segment_encoding]
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
    with pytest.raises(ValueError, match=r"`segment_encoding` must be.*'none'"):
        add_segments(without_segments(), segment_encoding="none")
    with pytest.raises(ValueError, match="a projected key has no segment"):
        add_segments(without_segments(projection_dim=5))


@pytest.mark.any_backend
def test_a_model_with_projected_keys_gets_segments_at_the_input(rng):
    """Table 2 has this row: DIET-ABS-LIN with segments at the input."""
    pretrained = without_segments(projection_dim=5)
    backbone = add_segments(pretrained, segment_encoding="input")
    inputs = random_inputs(rng)
    assert_close(backbone(inputs)["pooled_output"], pretrained(inputs)["pooled_output"], 1e-5)


@pytest.mark.any_backend
def test_a_model_with_lora_is_refused():
    model = without_segments()
    model.enable_lora(rank=2)
    with pytest.raises(ValueError, match=r"before `quantize` and `enable_lora`"):
        add_segments(model)
