"""Presets: whole or not at all, under names, and the one that comes with the package."""

import contextlib
import os
import shutil
from pathlib import Path

import h5py
import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertTextClassifier,
    DietBertTokenizer,
    DietTransformerTokenizer,
    register_preset,
)
from keras_diet.models.diet_bert.diet_bert_presets import FOLDER
from keras_diet.models.hub.presets import finish_replacing
from tests.helpers import assert_close, to_numpy
from tests.models.diet_transformer import tiny as translation
from tests.models.question_answering import tiny_question_answerer
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import (
    SIZES,
    TEXTS,
    VOCABULARY,
    random_inputs,
    randomize_weights,
    tiny_backbone,
)

any_backend = pytest.mark.any_backend

# === Whole or not at all ===

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


@any_backend
@pytest.mark.filterwarnings("error::UserWarning")
def test_a_loaded_task_has_a_new_optimizer(tmp_path):
    """Its state does not fit the new optimizer of a loaded task, and takes twice the memory."""
    task = tiny_task("classifier")
    task.fit(TEXTS, [6, 2, 0, 3, 1], verbose=0)
    task.save_to_preset(tmp_path)
    with h5py.File(tmp_path / "task.weights.h5") as file:
        assert "optimizer" not in file
    loaded = type(task).from_preset(tmp_path)
    np.testing.assert_array_equal(loaded.get_weights()[-1], task.get_weights()[-1])
    assert (task.optimizer.iterations, loaded.optimizer.iterations) == (1, 0)
    # Presets of earlier versions, and those of KerasHub, have one.
    keras.saving.save_weights(task, tmp_path / "task.weights.h5")
    type(task).from_preset(tmp_path)
    DietBertMaskedLM.from_preset("diet_bert_tiny_en")


@any_backend
def test_weights_in_several_files_and_in_one_replace_each_other(folder):
    model = tiny_task("classifier")
    model.save_to_preset(folder, max_shard_size=1e-5)
    saved = {file for file in files(folder) if not file.startswith("model_0")}
    assert saved == (CLASSIFIER - {"model.weights.h5"}) | {"model.weights.json", "README.md"}
    model.backbone.save_to_preset(folder)
    assert files(folder) == BACKBONE | {"README.md"}


@any_backend
@pytest.mark.parametrize("first", ["backbone", "preprocessor"])
def test_preprocessors_saved_alone_stay(tmp_path, first):
    parts = {"backbone": tiny_backbone(), "preprocessor": tiny_preprocessor("classifier")}
    for name in sorted(parts, reverse=first == "preprocessor"):
        parts[name].save_to_preset(str(tmp_path))
    assert files(tmp_path) == BACKBONE | PREPROCESSOR


TRAINED_ON_IDS = {
    "masked_lm": lambda: tiny_task("masked_lm"),
    "question_answerer": tiny_question_answerer,
    "translator": lambda: translation.tiny_translator(translation.proto()),
}


@any_backend
@pytest.mark.parametrize("name", TRAINED_ON_IDS)
def test_a_tokenizer_saved_beside_a_task_becomes_its_preprocessor(tmp_path, name):
    """The tokenizer stays when the task is saved again."""
    task = TRAINED_ON_IDS[name]()
    task.preprocessor = None
    task.save_to_preset(tmp_path)
    assert type(task).from_preset(tmp_path).preprocessor is None
    is_translator = name == "translator"
    cls = DietTransformerTokenizer if is_translator else DietBertTokenizer
    tokenizer = cls(translation.proto() if is_translator else VOCABULARY)
    tokenizer.save_to_preset(str(tmp_path))
    task.save_to_preset(tmp_path)
    loaded = type(task).from_preset(tmp_path)
    assert type(loaded.preprocessor) is task.preprocessor_cls
    assert loaded.preprocessor.tokenizer.get_vocabulary() == tokenizer.get_vocabulary()
    assert loaded.preprocessor.lengths == (71 if is_translator else SIZES["max_sequence_length"],)
    assert type(task).from_preset(tmp_path, preprocessor=None).preprocessor is None
    (tmp_path / "assets/tokenizer/vocabulary.txt").write_text("\n".join([*VOCABULARY, "more"]))
    if not is_translator:
        with pytest.raises(ValueError, match="a tokenizer of 32 tokens"):
            type(task).from_preset(tmp_path)


@any_backend
def test_an_interrupted_save_leaves_the_preset_as_it_was(folder, monkeypatch):
    before = {name: (folder / name).read_bytes() for name in files(folder)}

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(DietBertBackbone, "save_weights", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tiny_task("classifier", rank=5).save_to_preset(folder)
    assert {name: (folder / name).read_bytes() for name in files(folder)} == before
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["assets"]


def stop_after(monkeypatch, number):
    """Let the process end, as after SIGKILL, when files were moved or removed `number` times."""
    steps = []

    def counted(function):
        def step(*args, **kwargs):
            if len(steps) >= number:
                raise KeyboardInterrupt
            steps.append(args)
            return function(*args, **kwargs)

        return step

    for owner, name in ((os, "replace"), (Path, "unlink"), (shutil, "rmtree")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


@any_backend
@pytest.mark.parametrize(
    "name, number", [*(("classifier", number) for number in range(0, 13, 2)), ("backbone", 4)]
)
def test_a_killed_save_leaves_one_whole_preset(folder, monkeypatch, number, name):
    """The old one before its config.json is removed, and the new one from then on."""
    model = randomize_weights(tiny_task("classifier", VOCABULARY[:-1], rank=5))
    model = model if name == "classifier" else model.backbone
    with monkeypatch.context() as patch:
        stop_after(patch, number)
        with contextlib.suppress(KeyboardInterrupt):
            model.save_to_preset(folder)
    # KerasHub's classes never read a mixture of both.
    is_whole = not {".unfinished"} & {part[:11] for part in files(folder) if "removed" not in part}
    assert (folder / "config.json").exists() == (is_whole or number == 0)
    # Whoever reads first moves the files.
    readers = [DietBertTokenizer] * (name == "classifier") + [DietBertBackbone]
    loaded = [reader.from_preset(folder) for reader in readers]
    assert loaded[-1].rank == (5 if number else None)
    if number:
        backbone = model.backbone if name == "classifier" else model
        assert_close(loaded[-1].get_weights()[0], backbone.get_weights()[0])
    if name == "classifier":
        assert len(loaded[0].get_vocabulary()) == len(VOCABULARY) - (number > 0)
    assert (folder / "task.json").exists() == (name == "classifier" or number == 0)
    # A later preset removes what is left.
    tiny_task("classifier").save_to_preset(folder)
    assert files(folder) == CLASSIFIER | {"README.md"}


@any_backend
def test_a_second_kill_and_an_error_of_the_disk(folder, monkeypatch):
    """An `OSError` while files are moved leaves them for the next process, too."""
    model = tiny_task("classifier", rank=5)
    for number in (3, 2):
        with monkeypatch.context() as patch:
            stop_after(patch, number)
            with pytest.raises(KeyboardInterrupt):
                model.save_to_preset(folder) if number == 3 else finish_replacing(folder)
    replace = os.replace

    def failing(source, target):
        if Path(target).name == "config.json":
            raise OSError("No space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing)
        with pytest.raises(OSError, match="No space"):
            DietBertTextClassifier.from_preset(folder)
    loaded = DietBertTextClassifier.from_preset(folder)
    assert loaded.backbone.rank == 5
    assert files(folder) == CLASSIFIER | {"README.md"}


@any_backend
@pytest.mark.parametrize("cls", [DietBertTextClassifier, DietBertBackbone])
def test_a_folder_of_hugging_face_is_no_preset(cls, tmp_path):
    backbone = tiny_backbone(position_encoding="input", segment_encoding="input")
    backbone.export_to_hugging_face(tmp_path, "bert")
    with pytest.raises(ValueError, match=r"`preset` must be .*preset=.*`from_hugging_face` of"):
        cls.from_preset(tmp_path)


# === Names ===

NAME = "diet_bert_of_a_test"


@pytest.fixture
def forgotten_names():
    """What a test registers is gone after it."""
    from keras_hub.src.utils import preset_utils

    yield
    preset_utils.BUILTIN_PRESETS.pop(NAME, None)
    preset_utils.BUILTIN_PRESETS_FOR_BACKBONE[DietBertBackbone].pop(NAME, None)


@any_backend
@pytest.mark.usefixtures("forgotten_names")
def test_named_presets_are_found(rng, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    register_preset(NAME, folder.name, "A classifier of seven classes.")
    # The folder is found from elsewhere too.
    monkeypatch.chdir("/")
    expected = DietBertTextClassifier.from_preset(folder)(random_inputs(rng))
    for base in (DietBertTextClassifier, keras_hub.models.TextClassifier):
        loaded = base.from_preset(NAME)
        assert type(loaded) is DietBertTextClassifier
        assert_close(loaded(random_inputs(np.random.default_rng(11))), expected, 1e-6)
    for base in (DietBertBackbone, keras_hub.models.Backbone):
        assert type(base.from_preset(NAME)) is DietBertBackbone
        assert base.presets[NAME]["metadata"]["description"] == "A classifier of seven classes."
    for base in (DietBertTokenizer, keras_hub.models.Tokenizer):
        assert base.from_preset(NAME).get_vocabulary() == VOCABULARY
    assert NAME in DietBertTextClassifier.presets
    assert NAME not in keras_hub.models.BertBackbone.presets


@any_backend
@pytest.mark.usefixtures("forgotten_names")
@pytest.mark.parametrize("scheme", ["hf", "kaggle", "modelscope", "gs"])
def test_addresses_are_kept_and_names_are_unique(scheme):
    address, other = f"{scheme}://user/model", "hf://user/another"
    for _ in range(2):
        register_preset(NAME, address)
        assert DietBertBackbone.presets[NAME]["kaggle_handle"] == address
    for name, overwrite in ((NAME, False), ("bert_base_en", True)):
        with pytest.raises(ValueError, match=f"`name` must be new.*'{name}'|name={name}"):
            register_preset(name, other, overwrite=overwrite)
    register_preset(NAME, other, overwrite=True)
    assert DietBertBackbone.presets[NAME]["kaggle_handle"] == other


# === The packaged preset ===

PACKAGED = "diet_bert_tiny_en"
# Sentences in which the model must find one word among its first guesses.
KNOWN = {
    "he was born in new [MASK] city .": "york",
    "the film was directed [MASK] john smith .": "by",
    "the album was [MASK] in 1999 .": "released",
    "in the second world [MASK] , the army was defeated .": "war",
}


def test_its_outputs_are_the_stored_numbers():
    model = keras_hub.models.MaskedLM.from_preset(PACKAGED)
    assert type(model) is DietBertMaskedLM
    places = np.arange(12)
    inputs = {
        "token_ids": np.array([[2, *range(100, 110), 3]]),
        "segment_ids": (places > 6).astype("int32")[None],
        "padding_mask": (places < 10).astype("int32")[None],
    }
    outputs = model.backbone(inputs)
    pooled = [0.18644182, -0.4342068, 0.0505222, -0.01417667]
    assert_close(outputs["pooled_output"][0, :4], np.float32(pooled), 1e-5)
    hidden = [-0.9380812, -0.6339305, -0.7994852, -3.5449128]
    assert_close(outputs["sequence_output"][0, 5, :4], np.float32(hidden), 1e-5)
    logits = model({**inputs, "mask_positions": np.array([[3]])})
    expected = np.float32([-4.3431625, 1.3368227, 0.3944683, 0.6613841])
    assert_close(to_numpy(logits)[0, 0, [0, 17, 105, 5999]], expected, 1e-4)


@any_backend
def test_it_knows_something():
    model = DietBertMaskedLM.from_preset(PACKAGED)
    guesses = model.fill_mask(list(KNOWN), top_k=3)
    for each, word in zip(guesses, KNOWN.values(), strict=True):
        assert word in [guess["token"] for guess in each]
    # Positions matter: the same words in another order get another guess.
    texts = ["he lived in new york [MASK] .", "[MASK] york in new he lived ."]
    first, second = model.fill_mask(texts, top_k=1)
    assert first[0]["token"] != second[0]["token"]


@any_backend
def test_its_files_are_small_and_its_card_has_its_numbers():
    assert sum(file.stat().st_size for file in (FOLDER / PACKAGED).rglob("*")) < 5e6
    card = (FOLDER / PACKAGED / "README.md").read_text(encoding="utf-8")
    history = (FOLDER / PACKAGED / "history.csv").read_text(encoding="utf-8").splitlines()
    last = dict(zip(history[0].split(","), history[-1].split(","), strict=True))
    assert f"{float(last['val_loss']):.2f}" in card
    assert f"{100 * float(last['val_sparse_categorical_accuracy']):.0f} %" in card
