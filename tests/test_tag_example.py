"""`examples/tag_words.py` and `tag_data.py`: files, metrics, a run, and its continuation."""

import json

import pytest

from keras_diet import models
from tests.examples import Crash, add_to_fit, fixture_of, save_preset

pytestmark = pytest.mark.any_backend
script = fixture_of("tag_words")
data = fixture_of("tag_words", "tag_data")


CONLL = """-DOCSTART- -X- -X- O

the DT I-NP O
foxes NNS I-NP B-X

cats NNS B-NP B-Y
and CC O O
\t
# NN B-NP O
"""


def test_conll_files_are_read(data, tmp_path):
    path = tmp_path / "train.conll"
    path.write_text(CONLL, encoding="utf-8")
    sentences, tags = data.read_conll(path)
    assert sentences == [["the", "foxes"], ["cats", "and"], ["#"]]
    assert tags == [["O", "B-X"], ["B-Y", "O"], ["O"]]
    assert data.read_conll(path, (0, 1))[1] == [["DT", "NNS"], ["NNS", "CC"], ["NN"]]


def test_names_of_the_rule_are_persons_and_places(data):
    """So the words alone do not tell the class."""
    seen = {}
    for words, tags in zip(*data.sentences_from_rule("train"), strict=True):
        assert len(words) == len(tags)
        for word, tag in zip(words, tags, strict=True):
            seen.setdefault(word, set()).add(tag)
            assert tag == "O" or word in data.NAMES + data.SECOND_NAMES
    assert all(seen[name] == {"B-PER", "B-LOC"} for name in data.NAMES)
    assert all(seen[name] == {"I-PER", "I-LOC"} for name in data.SECOND_NAMES)
    train, validation = (data.sentences_from_rule(split)[0] for split in ("train", "validation"))
    assert (len(train), len(validation)) == (2000, 300)
    assert train[:300] != validation


def test_entities_are_counted_as_in_conll(script):
    """One of two entities found, one of three guesses right: the other two have a wrong border."""
    tags = [["B-PER", "I-PER", "O", "B-LOC", "I-LOC"], ["O", "O"]]
    found = [["B-PER", "I-PER", "O", "B-LOC", "O"], ["B-PER", "O"]]
    results = script.evaluate(tags, found)
    assert results["accuracy"] == pytest.approx(5 / 7)
    entities = results["entities"]
    assert entities["all"] == pytest.approx({"precision": 1 / 3, "recall": 1 / 2, "f1": 0.4})
    assert entities["PER"] == pytest.approx({"precision": 1 / 2, "recall": 1, "f1": 2 / 3})
    assert entities["LOC"] == {"precision": 0, "recall": 0, "f1": 0}
    assert script.evaluate([["DT", "NN"]], [["DT", "VB"]]) == {"accuracy": 0.5}


@pytest.fixture
def files(tmp_path):
    for name in ("train", "validation"):
        (tmp_path / f"{name}.conll").write_text(CONLL)
    return [str(tmp_path / f"{name}.conll") for name in ("train", "validation")]


def test_an_interrupted_run_continues(script, files, tmp_path, monkeypatch, capsys):
    """Three sentences in batches of two are two steps. The run stops in the second epoch."""
    preset, folder = save_preset(tmp_path / "preset"), tmp_path / "output"
    arguments = ["--data", *files, "--preset", preset, "--sequence-length", "7", "--epochs", "2"]
    arguments += ["--batch-size", "2", "--output-dir", str(folder), "--recompute", "block"]
    crash = Crash(3)
    add_to_fit(monkeypatch, crash)
    with pytest.raises(KeyboardInterrupt):
        script.main([*arguments, "--save-every", "1"])
    assert crash.model.backbone.recompute == "block"
    crash.step = None
    script.main(arguments)
    with pytest.warns(UserWarning, match="is not trained again"):
        script.main(arguments)
    assert crash.begun == [0, 1, 2, 3, 3]
    assert crash.model.backbone.recompute == "block"
    assert len((folder / "history.csv").read_text().splitlines()) == 3
    results = json.loads((folder / "results.json").read_text())
    assert set(results["entities"]) >= {"all", "X", "Y"}
    assert "entities, all: precision" in capsys.readouterr().out
    loaded = models.DietBertTokenClassifier.from_preset(str(folder / "preset"))
    assert loaded.class_names == ["B-X", "B-Y", "O"]
    with pytest.raises(SystemExit, match="other values of: learning_rate"):
        script.main([*arguments, "--learning-rate", "0.5"])
