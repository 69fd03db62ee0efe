"""Runs of experiments from studies, and the tables that the experiments write."""

import csv
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
# Scripts import `benchmarks` and `examples`.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1])}


def run_example(script: str, *words: Any) -> None:
    """Run a script of this folder with these words of its command line."""
    command = [sys.executable, FOLDER / script, *map(str, words)]
    subprocess.run(command, check=True, env=ENVIRONMENT)


def as_options(values: Mapping[str, Any]) -> list[Any]:
    """Return the words of a command line, such as `["--epochs", 4]` for `{"epochs": 4}`."""
    return [word for name, value in values.items() for word in (f"--{name}", value)]


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def validation_losses(folder: Path) -> list[float]:
    """Return the losses in the `history.csv` of a training."""
    return [float(row["val_loss"]) for row in read_table(folder / "history.csv")]
