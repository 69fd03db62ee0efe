"""The study: which runs it starts, what it keeps, and the table and tests on its page."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from examples.paper import example_runs, study

pytestmark = pytest.mark.any_backend
# Validation losses by encoding and seed. The grid has its own seed.
LOSSES = {("input", "0"): 3.5, ("input", "1"): 3.75, ("t5", "0"): 3.25, ("t5", "1"): 3.375}

METRICS = {"cola": "matthews=0.25", "stsb": "pearson=0.5 spearman=0.75", "rte": "accuracy=0.5"}


@pytest.fixture
def started(monkeypatch):
    """Commands of the runs. A run writes its files without training."""
    commands = []

    def run(command, check, env):
        assert check
        script, words = Path(command[1]).name, command[2:]
        commands.append((script, *words))
        folder = Path(value_of(words, "--output-dir"))
        if script == "pretrain_masked_lm.py":
            encoding, seed = value_of(words, "--position-encoding"), value_of(words, "--seed")
            rate = float(value_of(words, "--learning-rate"))
            # The first rate diverges, and the second is the best one.
            grid = {0.0005: float("nan"), 0.001: 4.0, 0.002: 5.0}[rate]
            last = LOSSES.get((encoding, seed), grid)
            (folder / encoding / "preset").mkdir(parents=True)
            history = f"epoch,loss,val_loss\n0,9.0,7.0\n1,8.0,{last}\n"
            (folder / encoding / "history.csv").write_text(history)
            if not (folder / "vocabulary.txt").exists():
                (folder / "vocabulary.txt").write_text(
                    "[PAD]\n[UNK]\n[MASK]\n[CLS]\n[SEP]\na\nb\nc\n"
                )
                np.save(folder / "train.npy", [[3, 5, 5, 5, 6, 1, 4], [3, 5, 5, 5, 4, 0, 0]])
                np.save(folder / "validation.npy", [[3, 5, 6, 7, 4, 0, 0]])
        else:
            folder.mkdir(exist_ok=True)
            table = folder / "runs.csv"
            lines = table.read_text() if table.exists() else "task,metrics\n"
            lines += "".join(f"{task},{METRICS[task]}\n" for task in tasks_of(words))
            table.write_text(lines)

    monkeypatch.setattr(example_runs, "subprocess", SimpleNamespace(run=run))
    return commands


def value_of(words, option):
    return words[words.index(option) + 1]


def tasks_of(words):
    return words[words.index("--tasks") + 1 : words.index("--learning-rates")]


def run_study(folder, *options):
    texts = ["--text", "a.txt", "--validation-text", "b.txt", "--runs", str(folder / "runs")]
    study.main([*texts, "--output", str(folder / "study.json"), *options])
    return json.loads((folder / "study.json").read_text())


TWO_ROWS = ("--rows", "input", "t5", "--seeds", "0", "1")


def test_rates_losses_and_paired_tests(started, tmp_path):
    """Parts that are finished are not repeated: first one row, then both rows with two seeds."""
    run_study(tmp_path, "--rows", "input", "--seeds", "0")
    results = run_study(tmp_path, *TWO_ROWS)
    seeds = [(value_of(words, "--seed"), value_of(words, "--learning-rate")) for words in started]
    # The grid has its own seed, and chooses the rate of all seeds.
    grid = [("1000", "0.0005"), ("1000", "0.001"), ("1000", "0.002")]
    trained = [("0", "0.001"), ("1", "0.001")]
    assert seeds == [*grid, *trained, *grid, *trained]
    assert value_of(started[0], "--steps") == "1000"
    assert value_of(started[3], "--steps") == "3000"
    cell = results["rows"]["t5"]["seeds"]["1"]
    assert cell["losses"] == [7.0, 3.375]
    assert cell["tokens"] == [250 * 32 * 64, 500 * 32 * 64]
    # Of 8 tokens that are not special, 6 are `a`, 1 is `b`, 1 is unknown, and none is `c`. A token
    # without an example counts as if it had one.
    expected = -(math.log(6 / 8) + math.log(1 / 8) + math.log(1 / 8)) / 3
    assert results["word_frequencies"] == pytest.approx(expected)
    page = (tmp_path / "study.md").read_text()
    # The differences are -0.25 and -0.375: t = -0.3125 / (0.0884 / sqrt(2)) = -5, and with one
    # degree of freedom p = 1 - 2 / pi * atan(5).
    assert "\n| t5 | 0.001 | 2 | 3.3125 ± 0.0884 | -0.3125 | 0.126 |\n" in page
    assert (tmp_path / "study.svg").stat().st_size


def test_each_seed_is_fine_tuned_from_its_own_preset(started, tmp_path):
    glue = ("--glue", "data", "--tasks", "cola", "stsb")
    results = run_study(tmp_path, "--rows", "input", "--seeds", "0", "1", *glue)
    tuned = [words for words in started if words[0] == "finetune_glue.py"]
    for seed, words in zip("01", tuned, strict=True):
        assert Path(value_of(words, "--presets")).parts[-3] == f"input-0.001-{seed}"
        assert tasks_of(words) == ("cola", "stsb")
        assert (value_of(words, "--seeds"), value_of(words, "--learning-rates")) == (seed, "0.0003")
        assert (value_of(words, "--examples"), value_of(words, "--epochs")) == ("10000", "3")
    stsb = {"pearson": 0.5, "spearman": 0.75}
    assert results["rows"]["input"]["glue"]["1"] == {"cola": {"matthews": 0.25}, "stsb": stsb}
    # The mean takes the first metric of each task.
    page = (tmp_path / "study.md").read_text()
    assert "| input | 25.0 ± 0.0 | 50.0 ± 0.0 | 37.5 ± 0.0 |  |" in page
