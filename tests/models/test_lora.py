"""LoRA: what is adapted and trained, and files of it."""

import numpy as np
import pytest

from keras_diet.models import DietBertBackbone, DietBertTextClassifier
from tests.helpers import assert_close, to_numpy
from tests.models.tasks import random_data, tiny_task
from tests.models.tiny import random_inputs, randomize_weights, tiny_backbone


def adapters(model):
    return {v.path: v for v in model.weights if "lora_kernel" in v.path}


def randomize_adapters(model, rng):
    for weight in adapters(model).values():
        weight.assign(rng.normal(scale=0.3, size=weight.shape))
    return model


@pytest.fixture
def adapted(rng):
    backbone = randomize_weights(tiny_backbone())
    backbone.enable_lora(rank=2)
    return randomize_adapters(backbone, rng)


@pytest.mark.parametrize("position_encoding", ["diet_abs", "diet_rel", "shaw", "input"])
def test_queries_and_values_are_adapted_and_nothing_else_is_trained(position_encoding):
    backbone = tiny_backbone(position_encoding=position_encoding)
    backbone.enable_lora(rank=2)
    attention = [layer.self_attention for layer in backbone.encoder.transformer_layers]
    layers = [layer for each in attention for layer in (each.query_dense, each.value_dense)]
    expected = {
        weight.path for layer in layers for weight in (layer.lora_kernel_a, layer.lora_kernel_b)
    }
    assert {weight.path for weight in backbone.trainable_weights} == expected
    assert len(expected) == 2 * 4


def test_adapters_change_nothing_at_first_and_fit_trains_them_and_the_head(rng):
    classifier = randomize_weights(tiny_task("classifier", with_preprocessor=False))
    inputs, labels, _ = random_data("classifier", rng)
    before = classifier(inputs)
    classifier.backbone.enable_lora(rank=2)
    assert_close(classifier(inputs), before, 1e-6)

    old = {weight.path: to_numpy(weight) for weight in classifier.weights}
    classifier.compile("sgd", classifier.loss)
    for _ in range(2):  # the first step leaves A where it is, since B is zero
        classifier.fit(inputs, labels, verbose=0)
    changed = {w.path for w in classifier.weights if np.any(to_numpy(w) != old[w.path])}
    head = {weight.path for weight in classifier.output_dense.weights}
    assert changed == set(adapters(classifier)) | head


def test_lora_files_bring_adapters_to_the_model_they_were_made_for(rng, tmp_path, adapted):
    inputs = random_inputs(rng)
    adapted.save_lora_weights(tmp_path / "task.lora.h5")
    other = randomize_weights(tiny_backbone())
    other.load_lora_weights(tmp_path / "task.lora.h5")
    assert_close(other(inputs)["pooled_output"], adapted(inputs)["pooled_output"], 1e-6)


def test_presets_have_the_adapters_merged_into_the_weights(rng, tmp_path, adapted):
    inputs = random_inputs(rng)
    adapted.save_to_preset(tmp_path)
    loaded = DietBertBackbone.from_preset(str(tmp_path))
    assert adapters(loaded) == {}
    assert_close(loaded(inputs)["pooled_output"], adapted(inputs)["pooled_output"], 1e-5)
    assert adapters(adapted)


@pytest.mark.usefixtures("quick_quantization")
@pytest.mark.parametrize("quantize_first", [True, False])
def test_adapters_and_int8_go_together(rng, tmp_path, quantize_first):
    classifier = randomize_weights(tiny_task("classifier", with_preprocessor=False))
    inputs = random_inputs(rng)
    if quantize_first:
        classifier.quantize("int8")
    classifier.backbone.enable_lora(rank=2)
    randomize_adapters(classifier, rng)
    expected = to_numpy(classifier(inputs))
    if not quantize_first:
        classifier.quantize("int8")
    classifier.save_to_preset(tmp_path)
    loaded = DietBertTextClassifier.from_preset(str(tmp_path))
    # Merged adapters are rounded once more, to steps of 1/127 of the largest weight.
    assert np.abs(to_numpy(loaded(inputs)) - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("names", [["queries"], ["query", "encoder"]])
def test_unknown_layers_are_refused(names):
    with pytest.raises(ValueError, match=r"`target_layer_names` must be one of .*'query'"):
        tiny_backbone().enable_lora(2, target_layer_names=names)


def test_rank_must_be_positive():
    with pytest.raises(ValueError, match="`rank` must be a positive integer"):
        tiny_backbone().enable_lora(0)
