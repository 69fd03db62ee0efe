"""Pretraining on a small scale: `examples/pretrain_masked_lm.py` and `examples/common.py`."""

import contextlib
import csv
import importlib
import io
import json
import re
import shutil

import keras
import numpy as np
import pytest

import keras_diet
from tests.examples import EXAMPLES, Crash, add_to_fit

SMALL = [
    *("--vocabulary-size", "300", "--sequence-length", "16"),
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32"),
    *("--steps", "12", "--validation-interval", "6"),
    *("--batch-size", "8", "--validation-batches", "2"),
    *("--dropout", "0"),
]
TEXT = "\n\n".join(
    f"The cat {i} sat on the old mat. It saw the dog run over the bridge number {i}.\n"
    "Then the dog and the cat went home, since the sun was low and the night was cold."
    for i in range(60)
)


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        yield importlib.import_module("pretrain_masked_lm")


def run(script, folder, *options, text=True, corpus=None):
    """Run the script with output in `folder`, and return what it prints."""
    if corpus is None:
        corpus = folder / "corpus.txt"
        corpus.write_text(TEXT, encoding="utf-8")
    arguments = [*SMALL, "--output-dir", str(folder / "out")]
    arguments += ["--text", str(corpus)] if text else []
    with contextlib.redirect_stdout(io.StringIO()) as output:
        script.main([*arguments, *options])
    return output.getvalue()


def losses(output):
    return dict(re.findall(r"(\w+): (\d+\.\d+)", output.split("Validation loss")[1]))


@pytest.fixture
def eager_run(finished, monkeypatch):
    """For tests of one more run: compiling takes longer than its steps. `finished` is compiled."""
    eager = property(lambda trainer: True, lambda trainer, value: None)
    monkeypatch.setattr(keras.Model, "run_eagerly", eager)


@pytest.fixture(scope="module")
def finished(script, tmp_path_factory):
    """A finished run of two encodings: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("pretrain")
    return folder, run(script, folder, "--position-encoding", "diet_abs", "input")


def test_each_encoding_has_its_losses_a_preset_and_a_picture(finished):
    folder, output = finished
    printed = losses(output)
    assert set(printed) == {"diet_abs", "input"}
    for name, loss in printed.items():
        output = folder / "out" / name
        with open(output / "history.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["epoch"] for row in rows] == ["0", "1"]
        assert f"{float(rows[-1]['val_loss']):.4f}" == loss
        assert float(rows[-1]["val_loss"]) < float(rows[0]["val_loss"])
        assert (output / "position_scores.png").read_bytes().startswith(b"\x89PNG")
        masked_lm = keras_diet.models.DietBertMaskedLM.from_preset(str(output / "preset"))
        assert masked_lm.backbone.position_encoding == name
        assert masked_lm.preprocessor.sequence_length == 16


@pytest.mark.any_backend
@pytest.mark.usefixtures("eager_run")
def test_interrupted_run_resumes_to_the_same_result(script, tmp_path, monkeypatch):
    """Within the second of two epochs. Dropout, masks and the order go on, too."""
    options = ("--position-encoding", "diet_abs", "--dropout", "0.3")
    (tmp_path / "once").mkdir()
    expected = run(script, tmp_path / "once", *options)
    with monkeypatch.context() as patch:
        add_to_fit(patch, Crash(9))
        with pytest.raises(KeyboardInterrupt):
            run(script, tmp_path, *options, "--save-every", "4")
    resumed = run(script, tmp_path, *options, "--save-every", "3")
    assert "Epoch 1/2" not in resumed
    assert losses(resumed) == losses(expected)
    histories = [folder / "out/diet_abs/history.csv" for folder in (tmp_path, tmp_path / "once")]
    assert histories[0].read_text() == histories[1].read_text()


@pytest.mark.any_backend
def test_finished_run_is_not_trained_again(script, finished, tmp_path):
    folder, output = finished
    shutil.copytree(folder / "out", tmp_path / "out")
    with pytest.warns(UserWarning, match="is not trained again"):
        again = run(script, tmp_path, "--position-encoding", "input", corpus=folder / "corpus.txt")
    assert "Epoch" not in again
    assert losses(again)["input"] == losses(output)["input"]


@pytest.mark.any_backend
@pytest.mark.usefixtures("eager_run")
def test_embedded_text_is_the_default(script, tmp_path):
    options = ("--position-encoding", "diet_rel", "--sharing", "layer-wise")
    options += ("--steps", "1", "--validation-interval", "1")
    assert losses(run(script, tmp_path, *options, text=False)).keys() == {"diet_rel"}
    assert json.loads((tmp_path / "out" / "options.json").read_text())["text"] is None


GERMAN = "\n\n".join(
    f"Die Katze {i} saß auf der alten Matte. Sie sah den Hund über die Brücke {i} laufen."
    for i in range(20)
)


@pytest.mark.any_backend
@pytest.mark.usefixtures("eager_run")
def test_several_languages(script, tmp_path):
    for language, text in {"en": TEXT, "de": GERMAN}.items():
        (tmp_path / f"{language}.txt").write_text(text, encoding="utf-8")
    options = ["--position-encoding", "diet_rel", "--sampling-exponent", "0", "--cased"]
    options += ["--steps", "2", "--validation-interval", "2", "--vocabulary-size", "101"]
    for language in ("en", "de"):
        options += ["--language", language, str(tmp_path / f"{language}.txt")]
    output = run(script, tmp_path, *options, text=False)
    assert losses(output).keys() == {"diet_rel"}
    folder = tmp_path / "out"
    masked_lm = keras_diet.models.DietBertMaskedLM.from_preset(str(folder / "diet_rel/preset"))
    tokenizer = masked_lm.preprocessor.tokenizer
    assert type(tokenizer) is keras_diet.models.DietBertSentencePieceTokenizer
    assert tokenizer.vocabulary_size() == 101
    # Each language has its own sequences. The held-out sequences are of both.
    both = {"cat", "Katze"}
    for name, words in {"train.en": {"cat"}, "train.de": {"Katze"}, "validation": both}.items():
        texts = " ".join(tokenizer.detokenize(np.load(folder / f"{name}.npy").tolist()))
        assert {word for word in both if word in texts} == words


@pytest.mark.any_backend
@pytest.mark.usefixtures("eager_run")
def test_text_that_beam_packs(script, tmp_path):
    pytest.importorskip("apache_beam")
    words = {"a": "cat", "b": "owl", "held_out": "elk"}
    for name, word in words.items():
        (tmp_path / f"{name}.txt").write_text(TEXT.replace("cat", word), encoding="utf-8")
    files = {name: str(tmp_path / f"{name}.txt") for name in words}
    options = ["--text", files["a"], files["b"], "--validation-text", files["held_out"], "--beam"]
    options += ["--position-encoding", "none", "--steps", "2", "--validation-interval", "2"]
    output = run(script, tmp_path, *options, text=False)
    assert losses(output).keys() == {"none"}
    vocabulary = str(tmp_path / "out" / "vocabulary.txt")
    tokenizer = keras_diet.models.DietBertTokenizer(vocabulary, lowercase=True)
    shards = keras_diet.pretraining.PackedShards(tmp_path / "out" / "train")
    found = " ".join(tokenizer.detokenize(shards[:].tolist()))
    # Both files are there, without the held-out text.
    assert [word in found for word in ("cat", "owl", "elk")] == [True, True, False]
    assert f"{len(shards)} sequences" in output
