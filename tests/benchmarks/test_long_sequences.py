"""The benchmark of long sequences measures what it says."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*options):
    command = [sys.executable, "benchmarks/long_sequences.py", "--num-heads", "2"]
    command += ["--hidden-dim", "16", "--projection-dim", "8", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=ROOT, env=environment
    ).stdout


def test_memory_of_full_attention_is_that_of_its_scores():
    # Two heads of 2048 x 2048 float32 scores are 32 MiB, and there are several of them.
    full = float(run("--cell", "DIET-ABS", "2048", "inference").splitlines()[-1])
    linformer = float(run("--cell", "DIET-ABS-LIN", "2048", "inference").splitlines()[-1])
    assert 32 < full < 400
    assert linformer < full / 3


def test_table():
    table = run("--lengths", "16", "--repeats", "1")
    assert table.count("| 16 |") == 2
    assert "| milliseconds | DIET-ABS, training | Linformer, training |" in table
