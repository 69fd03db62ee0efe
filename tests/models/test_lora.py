"""LoRA: what is adapted and trained, and files of it."""

import keras
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


def state(model):
    return {v.path: (v.trainable, to_numpy(v)) for v in model.weights}


def assert_same_state(model, old):
    new = state(model)
    assert list(new) == list(old)
    for path, (trainable, value) in new.items():
        assert trainable == old[path][0]
        np.testing.assert_array_equal(value, old[path][1])


@pytest.fixture
def adapted(rng):
    backbone = randomize_weights(tiny_backbone())
    backbone.enable_lora(rank=2)
    return randomize_adapters(backbone, rng)


@pytest.mark.parametrize("position_encoding", ["diet_abs", "shaw", "transformer_xl"])
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


@pytest.mark.filterwarnings("error::UserWarning")
def test_keras_files_have_the_adapters_in_the_kernels(rng, tmp_path):
    """They have no state of the optimizer, which belongs to the adapters."""
    model = randomize_weights(tiny_task("classifier", with_preprocessor=False))
    model.backbone.enable_lora(rank=2)
    inputs, labels, _ = random_data("classifier", rng)
    optimizer = model.optimizer
    save = keras.callbacks.ModelCheckpoint(tmp_path / "task.keras")
    model.fit(inputs, labels, epochs=2, callbacks=[save], verbose=0)
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert_close(loaded(inputs), model(inputs), 1e-5)
    assert not adapters(loaded)
    assert float(loaded.optimizer.learning_rate) == float(optimizer.learning_rate)
    for each in (model, loaded):
        each.fit(inputs, labels, verbose=0)
    assert model.optimizer is optimizer
    assert int(optimizer.iterations) == 3
    assert int(loaded.optimizer.iterations) == 1


@pytest.mark.any_backend
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


@pytest.mark.any_backend
@pytest.mark.parametrize("file_first", [True, False])
def test_lora_files_bring_all_their_layers_and_no_others(rng, tmp_path, file_first):
    names = ["query", "key", "pooled_dense"]
    adapted = randomize_weights(tiny_backbone())
    adapted.enable_lora(2, target_layer_names=names)
    randomize_adapters(adapted, rng).save_lora_weights(tmp_path / "task.lora.h5")
    other = randomize_weights(tiny_backbone())
    if not file_first:
        other.enable_lora(2, target_layer_names=names)
    other.load_lora_weights(tmp_path / "task.lora.h5")
    assert len(adapters(other)) == len(adapters(adapted)) == 2 * (2 * 2 + 1)
    inputs = random_inputs(rng)
    assert_close(other(inputs)["pooled_output"], adapted(inputs)["pooled_output"], 1e-6)


OTHER_MODELS = {"model": {"num_layers": 1}, "size": {"hidden_dim": 18}, "heads": {"num_heads": 5}}


@pytest.mark.any_backend
@pytest.mark.parametrize("other", ["layers", "rank", *OTHER_MODELS])
def test_lora_files_of_other_adapters_are_refused(tmp_path, adapted, other):
    adapted.save_lora_weights(tmp_path / "task.lora.h5")
    backbone = tiny_backbone(**OTHER_MODELS.get(other, {}))
    if other == "layers":
        backbone.enable_lora(2, target_layer_names=["query"])
    elif other == "rank":
        backbone.enable_lora(3)
    old = state(backbone)
    with pytest.raises(ValueError, match=r"task\.lora\.h5"):
        backbone.load_lora_weights(tmp_path / "task.lora.h5")
    assert_same_state(backbone, old)


@pytest.mark.any_backend
@pytest.mark.usefixtures("quick_quantization")
def test_lora_files_and_quantized_backbones(rng, tmp_path):
    names = ["query", "attention_output", "pooled_dense"]
    adapted = randomize_weights(tiny_backbone(num_layers=1))
    adapted.enable_lora(2, target_layer_names=names)
    randomize_adapters(adapted, rng).save_lora_weights(tmp_path / "task.lora.h5")
    backbone, other = (tiny_backbone(num_layers=1, hidden_dim=size) for size in (15, 18))
    for model in (backbone, other):
        model.quantize("int4")
    backbone.load_lora_weights(tmp_path / "task.lora.h5")
    for path, weight in adapters(adapted).items():
        np.testing.assert_array_equal(to_numpy(adapters(backbone)[path]), to_numpy(weight))
    old = state(other)
    with pytest.raises(
        ValueError, match=r"task\.lora\.h5` was saved with a backbone of other sizes"
    ):
        other.load_lora_weights(tmp_path / "task.lora.h5")
    assert_same_state(other, old)


@pytest.mark.any_backend
@pytest.mark.parametrize("share", [0, 0.5, 0.95, None])
def test_damaged_lora_files_are_refused(tmp_path, adapted, share):
    path = tmp_path / "task.lora.h5"
    if share is None:
        adapted.save_weights(tmp_path / "task.weights.h5")
        (tmp_path / "task.weights.h5").rename(path)
    else:
        adapted.save_lora_weights(path)
        data = path.read_bytes()
        path.write_bytes(data[: int(share * len(data))])
    backbone = tiny_backbone()
    with pytest.raises(ValueError, match=r"task\.lora\.h5` is not a"):
        backbone.load_lora_weights(path)
    assert adapters(backbone) == {}


@pytest.mark.any_backend
def test_a_second_enable_lora_is_refused_and_changes_nothing(rng, tmp_path, adapted):
    old = state(adapted)
    for names in (None, ["key"]):
        with pytest.raises(ValueError, match=r"LoRA can be enabled once.*\['query', 'value'\]"):
            adapted.enable_lora(3, target_layer_names=names)
    assert_same_state(adapted, old)
    adapted.save_lora_weights(tmp_path / "task.lora.h5")


@pytest.mark.any_backend("tensorflow")
@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("from_file", [True, False])
def test_compiled_tasks_use_adapters(rng, tmp_path, adapted, from_file):
    backbone = randomize_weights(tiny_backbone())
    classifier = DietBertTextClassifier(backbone, num_classes=3)
    inputs = random_inputs(rng)
    before = classifier.predict(inputs, verbose=0)
    if from_file:
        adapted.save_lora_weights(tmp_path / "task.lora.h5")
        backbone.load_lora_weights(tmp_path / "task.lora.h5")
    else:
        backbone.enable_lora(rank=2)
        randomize_adapters(backbone, rng)
    after = classifier.predict(inputs, verbose=0)
    assert np.abs(after - before).max() > 1e-3
    # An eager call compiles nothing.
    assert_close(after, classifier(inputs), 1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize("names", [["queries"], ["query", "encoder"], ["token_embedding"]])
def test_unknown_layers_are_refused(names):
    backbone = tiny_backbone()
    old = state(backbone)
    with pytest.raises(ValueError, match=r"`target_layer_names` must be one of .*'query'"):
        backbone.enable_lora(2, target_layer_names=names)
    assert_same_state(backbone, old)


@pytest.mark.any_backend
def test_no_layers_are_refused():
    with pytest.raises(ValueError, match="must name at least one layer"):
        tiny_backbone().enable_lora(2, target_layer_names=[])


@pytest.mark.any_backend
def test_rank_must_be_positive():
    with pytest.raises(ValueError, match="`rank` must be a positive integer"):
        tiny_backbone().enable_lora(0)
