"""The benchmark of long sequences measures what it says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import long_sequences

ROOT = Path(__file__).parents[2]
SMALL = ["--num-heads", "2", "--hidden-dim", "16", "--projection-dim", "8"]


def run(*options):
    command = [sys.executable, "-m", "benchmarks.long_sequences", *SMALL, *options]
    # Compiled as users compile it, not as quickly as the other tests.
    settings = {"XLA_FLAGS": "", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    settings |= {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    environment = {**os.environ, **settings}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment
    ).stdout


def test_memory_of_full_attention_is_that_of_its_scores():
    # Two heads of 2048 x 2048 float32 scores are 32 MiB, and there are several of them.
    full = float(run("--cell", "DIET-ABS", "2048", "inference").splitlines()[-1])
    linformer = float(run("--cell", "DIET-ABS-LIN", "2048", "inference").splitlines()[-1])
    assert 32 < full < 400
    assert linformer < full / 3


def test_results_and_their_page(monkeypatch, tmp_path, capsys):
    # One layer of three and one step of two: memory takes a process for each.
    monkeypatch.setattr(long_sequences, "LAYERS", ("Linformer",))
    monkeypatch.setattr(long_sequences, "STEPS", ("inference",))
    path = tmp_path / "results.json"
    options = [*SMALL, "--rounds", "1", "--output", str(path)]
    long_sequences.main([*options, "--lengths", "16"])
    page = path.with_suffix(".md").read_text()
    assert page.strip() in capsys.readouterr().out
    assert page.count("| 16 |") == 2
    assert "| milliseconds | Linformer, inference |" in page
    assert "num_heads 2" in page

    # Gone on with: a length that is there is not measured again.
    measured = json.loads(path.read_text())["cells"]
    monkeypatch.setattr(long_sequences, "measure_length", lambda length, options: measured["16"])
    long_sequences.main([*options, "--resume", "--lengths", "16", "32"])
    assert json.loads(path.read_text())["cells"] == measured | {"32": measured["16"]}
    with pytest.raises(SystemExit, match="num_heads"):
        long_sequences.main([*options, "--resume", "--num-heads", "4"])


def test_resume_needs_a_file():
    with pytest.raises(SystemExit):
        long_sequences.main(["--resume"])
