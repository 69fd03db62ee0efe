"""The table of translators: which runs it starts, which it keeps, and what it writes."""

import json
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("sacrebleu")

from examples.paper import translation

pytestmark = pytest.mark.any_backend


@pytest.fixture
def started(monkeypatch):
    """Commands of the runs. A run writes its files without training."""
    commands = []

    def run(command, check, env):
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


def value_of(command, option):
    return command[command.index(option) + 1]


def test_runs_their_table_and_a_second_seed(started, tmp_path):
    output, runs = tmp_path / "table.json", tmp_path / "runs"
    words = ["--data", "texts", "--runs", str(runs), "--output", str(output)]
    words += ["--directions", "cs-en", "--encodings", "shaw", "marian"]
    translation.main([*words, "--seeds", "4"])
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

    # A finished run is not repeated. Of one run, only the results in the table are left.
    file = runs / "cs-en-shaw-4" / "bleu.json"
    deleted = file.read_text()
    file.unlink()
    translation.main([*words, "--seeds", "4", "1"])
    assert [value_of(command, "--seed") for command in started] == ["4", "4", "1", "1"]
    # Without the table, the files of the runs are read.
    file.write_text(deleted)
    output.unlink()
    translation.main([*words, "--seeds", "4", "1"])
    assert len(started) == 4
    results = json.loads(output.read_text())["runs"]
    found = {(run["encoding"], run["seed"]): run["bleu"] for run in results}
    assert found == {("shaw", 4): 13, ("marian", 4): 16, ("shaw", 1): 19, ("marian", 1): 22}
    assert results[1]["validation_losses"] == [3.5, 1.5]
    page = output.with_suffix(".md").read_text()
    assert "| shaw | 16.00 ± 4.24 |" in page
    assert "| marian, search of transformers | 19.50 ± 4.24 |" in page
    assert output.with_suffix(".svg").stat().st_size
