"""The benchmark of long sequences measures what it says."""

import os
import subprocess
import sys
from pathlib import Path

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


def test_table(monkeypatch, capsys):
    # One layer of three and one step of two: memory takes a process for each.
    monkeypatch.setattr(long_sequences, "LAYERS", ("Linformer",))
    monkeypatch.setattr(long_sequences, "STEPS", ("inference",))
    monkeypatch.setattr(sys, "argv", ["", *SMALL, "--lengths", "16", "--repeats", "1"])
    long_sequences.main()
    table = capsys.readouterr().out
    assert table.count("| 16 |") == 2
    assert "| milliseconds | Linformer, inference |" in table
