"""The results of a benchmark: how they start or resume, their file, and their page."""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras

from benchmarks import measure


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add `--output` and `--resume` to the options of a benchmark."""
    parser.add_argument("--output", type=Path, help="JSON file; a page is written beside it")
    parser.add_argument("--resume", action="store_true", help="add to the results in `--output`")


def parse_file_options(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Return the options. `--resume` without `--output` is an error."""
    options = parser.parse_args(argv)
    if options.resume and not options.output:
        parser.error("--resume needs --output")
    return options


def start(
    module: str,
    argv: Sequence[str],
    options: argparse.Namespace,
    names: Iterable[str],
    computes_on: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return results without cells, or the results of the file to resume.

    The machine and the settings of the file must be the same. Otherwise the program ends.

    Args:
        module: Name of the benchmark.
        argv: Its command line.
        options: Its options. With `resume`, the results in the file `output` are returned.
        names: The options that the figures depend on.
        computes_on: Device that the benchmark uses. Defaults to the device of the backend.
        **settings: Other settings that the figures depend on.
    """
    machine = measure.machine(computes_on)
    command = f"KERAS_BACKEND={keras.config.backend()} python -m {module} {' '.join(argv)}"
    results = {
        # A run may be resumed on another day and with another commit.
        "commands": [f"{command.strip()} # {date_and_commit(machine)}"],
        "machine": machine,
        "settings": {name: getattr(options, name) for name in names} | settings,
        "cells": {},
    }
    if not (options.resume and options.output.exists()):
        return results
    previous = json.loads(options.output.read_text(encoding="utf-8"))
    for part in ("machine", "settings"):
        old, new = previous[part], results[part]
        compared = (old.keys() | new.keys()) - {"date", "commit"}
        changed = sorted(name for name in compared if old.get(name) != new.get(name))
        if changed:
            sys.exit(
                f"Cannot resume {options.output}, which has other values of: "
                f"{', '.join(changed)}. Use the same values or another --output."
            )
    previous["commands"] += results["commands"]
    return previous


def date_and_commit(machine: dict[str, Any]) -> str:
    commit = machine["commit"]
    return machine["date"] + (f", commit {commit}" if commit else "")


def head_of_page(title: str, results: dict[str, Any]) -> list[str]:
    """Return the lines of a page that describe how its figures were measured."""
    machine = results["machine"]
    environment = "".join(f", {name}={value}" for name, value in machine["environment"].items())
    software = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    settings = ", ".join(f"{name} {value}" for name, value in results["settings"].items())
    return [
        f"# {title}",
        "",
        *(f"    {command}" for command in results["commands"]),
        "",
        f"- Started: {date_and_commit(machine)}",
        f"- Machine: {machine['processor']}, cores used: {machine['cores']}, "
        f"{machine['memory_gib']} GiB of memory, device: {machine['device']}",
        f"- Backend: {machine['backend']}{environment}",
        f"- Software: {software}",
        f"- Settings: {settings}",
        "",
    ]


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table. All columns but the first are aligned to the right."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def mean_and_deviation(values: Iterable[float], digits: int) -> str:
    """Return "mean ± standard deviation" as text, the only value alone, or nothing for none."""
    values = list(values)
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def write(path: Path, results: dict[str, Any], page: str) -> None:
    """Write the results as JSON, and a page beside it. An interruption leaves the old files."""
    text = json.dumps(results, indent=2)
    # A list of numbers is written on one line.
    text = re.sub(r"\[[^][{}]*\]", lambda numbers: " ".join(numbers[0].split()), text)
    for target, content in ((path, text), (path.with_suffix(".md"), page)):
        write_text(target, content.rstrip() + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file that is complete or absent, in a folder that need not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
