"""Quantized models: how far they are from the float ones, and that files give them back."""

import json
import warnings

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.segment_bias import SegmentBias
from keras_diet.models import DietBertBackbone, DietBertMaskedLM, DietBertTextClassifier
from tests.helpers import assert_close, to_numpy
from tests.models.tasks import random_data, tiny_task
from tests.models.tiny import random_inputs, randomize_weights, tiny_backbone

# Largest difference of quantized outputs, relative to the largest of the float model.
ERRORS = {"int8": 0.05, "float8": 0.2, "int4": 0.6}
pytestmark = pytest.mark.usefixtures("quick_quantization")
any_backend = pytest.mark.any_backend
every_mode = pytest.mark.parametrize(
    "mode", ["int8", *(pytest.param(mode, marks=any_backend) for mode in ("float8", "int4"))]
)


def quantized_layers(model):
    return [layer for layer in model._flatten_layers() if layer.quantization_mode is not None]


def policy_names(model):
    layers = [layer for layer in model._flatten_layers() if layer.weights]
    return {layer.path: layer.dtype_policy.name for layer in layers}


@pytest.fixture
def classifier():
    return randomize_weights(tiny_task("classifier", with_preprocessor=False))


@every_mode
def test_quantized_tasks_stay_close_and_are_loaded_as_saved(rng, tmp_path, classifier, mode):
    inputs = random_inputs(rng)
    expected = classifier.predict(inputs, verbose=0)
    classifier.quantize(mode)
    outputs = classifier.predict(inputs, verbose=0)
    error = np.abs(outputs - expected).max() / np.abs(expected).max()
    assert 1e-6 < error < ERRORS[mode]

    classifier.save_to_preset(tmp_path)
    classifier.save(tmp_path / "classifier.keras")
    for loaded in (
        DietBertTextClassifier.from_preset(str(tmp_path)),
        keras_hub.models.TextClassifier.from_preset(str(tmp_path)),
        keras.saving.load_model(tmp_path / "classifier.keras"),
    ):
        assert len(quantized_layers(loaded)) == len(quantized_layers(classifier))
        assert_close(loaded(inputs), outputs, 1e-5)


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    "part", ["task", pytest.param("backbone", marks=any_backend("tensorflow"))]
)
def test_compiled_tasks_use_quantized_weights(rng, classifier, part):
    inputs = random_inputs(rng)
    before = classifier.predict(inputs, verbose=0)
    (classifier if part == "task" else classifier.backbone).quantize("int8")
    after = classifier.predict(inputs, verbose=0)
    assert np.abs(after - before).max() > 1e-5
    # An eager call compiles nothing.
    assert_close(after, classifier(inputs), 1e-5)


@pytest.mark.skipif(keras.config.backend() != "torch", reason="PyTorch's lists of parameters")
def test_torch_parameters_are_the_quantized_ones(classifier):
    classifier.build(classifier.input_shape)
    classifier.quantize("int8")
    parameters = {id(parameter) for parameter in classifier.parameters()}
    assert parameters == {id(variable.value) for variable in classifier.variables}


@any_backend
@pytest.mark.parametrize("task", ["masked_lm", "embedder"])
def test_other_tasks_are_loaded_as_saved(rng, tmp_path, task):
    inputs = random_data(task, rng)[0]
    model = randomize_weights(tiny_task(task, with_preprocessor=False))
    expected = to_numpy(model(inputs))
    model.quantize("int8")
    outputs = to_numpy(model(inputs))
    assert 1e-6 < np.abs(outputs - expected).max() / np.abs(expected).max() < ERRORS["int8"]
    model.save_to_preset(tmp_path)
    loaded = type(model).from_preset(str(tmp_path))
    assert len(quantized_layers(loaded)) == len(quantized_layers(model)) > 0
    assert_close(loaded(inputs), outputs, 1e-5)


@any_backend
@pytest.mark.parametrize("position_encoding", ["diet_abs", "input"])
def test_what_is_quantized(classifier, position_encoding):
    model = tiny_task("classifier", with_preprocessor=False, position_encoding=position_encoding)
    model.quantize("int8")
    names = sorted(layer.name for layer in quantized_layers(model) if layer.built)
    block = ["attention_output", "feedforward_intermediate_dense", "feedforward_output_dense"]
    block += ["key", "query", "value"]
    assert set(block) | {"pooled_dense", "token_embedding"} <= set(names)
    assert model.output_dense.quantization_mode is None
    for layer in model._flatten_layers():
        if isinstance(layer, PositionBias | SegmentBias):
            assert {weight.dtype for weight in layer.weights} == {"float32"}


@pytest.mark.parametrize(
    "implementation", [pytest.param("features", marks=any_backend), "blockwise"]
)
def test_ways_of_attention_agree_when_quantized(rng, implementation):
    inputs = random_inputs(rng)
    outputs = []
    for each in ("full", implementation):
        backbone = randomize_weights(tiny_backbone(num_layers=1, attention_implementation=each))
        backbone.quantize("int8")
        outputs.append(backbone(inputs)["sequence_output"])
    assert_close(*outputs, 1e-2)  # a step of int8 here and there


@any_backend
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float32"])
def test_backbones_are_loaded_as_saved(rng, tmp_path, dtype):
    inputs = random_inputs(rng)
    backbone = randomize_weights(tiny_backbone(num_layers=1, dtype=dtype))
    backbone.quantize("int8")
    policies, loaded = policy_names(backbone.encoder), backbone
    assert {f"int8_from_{dtype}", dtype} == set(policies.values())
    for _ in range(2):
        loaded.save_to_preset(tmp_path)
        loaded = DietBertBackbone.from_preset(str(tmp_path))
        assert policy_names(loaded.encoder) == policy_names(backbone.encoder) == policies
    assert_close(loaded(inputs)["pooled_output"], backbone(inputs)["pooled_output"], 1e-6)


@any_backend
def test_other_tasks_start_from_a_quantized_preset(rng, tmp_path, classifier):
    classifier.quantize("int8")
    classifier.save_to_preset(tmp_path)
    masked_lm = DietBertMaskedLM.from_preset(str(tmp_path), preprocessor=None)
    assert np.isfinite(to_numpy(masked_lm(random_data("masked_lm", rng)[0]))).all()
    new_head = DietBertTextClassifier.from_preset(str(tmp_path), num_classes=4)
    assert new_head.output_dense.quantization_mode is None
    inputs = random_inputs(rng)
    expected = classifier.backbone(inputs)["pooled_output"]
    for model in (masked_lm, new_head):
        assert_close(model.backbone(inputs)["pooled_output"], expected, 1e-6)


@any_backend
@pytest.mark.parametrize("cls", [DietBertBackbone, DietBertTextClassifier])
def test_quantized_presets_have_one_dtype(tmp_path, classifier, cls):
    classifier.quantize("int8")
    classifier.save_to_preset(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["config"]["dtype"]
    policy = keras.dtype_policies.get(saved)
    int4 = keras.dtype_policies.get("int4_from_float32")
    other = keras.dtype_policies.DTypePolicyMap(policy.default_policy, {"query": int4})
    for dtype in ("bfloat16", "int4_from_float32", other):
        with pytest.raises(ValueError, match="leave `dtype` out"):
            cls.from_preset(str(tmp_path), dtype=dtype)
    loaded = cls.from_preset(str(tmp_path), dtype=policy)
    assert len(quantized_layers(loaded)) == len(quantized_layers(classifier))


@any_backend
@pytest.mark.parametrize("file", ["folder", "model.keras"])
def test_models_with_custom_quantizers_are_not_saved(tmp_path, classifier, file):
    weights_only = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    classifier.quantize(config=weights_only, filters="feedforward")
    save = classifier.save if file == "model.keras" else classifier.save_to_preset
    with pytest.raises(ValueError, match=r"quantizers.*feedforward_output_dense"):
        save(tmp_path / file)
    assert not list(tmp_path.rglob("*.h5"))


@any_backend
@pytest.mark.parametrize("block_size", [8, None])
def test_sizes_of_blocks_are_loaded_as_saved(rng, tmp_path, classifier, block_size):
    config = keras.quantizers.Int4QuantizationConfig(block_size=block_size)
    classifier.quantize(config=config)
    classifier.save_to_preset(tmp_path)
    inputs = random_inputs(rng)
    loaded = DietBertTextClassifier.from_preset(str(tmp_path))
    assert_close(loaded(inputs), classifier(inputs), 1e-5)


@any_backend
def test_filters_choose_layers_of_the_backbone(rng, tmp_path, classifier):
    classifier.quantize("int8", filters="feedforward|logits")
    names = {layer.name for layer in quantized_layers(classifier)}
    assert names == {"feedforward_intermediate_dense", "feedforward_output_dense"}
    classifier.quantize("int8", filters="token_embedding")
    classifier.save_to_preset(tmp_path)
    loaded = DietBertTextClassifier.from_preset(str(tmp_path))
    assert {layer.name for layer in quantized_layers(loaded)} == names | {"token_embedding"}
    inputs = random_inputs(rng)
    assert_close(loaded(inputs), classifier(inputs), 1e-6)


@any_backend
@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_quantize_is_quiet(classifier, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        classifier.quantize(mode)


@any_backend
def test_other_warnings_of_quantize_are_shown(classifier, monkeypatch):
    def warn(*args, **kwargs):
        raise NotImplementedError("Something else.")

    monkeypatch.setattr(classifier.backbone.pooled_dense, "quantize", warn)
    with pytest.warns(UserWarning, match=r"^Something else\.$") as shown:
        classifier.quantize("int8")
    assert [str(each.message) for each in shown if each.category is UserWarning] == [
        "Something else."
    ]


@any_backend
@pytest.mark.parametrize("filters", ["no_such_layer", ["dropout", "layer_norm"]])
def test_filters_must_choose_a_layer(classifier, filters):
    with pytest.raises(ValueError, match="`filters` must select at least one layer") as error:
        classifier.quantize("int8", filters=filters)
    assert str(error.value).endswith(f"Received: filters={filters!r}")
    classifier.quantize("int8")
