"""The table of translators: which runs it starts, which it keeps, and what it writes."""

import json
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("sacrebleu")

from benchmarks import translation

pytestmark = pytest.mark.any_backend


@pytest.fixture
def started(monkeypatch):
    """Commands of the runs. A run writes its files without training."""
    commands = []

    def run(command, check):
        assert check
        commands.append(command)
        folder = translation.Path(command[command.index("--output-dir") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        bleu = 10.0 + 3 * len(commands)
        signature = {"bleu": bleu, "exact": 0.25, "signature": "tok:13a"}
        (folder / "bleu.json").write_text(json.dumps(signature))
        (folder / "history.csv").write_text("epoch,loss,val_loss\n0,4.5,3.5\n1,2.5,1.5\n")
        if command[1].endswith("translation_peer.py"):
            (folder / "transformers").mkdir()
            (folder / "transformers" / "bleu.json").write_text(json.dumps({"bleu": bleu + 0.5}))

    monkeypatch.setattr(translation, "subprocess", SimpleNamespace(run=run))
    return commands


def table(folder, *options):
    arguments = ["--data", "texts", "--runs", str(folder / "runs")]
    translation.main([*arguments, "--output", str(folder / "table.json"), *options])
    return json.loads((folder / "table.json").read_text())


def value_of(command, option):
    return command[command.index(option) + 1]


def test_each_run_has_its_own_data_seed_and_encoding(started, tmp_path):
    table(tmp_path, "--directions", "cs-en", "--encodings", "shaw", "marian", "--seeds", "4")
    shaw, marian = started
    for command in started:
        assert command[0] == sys.executable
        files = command[command.index("--text") + 1 :][:2]
        assert files == ["texts/train.cs", "texts/train.en"]
        assert value_of(command, "--test-text") == "texts/test_2016_flickr.cs"
        assert (value_of(command, "--seed"), value_of(command, "--hidden-dim")) == ("4", "128")
    assert shaw[1].endswith("translate.py")
    assert value_of(shaw, "--position-encoding") == "shaw"
    assert value_of(shaw, "--max-distance") == "20"
    assert marian[1].endswith("translation_peer.py")
    assert "--position-encoding" not in marian


def test_a_finished_run_is_not_repeated(started, tmp_path):
    table(tmp_path, "--encodings", "shaw", "--seeds", "0")
    # Only the file of the results is left.
    for file in (tmp_path / "runs").rglob("*.json"):
        file.unlink()
    results = table(tmp_path, "--encodings", "shaw", "--seeds", "0", "1")
    assert [value_of(command, "--seed") for command in started] == ["0", "1"]
    assert [(run["seed"], run["bleu"]) for run in results["runs"]] == [(0, 13.0), (1, 16.0)]
    assert results["runs"][1]["validation_losses"] == [3.5, 1.5]
    page = (tmp_path / "table.md").read_text()
    assert "--directions en-de --seeds 0 1\n" in page
    assert "| shaw | 14.50 ± 2.12 |" in page
    assert (tmp_path / "table.svg").stat().st_size
