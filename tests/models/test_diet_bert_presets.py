"""Presets that are found by name, through our classes and KerasHub's."""

import keras_hub
import keras_nlp
import pytest
from keras_hub.src.utils.preset_utils import BUILTIN_PRESETS_FOR_BACKBONE

from keras_diet import _compat
from keras_diet.models import (
    DietBertBackbone,
    DietBertTextClassifier,
    DietBertTokenizer,
    register_preset,
)
from tests.helpers import assert_close
from tests.models.tasks import tiny_task
from tests.models.tiny import VOCABULARY, random_inputs, randomize_weights

pytestmark = pytest.mark.any_backend

NAME = "diet_bert_of_a_test"


@pytest.fixture(autouse=True)
def forgotten_names():
    """What a test registers is gone after it."""
    yield
    _compat.BUILTIN_PRESETS.pop(NAME, None)
    BUILTIN_PRESETS_FOR_BACKBONE[DietBertBackbone].pop(NAME, None)


@pytest.fixture
def saved(tmp_path):
    classifier = randomize_weights(tiny_task("classifier"))
    classifier.save_to_preset(str(tmp_path / "folder"))
    return classifier, tmp_path / "folder"


def test_named_presets_are_found(rng, saved, tmp_path, monkeypatch):
    classifier, folder = saved
    monkeypatch.chdir(tmp_path)
    register_preset(NAME, "folder", "A classifier of seven classes.")
    # The folder is found from elsewhere too.
    monkeypatch.chdir(folder.parent.parent)
    inputs = random_inputs(rng)
    for base in (
        DietBertTextClassifier,
        keras_hub.models.TextClassifier,
        keras_nlp.models.TextClassifier,
    ):
        loaded = base.from_preset(NAME)
        assert type(loaded) is DietBertTextClassifier
        assert_close(loaded(inputs), classifier(inputs), 1e-6)
    for base in (DietBertBackbone, keras_hub.models.Backbone):
        assert type(base.from_preset(NAME)) is DietBertBackbone
        assert base.presets[NAME]["metadata"]["description"] == "A classifier of seven classes."
    for base in (DietBertTokenizer, keras_hub.models.Tokenizer):
        assert base.from_preset(NAME).get_vocabulary() == VOCABULARY
    assert NAME in DietBertTextClassifier.presets
    assert NAME not in keras_hub.models.BertBackbone.presets


@pytest.mark.parametrize(
    "address",
    [
        "hf://user/model",
        "kaggle://user/model/keras/variant/1",
        "modelscope://user/model",
        "gs://bucket/model",
    ],
)
def test_addresses_are_kept(address):
    register_preset(NAME, address)
    register_preset(NAME, address)
    assert DietBertBackbone.presets[NAME]["kaggle_handle"] == address
    with pytest.raises(ValueError, match="`name` must be new"):
        register_preset(NAME, "hf://user/another")
    register_preset(NAME, "hf://user/another", overwrite=True)
    assert DietBertBackbone.presets[NAME]["kaggle_handle"] == "hf://user/another"


@pytest.mark.parametrize("name", ["", "hf://user/model", "./folder", None])
def test_names_that_could_be_addresses_are_refused(saved, name):
    with pytest.raises(ValueError, match="`name` must be a name without slashes"):
        register_preset(name, saved[1])


def test_names_of_kerashub_are_refused(saved):
    with pytest.raises(ValueError, match="`name` must be new"):
        register_preset("bert_base_en", saved[1], overwrite=True)


@pytest.mark.parametrize("address", ["missing", ".", "ftp://somewhere"])
def test_folders_without_a_preset_are_refused(tmp_path, monkeypatch, address):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="`address` must be the folder of a preset"):
        register_preset(NAME, address)
    assert NAME not in DietBertBackbone.presets


@pytest.mark.any_backend
@pytest.mark.parametrize("cls", [DietBertTextClassifier, DietBertBackbone, DietBertTokenizer])
def test_similar_names_are_suggested(saved, cls):
    register_preset(NAME, saved[1])
    with pytest.raises(ValueError, match=f"does not exist. Did you mean '{NAME}'"):
        cls.from_preset("diet-bert-of-a-test")


@pytest.mark.any_backend
def test_missing_folders_are_named():
    with pytest.raises(ValueError, match=r"preset='\./7 43'.*does not exist. Check the path"):
        DietBertBackbone.from_preset("./7 43")
