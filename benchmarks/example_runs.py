"""Runs of the examples from benchmarks, and the tables that the examples write."""

import csv
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(script: str, *words: Any) -> None:
    """Run a script of `examples/` with these words of its command line."""
    subprocess.run([sys.executable, EXAMPLES / script, *map(str, words)], check=True)


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
