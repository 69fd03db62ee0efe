"""The results of a benchmark: how a run starts or resumes, the file of all runs, and their page.

A file holds runs by their names, such as "JAX". A run has the results of one backend with one group
of settings, in cells. The page beside the file has a part for each run.
"""

import argparse
import json
import math
import re
import shlex
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
from tqdm import tqdm

from benchmarks import measure

BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}


def make_parser(documentation: str) -> argparse.ArgumentParser:
    """Return a parser without options, for a benchmark with this documentation."""
    return argparse.ArgumentParser(
        description=documentation.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )


def name_of_run(text: str) -> str:
    """Return a name. `BACKEND` in it, as in the default that help shows, stands for the backend."""
    return text.replace("BACKEND", BACKENDS[keras.config.backend()])


def shape(text: str) -> tuple[int, ...]:
    """Return the numbers of an option such as "8x128"."""
    return tuple(map(int, text.split("x")))


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a benchmark and those of its file, with the command line."""
    parser.add_argument("--output", type=Path, help="JSON file; a page is written beside it")
    parser.add_argument(
        "--name", type=name_of_run, default="BACKEND", help="name of the run in the file"
    )
    parser.add_argument("--resume", action="store_true", help="add to the run in `--output`")
    options = parser.parse_args(argv)
    options.command = sys.argv[1:] if argv is None else list(argv)
    if options.resume and not options.output:
        parser.error("--resume needs --output")
    return options


def start(
    module: str,
    options: argparse.Namespace,
    names: Iterable[str],
    computes_on: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return a run without cells, or the run of the file to resume.

    The machine and the settings of that run must be the same. Otherwise the program ends.

    Args:
        module: Name of the benchmark.
        options: Its options, as of `parse`. With `resume`, the run `name` of the file `output`
            is returned.
        names: The options that the figures depend on.
        computes_on: Device that the benchmark uses. Defaults to the device of the backend.
        **settings: Other settings that the figures depend on.
    """
    machine = measure.machine(computes_on)
    command = f"KERAS_BACKEND={keras.config.backend()} python -m {module} "
    command += shlex.join(options.command)
    run = {
        # A run may be resumed on another day and with another commit.
        "commands": [f"{command.strip()} # {date_and_commit(machine)}"],
        "machine": machine,
        "settings": {name: getattr(options, name) for name in names} | settings,
        "cells": {},
    }
    runs = read(options.output) if options.resume else {}
    if options.name not in runs:
        return run
    previous = runs[options.name]
    for part in ("machine", "settings"):
        old, new = previous[part], run[part]
        compared = (old.keys() | new.keys()) - {"date", "commit"}
        changed = sorted(name for name in compared if old.get(name) != new.get(name))
        if changed:
            sys.exit(
                f"Cannot resume {options.name!r} in {options.output}, which has other values of: "
                f"{', '.join(changed)}. Use the same values or another --name."
            )
    previous["commands"] += run["commands"]
    return previous


def measure_cells(
    options: argparse.Namespace,
    run: dict[str, Any],
    cells: Mapping[str, Callable[[], Any] | Mapping[str, Callable[[], Any]]],
    make_page: Callable[[dict[str, Any]], str],
    minutes: float = math.inf,
) -> None:
    """Measure what a run lacks, save the run after each row, and print its page.

    What fails does not stop the others. The program then ends with an error, and `--resume` repeats
    it.

    Args:
        options: The options of the benchmark, as of `parse`.
        run: The run, as of `start`.
        cells: For each cell by name a function, or a function for each of its rows by name.
        make_page: Makes a page of runs.
        minutes: After this time no function begins.
    """
    functions = {
        (name, row): function
        for name, cell in cells.items()
        for row, function in ({None: cell} if callable(cell) else cell).items()
    }
    end, left, failed = time.monotonic() + 60 * minutes, 0, []
    for (name, row), measure_one in tqdm(functions.items(), unit="row"):
        cell = run["cells"].get(name, {})
        if row in cell or (row is None and cell):
            continue
        if time.monotonic() > end:
            left += 1
            continue
        try:
            found = measure_one()
        except Exception as error:
            traceback.print_exc()
            failed.append(f"{name}, {row or 'all rows'}: {type(error).__name__}: {error}")
            continue
        run["cells"][name] = cell | (found if row is None else {row: found})
        save(options, run, make_page)
    print(make_page({options.name: run}))
    if left:
        print(f"The time is over. {left} rows are left for the same command with --resume.")
    if failed:
        sys.exit("\n".join(failed))


def read(path: Path) -> dict[str, Any]:
    """Return the runs of a file, which need not exist."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def save(
    options: argparse.Namespace, run: dict[str, Any], make_page: Callable[[dict[str, Any]], str]
) -> None:
    """Write a run into its file, if there is one. The other runs of the file stay."""
    if options.output:
        runs = read(options.output) | {options.name: run}
        write(options.output, runs, make_page(runs))


def date_and_commit(machine: dict[str, Any]) -> str:
    commit = machine["commit"]
    return machine["date"] + (f", commit {commit}" if commit else "")


def page_of(
    title: str,
    introduction: str,
    runs: Mapping[str, Any],
    make_tables: Callable[[dict[str, Any]], Iterable[str]],
) -> str:
    """Return a page with a part for each run: how it was measured, and its tables."""
    lines = [f"# {title}", ""]
    if introduction:
        lines += [introduction.rstrip(), ""]
    for name, run in runs.items():
        lines += [f"## {name}", "", *description(run), "", *make_tables(run), ""]
    return "\n".join(lines[:-1])


def head_of_page(title: str, run: dict[str, Any]) -> list[str]:
    """Return the first lines of a page with a single run."""
    return [f"# {title}", "", *description(run), ""]


def description(run: dict[str, Any]) -> list[str]:
    """Return the lines of a page that describe how the figures of a run were measured."""
    machine = run["machine"]
    environment = "".join(f", {name}={value}" for name, value in machine["environment"].items())
    software = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    settings = ", ".join(f"{name} {value}" for name, value in run["settings"].items())
    return [
        *(f"    {command}" for command in run["commands"]),
        "",
        f"- Started: {date_and_commit(machine)}",
        f"- Machine: {machine['processor']}, cores used: {machine['cores']}, "
        f"{machine['memory_gib']} GiB of memory, device: {machine['device']}",
        f"- Backend: {machine['backend']}{environment}",
        f"- Software: {software}",
        f"- Settings: {settings}",
    ]


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table. All columns but the first are aligned to the right."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def ratio_of(row: Mapping[str, Any]) -> str:
    """Return the ratio of a row of `measure.compare`, with its quartiles."""
    low, high = row["ratio_quartiles"]
    return f"{row['ratio']:.2f} ({low:.2f} - {high:.2f})"


def mean_and_deviation(values: Iterable[float], digits: int) -> str:
    """Return "mean ± standard deviation" as text, the only value alone, or nothing for none."""
    values = list(values)
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def write(path: Path, results: Mapping[str, Any], page: str) -> None:
    """Write results as JSON, and a page beside it. An interruption leaves the old files."""
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
