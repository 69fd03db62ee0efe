"""The study: which runs it starts, what it keeps, and the table and tests on its page."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from benchmarks import example_runs, study, study_page

pytestmark = pytest.mark.any_backend
# Validation losses by encoding and seed. The grid has its own seed.
LOSSES = {("input", "0"): 3.5, ("input", "1"): 3.75, ("t5", "0"): 3.25, ("t5", "1"): 3.375}

METRICS = {"cola": "matthews=0.25", "stsb": "pearson=0.5 spearman=0.75", "rte": "accuracy=0.5"}


@pytest.fixture
def started(monkeypatch):
    """Commands of the runs. A run writes its files without training."""
    commands = []

    def run(command, check):
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
    assert f"token occurs has a loss of {expected:.4f}." in page
    # The differences are -0.25 and -0.375: t = -0.3125 / (0.0884 / sqrt(2)) = -5, and with one
    # degree of freedom p = 1 - 2 / pi * atan(5).
    assert "\n| t5 | 0.001 | 2 | 3.3125 ± 0.0884 | -0.3125 | 0.126 |\n" in page
    assert "\n| input | 0.001 | 2 | 3.6250 ± 0.1768 |  |  |" in page
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
    recipe = "- Recipe of fine-tuning: epochs 3, batch-size 32, sequence-length 64, examples 10000"
    assert f"{recipe}, learning-rate 0.0003\n" in page


def glue_cell(*scores, losses=(), **others):
    """A row with these results of CoLA and RTE for each seed, and others of CoLA only."""
    tasks = [{"cola": {"m": cola}, "rte": {"accuracy": rte}} for cola, rte in scores]
    glue = {str(seed): of_seed for seed, of_seed in enumerate(tasks)}
    seeds = {
        str(seed): {"learning_rate": 0.5, "losses": [9, loss]} for seed, loss in enumerate(losses)
    }
    return {"seeds": seeds, "glue": glue | {seed: {"cola": {"m": m}} for seed, m in others.items()}}


def page_of(rows):
    machine = {"date": "today", "commit": "abc"}
    results = {"recipe": {"backend": "jax", "glue": {"epochs": 7}}, "machine": machine}
    return study_page.make_page({**results, "rows": rows, "word_frequencies": 6.5})


def test_the_rank_correlation_of_losses_and_tasks():
    """Means over the seeds are compared, and variants are left out."""
    rows = {
        "input": glue_cell((0.1, 0.1), losses=(5.0,)),
        "t5": glue_cell((0.2, 0.2), (0.2, 0.4), losses=(4.0, 4.5)),
        "shaw": glue_cell((0.9, 0.4), (0.1, 0.5), losses=(1.0, 5.0)),
        "fire": glue_cell((0.6, 0.2), losses=(2.5,)),
        "fire, rank 8": glue_cell((0.7, 0.9), losses=(9.0,)),
    }
    assert "Losses and tasks" not in page_of(rows)
    # Rows without a loss, or without all tasks, do not count.
    rows |= {"alibi": glue_cell((0.1, 0.9)), "rotary": glue_cell(losses=(1.5,), seed9=0.1)}
    assert "Losses and tasks" not in page_of(rows)
    rows["kerple"] = glue_cell((0.4, 0.9), losses=(2.0,), seed9=0.7)
    # The ranks of the losses are 5, 4, 3, 2 and 1. In CoLA the ranks are 1, 2, 3, 5 and 4, with
    # the squared differences 16, 4, 0, 9 and 9: 1 - 6 * 38 / 120. In RTE they are 1, 3, 4, 2 and 5,
    # with 16, 1, 1, 0 and 16. In the mean they are 1, 2, 4, 3 and 5, with 16, 4, 1, 1 and 16.
    table = page_of(rows).partition("### Losses and tasks")[2].splitlines()[4:]
    assert table[0] == "|  | cola | rte | mean |"
    assert table[2] == "| correlation | -0.90 | -0.70 | -0.90 |"
    assert table[3] == "| p | 0.037 | 0.188 | 0.037 |"
    # In CoLA, the correlation is weakest without input: -0.8. In RTE it is -0.4 then.
    assert table[4] == "| p without one encoding | 0.200 | 0.600 | 0.200 |"
