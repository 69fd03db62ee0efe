"""Pretraining on a small scale: `pretrain_masked_lm.py` and `common.py`."""

import contextlib
import csv
import importlib
import io
import re

import keras
import numpy as np
import pytest

import keras_diet
from examples.paper.tests.helpers import TEXT, Crash, add_to_fit
from keras_diet import pretraining
from keras_diet.models import DietBertBackbone

SMALL = [
    *("--vocabulary-size", "300", "--sequence-length", "16"),
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32"),
    *("--steps", "12", "--validation-interval", "6"),
    *("--batch-size", "8", "--validation-batches", "2"),
    *("--dropout", "0"),
]


@pytest.fixture(scope="module")
def script():
    return importlib.import_module("examples.paper.pretrain_masked_lm")


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT, encoding="utf-8")
    return str(tmp_path / "corpus.txt")


def run(script, folder, *options):
    """Run the script with output in `folder`, and return what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        script.main([*SMALL, "--output-dir", str(folder / "out"), *options])
    return output.getvalue()


def losses(output):
    return dict(re.findall(r"(\w+): (\d+\.\d+)", output.split("Validation loss")[1]))


@pytest.fixture
def eager_run(monkeypatch):
    """For runs beside the first one: compiling takes longer than their steps."""
    eager = property(lambda trainer: True, lambda trainer, value: None)
    monkeypatch.setattr(keras.Model, "run_eagerly", eager)


def test_each_encoding_has_its_losses_a_preset_and_a_picture(script, corpus, tmp_path):
    encodings = ["diet_abs", "input"]
    printed = losses(run(script, tmp_path, "--text", corpus, "--position-encoding", *encodings))
    assert list(printed) == encodings
    for name, loss in printed.items():
        output = tmp_path / "out" / name
        with open(output / "history.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["epoch"] for row in rows] == ["0", "1"]
        assert f"{float(rows[-1]['val_loss']):.4f}" == loss
        assert float(rows[-1]["val_loss"]) < float(rows[0]["val_loss"])
        assert (output / "position_scores.png").read_bytes().startswith(b"\x89PNG")
        masked_lm = keras_diet.models.DietBertMaskedLM.from_preset(str(output / "preset"))
        assert masked_lm.backbone.position_encoding == name
        # Frozen in pretraining, but not in fine-tuning.
        assert masked_lm.backbone.pooled_dense.trainable
        assert masked_lm.preprocessor.sequence_length == 16


@pytest.mark.any_backend
@pytest.mark.usefixtures("eager_run")
def test_interrupted_run_resumes_to_the_same_result(script, corpus, tmp_path, monkeypatch):
    """Within the second of two epochs. Dropout, masks and the order continue, too."""
    options = ("--text", corpus, "--position-encoding", "diet_abs", "--dropout", "0.3")
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
@pytest.mark.usefixtures("eager_run")
@pytest.mark.parametrize(
    "options",
    [
        "--document-segments",
        "--language en {0} --language fr {0} --cased --vocabulary-size 101",
        "--text {0} --validation-text {0} --beam --document-masks --sequence-length 99",
    ],
    ids=["embedded", "languages", "beam"],
)
def test_kinds_of_text(script, corpus, tmp_path, options):
    if "--beam" in options:
        pytest.importorskip("apache_beam")
    options = options.format(corpus).split()
    options += ["--position-encoding", "diet_rel", "--sharing", "layer-wise"]
    options += ["--steps", "1", "--validation-interval", "1"]
    assert losses(run(script, tmp_path, *options)).keys() == {"diet_rel"}
    backbone = DietBertBackbone.from_preset(str(tmp_path / "out" / "diet_rel" / "preset"))
    # Fine-tuning adds segments to models that have none.
    assert backbone.segment_encoding == ("per-head" if "--document-segments" in options else "none")
    if "--beam" in options:
        tokens = pretraining.PackedShards(tmp_path / "out" / "train")[:]
        assert np.any(tokens[:, 1:] == tokens[0, 0])


@pytest.mark.any_backend
@pytest.mark.parametrize("option", ["--rank 7", "--initial-score-stddev 0.7"])
def test_an_option_that_no_encoding_uses_is_refused(script, tmp_path, capsys, option):
    with pytest.raises(SystemExit):
        run(script, tmp_path, "--position-encoding", "t5", "input", *option.split())
    assert f"{option} is only used by: diet_abs" in capsys.readouterr().err


@pytest.mark.any_backend
@pytest.mark.usefixtures("eager_run")
def test_document_masks(script, corpus, tmp_path, monkeypatch, capsys):
    made, make = [], pretraining.masked_lm_dataset
    monkeypatch.setattr(
        pretraining,
        "masked_lm_dataset",
        lambda *args, **kw: made.append(make(*args, **kw)) or made[-1],
    )
    options = ("--text", corpus, "--position-encoding", "diet_abs", "--sequence-length", "99")
    options += ("--document-masks",)
    assert float(losses(run(script, tmp_path, *options))["diet_abs"]) > 0
    # Training and validation.
    assert len(made) == 2
    for dataset in made:
        features, _, _ = dataset[0]
        ids, token_ids = features["document_ids"], features["token_ids"]
        begins = (np.diff(ids, prepend=0) != 0) & (ids > 0)
        assert ids.max() > 1
        assert np.unique(token_ids[begins]).tolist() == [token_ids[0, 0]]
    with pytest.raises(SystemExit):
        run(script, tmp_path, *options, "--projection-dim", "4")
    assert "--document-masks cannot be used with" in capsys.readouterr().err
