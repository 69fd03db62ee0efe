"""Presets, files, adapters, quantization and export of the DietTransformer models."""

import json

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import (
    DietBertTextClassifierPreprocessor,
    DietTransformerBackbone,
    DietTransformerSeq2SeqLM,
    DietTransformerSeq2SeqLMPreprocessor,
    DietTransformerTokenizer,
)
from keras_diet.samplers import BeamSearchSampler
from tests.helpers import assert_close, to_numpy
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.diet_transformer.tiny import (
    SOURCE_LENGTH,
    TARGET_LENGTH,
    random_inputs,
    tiny_task,
    tiny_translator,
)

any_backend = pytest.mark.any_backend
BACKEND = keras.backend.backend()


@pytest.fixture
def translator(proto):
    translator = tiny_translator(proto, length_buckets=(9, 31))
    translator.compile(sampler="greedy")
    return translator


def greedy(translator):
    translator.compile(sampler="greedy")
    return translator.generate(SOURCES[:3], max_length=7)


# === Presets ===


@pytest.mark.parametrize(
    "cls",
    [pytest.param(DietTransformerSeq2SeqLM, marks=any_backend), keras_hub.models.Seq2SeqLM],
)
def test_tasks(tmp_path, translator, cls):
    translator.save_to_preset(str(tmp_path))
    assert not (tmp_path / "task.weights.h5").exists(), "the head has no weights of its own"
    loaded = cls.from_preset(str(tmp_path))
    assert type(loaded) is DietTransformerSeq2SeqLM
    assert loaded.preprocessor.length_buckets == (9, 31)
    assert loaded.preprocessor.decoder_sequence_length == 17
    for weight, other in zip(loaded.weights, translator.weights, strict=True):
        assert weight.path.split("/")[1:] == other.path.split("/")[1:]
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(other))
    assert greedy(loaded) == greedy(translator)


@any_backend
def test_tasks_without_a_preprocessor(rng, tmp_path):
    task = tiny_task(num_layers=1, position_encoding="sinusoidal")
    task.save_to_preset(tmp_path)
    loaded = keras_hub.models.Seq2SeqLM.from_preset(str(tmp_path), preprocessor=None)
    inputs = random_inputs(rng)
    assert_close(loaded(inputs), task(inputs), 1e-6)
    random = DietTransformerSeq2SeqLM.from_preset(
        str(tmp_path), load_weights=False, preprocessor=None
    )
    assert np.abs(to_numpy(random(inputs)) - to_numpy(task(inputs))).max() > 0.1


@any_backend
@pytest.mark.parametrize(
    "part, base, cls",
    [
        ("backbone", keras_hub.models.Backbone, DietTransformerBackbone),
        (
            "preprocessor",
            keras_hub.models.Seq2SeqLMPreprocessor,
            DietTransformerSeq2SeqLMPreprocessor,
        ),
        ("tokenizer", keras_hub.models.Tokenizer, DietTransformerTokenizer),
    ],
)
def test_parts(rng, tmp_path, translator, part, base, cls):
    owner = translator if part != "tokenizer" else translator.preprocessor
    saved = getattr(owner, part)
    for kind, folder in (("part", tmp_path / "part"), ("task", tmp_path / "task")):
        if kind == "part":
            # KerasHub needs a backbone in the preset.
            translator.backbone.save_to_preset(folder)
        (saved if kind == "part" else translator).save_to_preset(folder)
        for each in (base, cls):
            loaded = each.from_preset(str(folder))
            assert type(loaded) is cls
            if part == "backbone":
                inputs = random_inputs(rng)
                for name, output in saved(inputs).items():
                    assert_close(loaded(inputs)[name], output, 1e-6)
            elif part == "tokenizer":
                assert loaded(SOURCES) == saved(SOURCES)
            else:
                assert_close(loaded(SOURCES, TARGETS)[1], saved(SOURCES, TARGETS)[1])
                config, other = loaded.get_config(), saved.get_config()
                assert config["length_buckets"] == other["length_buckets"]


@any_backend
def test_a_task_of_a_backbone_and_a_tokenizer_saved_alone(tmp_path, translator):
    translator.backbone.save_to_preset(tmp_path)
    translator.preprocessor.tokenizer.save_to_preset(tmp_path)
    loaded = DietTransformerSeq2SeqLM.from_preset(str(tmp_path))
    # The defaults are 256, and the backbone takes 71.
    assert loaded.preprocessor.encoder_sequence_length == 71
    assert loaded.preprocessor.decoder_sequence_length == 71
    assert greedy(loaded) == greedy(translator)


@any_backend
def test_presets_of_other_sizes_are_refused(tmp_path, translator, shuffled_proto):
    translator.save_to_preset(tmp_path)
    (tmp_path / "assets" / "tokenizer" / "vocabulary.spm").write_bytes(shuffled_proto)
    with pytest.raises(ValueError, match="59"):
        DietTransformerSeq2SeqLM.from_preset(str(tmp_path))
    with pytest.raises(ValueError, match="DietTransformer"):
        DietBertTextClassifierPreprocessor.from_preset(str(tmp_path))


@any_backend
def test_damaged_and_missing_files_are_named(tmp_path, translator):
    translator.save_to_preset(tmp_path)
    classes = {
        "task.json": DietTransformerSeq2SeqLM,
        "preprocessor.json": DietTransformerSeq2SeqLMPreprocessor,
        "tokenizer.json": DietTransformerTokenizer,
        "assets/tokenizer/vocabulary.spm": DietTransformerTokenizer,
        "config.json": DietTransformerBackbone,
        "model.weights.h5": DietTransformerSeq2SeqLM,
    }
    for file, cls in classes.items():
        path = tmp_path / file
        content = path.read_bytes()
        path.write_bytes(content[:100])
        with pytest.raises(ValueError, match=path.name):
            cls.from_preset(str(tmp_path))
        path.write_bytes(content)
    assert isinstance(keras_hub.models.Seq2SeqLM.from_preset(str(tmp_path)), keras.Model)


@any_backend
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_policies_are_loaded_as_saved(rng, tmp_path, dtype):
    task = tiny_task(num_layers=1, dtype=dtype)
    task.save_to_preset(tmp_path)
    for cls in (DietTransformerSeq2SeqLM, keras_hub.models.Seq2SeqLM):
        # KerasHub's class does not load such policies by itself.
        changes = {} if cls is DietTransformerSeq2SeqLM else {"dtype": dtype}
        loaded = cls.from_preset(str(tmp_path), preprocessor=None, **changes)
        assert loaded.backbone.dtype_policy.name == dtype
        inputs = random_inputs(rng)
        assert_close(loaded(inputs), task(inputs), 1e-2)
    exact = DietTransformerSeq2SeqLM.from_preset(str(tmp_path), dtype="float32", preprocessor=None)
    assert exact.backbone.dtype_policy.name == "float32"


def test_keras_files(tmp_path, translator):
    translator.compile("sgd", translator.loss, sampler="greedy")
    translator.fit(SOURCES, TARGETS, verbose=0)
    translator.save(tmp_path / "translator.keras")
    loaded = keras.saving.load_model(tmp_path / "translator.keras")
    assert type(loaded) is DietTransformerSeq2SeqLM
    assert int(loaded.optimizer.iterations) == 1
    assert loaded.preprocessor.length_buckets == (9, 31)
    for weight, other in zip(loaded.weights, translator.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(other))
    assert greedy(loaded) == greedy(translator)
    assert loaded.fit(SOURCES, TARGETS, verbose=0).history["loss"][0] > 0


@any_backend
def test_keras_files_hold_the_sampler(tmp_path):
    task = tiny_task(num_layers=1)
    for sampler in (BeamSearchSampler(3, 1.7), keras_hub.samplers.TopPSampler(p=0.3, seed=5)):
        task.compile(sampler=sampler)
        task.save(tmp_path / "task.keras")
        loaded = keras.saving.load_model(tmp_path / "task.keras")
        assert type(loaded.sampler) is type(sampler)
        assert loaded.sampler.get_config() == sampler.get_config()
    # Without `compile` there is none.
    assert not DietTransformerSeq2SeqLM(task.backbone, compile=False).get_compile_config()


@any_backend
def test_weights_files(rng, tmp_path):
    task, other = tiny_task(num_layers=1), tiny_task(num_layers=1, normalize_first=True)
    for weight in task.weights:
        weight.assign(0.5 * weight)
    task.save_weights(tmp_path / "task.weights.h5")
    other.load_weights(tmp_path / "task.weights.h5")
    inputs = random_inputs(rng)
    assert_close(other(inputs), task(inputs), 1e-5)
    task.backbone.save_weights(tmp_path / "backbone.weights.h5")
    with pytest.raises(ValueError, match="could not be loaded"):
        tiny_task(num_layers=2).backbone.load_weights(tmp_path / "backbone.weights.h5")


# === LoRA ===


def adapters(model):
    return [weight for weight in model.weights if "lora_kernel" in weight.path]


def test_lora(rng, tmp_path):
    task = tiny_task(num_layers=1)
    inputs = random_inputs(rng)
    labels = inputs["decoder_token_ids"]
    before = to_numpy(task(inputs))
    task.backbone.enable_lora(rank=2)
    assert_close(task(inputs), before, 1e-5)
    # Queries and values of self-attention in both stacks, and of cross-attention.
    assert len(adapters(task)) == 2 * 2 * 3
    assert {w.path for w in task.trainable_weights} == {w.path for w in adapters(task)}
    old = {weight.path: to_numpy(weight) for weight in task.weights}
    task.compile("sgd", task.loss)
    for _ in range(2):  # the first step leaves A where it is, since B is zero
        task.fit(inputs, labels, sample_weight=inputs["decoder_padding_mask"], verbose=0)
    changed = {w.path for w in task.weights if np.any(to_numpy(w) != old[w.path])}
    assert changed == {weight.path for weight in adapters(task)}

    for weight in adapters(task):
        weight.assign(rng.normal(scale=0.3, size=weight.shape))
    expected = to_numpy(task(inputs))
    task.backbone.save_lora_weights(tmp_path / "task.lora.h5")
    other = tiny_task(num_layers=1)
    other.backbone.load_lora_weights(tmp_path / "task.lora.h5")
    assert_close(other(inputs), expected, 1e-5)
    task.save_to_preset(tmp_path)
    merged = DietTransformerSeq2SeqLM.from_preset(str(tmp_path), preprocessor=None)
    assert adapters(merged) == []
    assert_close(merged(inputs), expected, 1e-5)


# === Quantization ===


@pytest.mark.usefixtures("quick_quantization")
def test_quantized_tasks(rng, tmp_path):
    task = tiny_task(num_layers=1)
    inputs = random_inputs(rng)
    before = to_numpy(task(inputs))
    task.quantize("int8")
    after = to_numpy(task(inputs))
    difference = np.abs(after - before).max() / np.abs(before).max()
    assert 1e-5 < difference < 0.1
    names = {
        layer.path.rpartition("/")[2]
        for layer in task._flatten_layers()
        if getattr(layer, "quantization_mode", None)
    }
    assert {"query", "key", "value", "attention_output", "token_embedding"} <= names
    task.save_to_preset(tmp_path)
    task.save(tmp_path / "task.keras")
    for loaded in (
        keras_hub.models.Seq2SeqLM.from_preset(str(tmp_path), preprocessor=None),
        keras.saving.load_model(tmp_path / "task.keras"),
    ):
        assert_close(loaded(inputs), after, 1e-5)


# === Export ===


def test_export(rng, tmp_path):
    task = tiny_task(num_layers=1)
    inputs = random_inputs(rng)
    shapes = {"encoder": (2, SOURCE_LENGTH), "decoder": (2, TARGET_LENGTH)}
    signature = {
        name: keras.InputSpec(shape=shapes[name.split("_")[0]], dtype="int32", name=name)
        for name in task.input
    }
    if BACKEND == "torch":
        import torch

        path = str(tmp_path / "model.pt2")
        task.export(path, format="torch", input_signature=[signature], verbose=False)
        model = torch.export.load(path).module()
        output = model({name: torch.tensor(value) for name, value in inputs.items()}).detach()
    else:
        import tensorflow as tf

        path = str(tmp_path / "model")
        task.export(path, format="tf_saved_model", input_signature=[signature], verbose=False)
        model = tf.saved_model.load(path)
        output = model.serve({name: tf.constant(value) for name, value in inputs.items()})
    assert_close(np.asarray(output), to_numpy(task(inputs)))


@any_backend
def test_files_say_which_library_reads_them(tmp_path, translator):
    translator.save_to_preset(tmp_path)
    metadata = json.loads((tmp_path / "metadata.json").read_text())
    assert metadata["tasks"] == ["Seq2SeqLM"]
