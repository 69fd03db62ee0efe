"""Presets saved over others, interrupted, in half precision, and of custom classes."""

import json
import os
from pathlib import Path

import keras
import keras_hub
import pytest

from keras_diet.models import (
    DietBertBackbone,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
)
from keras_diet.models.hub import presets as preset_folder
from tests.helpers import assert_close
from tests.models.tasks import CLASSES, random_data, tiny_preprocessor, tiny_task
from tests.models.tiny import VOCABULARY, random_inputs, randomize_weights, tiny_backbone

BACKBONE = {"config.json", "metadata.json", "model.weights.h5"}
PREPROCESSOR = {"preprocessor.json", "tokenizer.json", "assets/tokenizer/vocabulary.txt"}
CLASSIFIER = BACKBONE | PREPROCESSOR | {"task.json", "task.weights.h5"}


def files(folder):
    return {str(file.relative_to(folder)) for file in Path(folder).rglob("*") if file.is_file()}


@pytest.fixture
def folder(tmp_path):
    """The preset of a classifier, with a file of the user's."""
    tiny_task("classifier").save_to_preset(tmp_path)
    (tmp_path / "README.md").write_text("A classifier.")
    assert files(tmp_path) == CLASSIFIER | {"README.md"}
    return tmp_path


def test_backbones_replace_tasks(rng, folder):
    backbone = randomize_weights(tiny_backbone(rank=5))
    backbone.save_to_preset(folder)
    assert files(folder) == BACKBONE | {"README.md"}
    loaded = DietBertBackbone.from_preset(folder)
    inputs = random_inputs(rng)
    assert_close(loaded(inputs)["pooled_output"], backbone(inputs)["pooled_output"], 1e-6)


@pytest.mark.any_backend
def test_tasks_replace_others(folder):
    tiny_task("embedder", with_preprocessor=False).save_to_preset(str(folder))
    assert files(folder) == BACKBONE | {"task.json", "README.md"}
    tiny_task("masked_lm").save_to_preset(str(folder))
    assert files(folder) == CLASSIFIER | {"README.md"}
    assert keras_hub.models.MaskedLM.from_preset(str(folder)).backbone.num_layers == 1


@pytest.mark.any_backend
def test_weights_in_one_file_replace_those_in_several(folder):
    backbone = tiny_backbone()
    backbone.save_to_preset(folder, max_shard_size=1e-5)
    assert "model.weights.json" in files(folder)
    assert "model.weights.h5" not in files(folder)
    assert type(DietBertBackbone.from_preset(str(folder))) is DietBertBackbone
    backbone.save_to_preset(folder)
    assert files(folder) == BACKBONE | {"README.md"}


@pytest.mark.any_backend
@pytest.mark.parametrize("first", ["backbone", "preprocessor"])
def test_preprocessors_saved_alone_stay(tmp_path, first):
    parts = {"backbone": tiny_backbone(), "preprocessor": tiny_preprocessor("classifier")}
    for name in sorted(parts, reverse=first == "preprocessor"):
        parts[name].save_to_preset(str(tmp_path))
    assert files(tmp_path) == BACKBONE | PREPROCESSOR


@pytest.mark.any_backend
@pytest.mark.parametrize("part", [DietBertBackbone, DietBertTextClassifier])
def test_an_interrupted_save_leaves_the_preset_as_it_was(folder, monkeypatch, part):
    before = {name: (folder / name).read_bytes() for name in files(folder)}
    model = tiny_task("classifier", rank=5)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(DietBertBackbone, "save_weights", interrupt)
    with pytest.raises(KeyboardInterrupt):
        (model if part is DietBertTextClassifier else model.backbone).save_to_preset(folder)
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["assets"]


@pytest.mark.any_backend
@pytest.mark.parametrize("moved", [0, 4, 7])
def test_files_of_two_presets_are_never_loaded_together(folder, monkeypatch, moved):
    replace, calls = os.replace, []

    def replace_some(*paths):
        if len(calls) == moved:
            raise KeyboardInterrupt
        calls.append(replace(*paths))

    monkeypatch.setattr(preset_folder.os, "replace", replace_some)
    with pytest.raises(KeyboardInterrupt):
        tiny_task("classifier").save_to_preset(folder)
    monkeypatch.undo()
    for part in (DietBertBackbone, DietBertTextClassifier):
        with pytest.raises(ValueError, match=r"config\.json"):
            part.from_preset(folder)


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    ("task", "policy"),
    [
        ("masked_lm", "mixed_float16"),
        ("classifier", "mixed_bfloat16"),
    ],
)
def test_mixed_policies_are_loaded_as_saved(rng, tmp_path, task, policy):
    cls = CLASSES[task][0]
    model = randomize_weights(tiny_task(task, dtype=policy))
    model.save_to_preset(tmp_path)
    loaded = cls.from_preset(str(tmp_path))
    assert loaded.dtype_policy.name == loaded.backbone.dtype_policy.name == policy
    assert DietBertBackbone.from_preset(str(tmp_path)).dtype_policy.name == policy
    inputs = random_data(task, rng)[0]
    # On TensorFlow KerasHub's head of a masked LM runs under mixed policies only compiled.
    model.preprocessor = loaded.preprocessor = None
    assert_close(loaded.predict(inputs, verbose=0), model.predict(inputs, verbose=0), 1e-2)
    assert cls.from_preset(str(tmp_path), dtype="float32").dtype_policy.name == "float32"
    base = next(base for base in cls.__mro__ if base.__module__.startswith("keras_hub."))
    assert base.from_preset(str(tmp_path), dtype=policy).dtype_policy.name == policy


@pytest.mark.any_backend
def test_tasks_of_users_are_named_by_their_kind(tmp_path):
    @keras.saving.register_keras_serializable(package="tests")
    class MyClassifier(DietBertTextClassifier):
        pass

    try:
        tiny_backbone().save_to_preset(tmp_path)
    finally:
        del keras.saving.get_custom_objects()["tests>MyClassifier"]
    tasks = json.loads((tmp_path / "metadata.json").read_text())["tasks"]
    assert tasks == ["MaskedLM", "TextClassifier", "TextEmbedder"]


@pytest.mark.any_backend
def test_files_that_may_not_be_read_are_not_called_damaged():
    with pytest.raises(PermissionError), complete_file("model.weights.h5"):
        raise PermissionError
    with (
        pytest.raises(ValueError, match="is not a complete weights file"),
        complete_file("weights.h5"),
    ):
        raise OSError


@pytest.mark.any_backend
@pytest.mark.parametrize("address", ["hf://user/bert", "kaggle://user/bert", "registered_name"])
@pytest.mark.parametrize("damage", [b"{", b"\xff"])
def test_damaged_presets_at_an_address_are_named(address, damage):
    words = rf"Preset {address} is damaged: one of its text files\. Copy"
    with pytest.raises(ValueError, match=words), complete_preset(address):
        json.loads(damage.decode("utf-8"))


@pytest.mark.any_backend
@pytest.mark.parametrize("file", ["config.json", "task.json", "assets/tokenizer/vocabulary.txt"])
def test_files_that_are_not_text_are_named(folder, file):
    (folder / file).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=Path(file).name):
        DietBertTextClassifier.from_preset(str(folder))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "cls, file",
    [
        (DietBertBackbone, "config.json"),
        (DietBertBackbone, "model.weights.h5"),
        (DietBertTokenizer, "tokenizer.json"),
        (DietBertTextClassifierPreprocessor, "preprocessor.json"),
    ],
)
def test_damaged_and_missing_files_are_named(folder, cls, file):
    path = folder / file
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=file):
        cls.from_preset(str(folder))
    path.unlink()
    with pytest.raises(ValueError, match=file):
        cls.from_preset(str(folder))


@pytest.mark.any_backend
def test_preprocessors_may_be_new_without_a_task(folder):
    for file in ("preprocessor.json", "task.json", "task.weights.h5"):
        (folder / file).unlink()
    DietBertTextClassifierPreprocessor.from_preset(str(folder))


@pytest.mark.any_backend
def test_presets_have_the_vocabulary_of_the_last_save(folder):
    tiny_task("classifier", vocabulary=VOCABULARY[:-1]).save_to_preset(folder)
    loaded = keras_hub.models.TextClassifier.from_preset(str(folder))
    assert loaded.preprocessor.tokenizer.get_vocabulary() == VOCABULARY[:-1]
