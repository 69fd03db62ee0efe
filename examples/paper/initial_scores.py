"""How large positional scores should be at the start: trainings that differ in nothing else.

A run trains the model of the study (`study.py`) with one encoding, whose parameters are
multiplied so that the first positional scores have a chosen standard deviation. Constant scores of
a query do not count, because softmax removes them. Runs that differ only in this number and in the
seed train at the same time, as copies of one model. `--lengths` then evaluates them on longer
sequences than they were trained with, and `--glue` fine-tunes them.

    KERAS_BACKEND=jax python -m examples.paper.initial_scores --text train/* \
        --validation-text valid/* --output examples/paper/results/initial_scores.json

To resume, give the same command again: finished runs are kept. `--rows`, `--stddevs`,
`--learning-rates`, `--widths` and `--seeds` choose the runs, and `--change` changes the recipe of
the study. On a GPU, a few `--processes` at the same time hide how long programs take to compile.
The folder `--runs` has the token ids of all texts. Where it exists, the texts are not read again.
Several commands at the same time need an `--output` each. `--merge FILE ...` joins their files.
"""

import argparse
import concurrent.futures
import itertools
import json
import multiprocessing
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tqdm

from benchmarks import measure
from benchmarks.results import date_and_commit
from examples.paper import study
from examples.paper.initial_scores_page import key_of, save
from examples.paper.initial_scores_runs import pack, train_on_device
from examples.paper.initial_scores_scale import ROWS


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    if options.merge:
        save(options.output, merged(options.merge))
        return
    results = start(options)
    for run in runs_of(options):
        pack(run, options)
    done = {key_of(run) for run in results["runs"]}
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for run in runs_of(options):
        if key_of(run) not in done:
            groups.setdefault(group_of(run), []).append(run)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.processes, context) as pool:
        pending = [pool.submit(train_on_device, group, options) for group in groups.values()]
        finished = concurrent.futures.as_completed(pending)
        for future in tqdm.tqdm(finished, total=len(pending), unit="group"):
            results["runs"] += future.result()
            save(options.output, results)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--text", nargs="+", default=[], help="text files, as in the example")
    add("--validation-text", nargs="+", default=[], help="held-out text files")
    main_rows = ["diet_abs, rank 32", "diet_rel", "input"]
    add("--rows", nargs="+", default=main_rows, choices=list(ROWS), metavar="ROW")
    add("--stddevs", nargs="+", type=stddev, default=[None], metavar="STDDEV or default")
    add("--learning-rates", nargs="+", type=float, default=[0.002])
    add("--widths", nargs="+", type=int, default=[128])
    add("--seeds", nargs="+", type=int, default=[0])
    add("--change", nargs="+", type=lambda text: text.split("="), default=[], metavar="NAME=VALUE")
    add("--lengths", action="store_true", help="evaluate longer sequences")
    add("--glue", help="folder with the files of GLUE; default: no fine-tuning")
    add("--processes", type=int, default=1, help="groups of runs that train at the same time")
    add("--runs", type=Path, default=Path("runs", "initial_scores"), help="folder for the text")
    add("--output", type=Path, required=True, help="JSON file; a page is written beside it")
    add("--merge", nargs="+", type=Path, help="write the runs of these files to --output, and stop")
    options = parser.parse_args(argv)
    if {"hidden-dim", "intermediate-dim"} & {name for name, _ in options.change}:
        parser.error("--widths chooses the hidden size, and the intermediate size with it")
    changes = {name: type(study.RECIPE[name])(value) for name, value in options.change}
    options.recipe = {**study.RECIPE, **changes}
    return options


def stddev(text: str) -> float | None:
    """Return a standard deviation, or `None` for `default`: as the layers begin."""
    return None if text == "default" else float(text)


def start(options: argparse.Namespace) -> dict[str, Any]:
    """Return the results in the file, or results without runs, with this command."""
    machine = measure.machine()
    settings = {name: value for name, value in options.recipe.items() if "dim" not in name}
    results = {"commands": [], "machine": machine, "settings": settings, "runs": []}
    if options.output.exists():
        results = json.loads(options.output.read_text(encoding="utf-8"))
        if results["settings"] != settings:
            sys.exit(f"{options.output} has other settings. Use another --output.")
    words = [
        f"KERAS_BACKEND={machine['backend']} python -m examples.paper.initial_scores --text TEXT"
    ]
    words.append("--validation-text VALIDATION")
    for name in ("rows", "stddevs", "learning_rates", "widths", "seeds"):
        values = ["default" if value is None else value for value in getattr(options, name)]
        words += [f"--{name.replace('_', '-')}", *map(shlex.quote, map(str, values))]
    if options.lengths:
        words.append("--lengths")
    if options.change:
        words += ["--change", *map("=".join, options.change)]
    if options.glue:
        words += ["--glue", "GLUE"]
    command = f"{' '.join(words)} # {date_and_commit(machine)}, {machine['device']}"
    if command not in results["commands"]:
        results["commands"].append(command)
    return results


def merged(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the runs of all files. The first file describes the machine."""
    first, *others = (json.loads(path.read_text(encoding="utf-8")) for path in paths)
    for path, other in zip(paths[1:], others, strict=True):
        if other["settings"] != first["settings"]:
            sys.exit(f"{path} has other settings than {paths[0]}.")
        first["commands"] += other["commands"]
        first["runs"] += other["runs"]
    if len(set(map(key_of, first["runs"]))) < len(first["runs"]):
        sys.exit(f"Two runs of {', '.join(map(str, paths))} differ in nothing. Remove one.")
    return first


def runs_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the runs that the options choose."""
    names = ("width", "learning_rate", "row", "seed", "stddev")
    values = (
        *(options.widths, options.learning_rates),
        *(options.rows, options.seeds, options.stddevs),
    )
    for combination in itertools.product(*values):
        yield dict(zip(names, combination, strict=True))


def group_of(run: dict[str, Any]) -> tuple:
    """Return what the runs of a group have in common. Sinusoids are not variables."""
    common = run["row"], run["width"], run["learning_rate"]
    return (*common, run["stddev"]) if run["row"] == "sinusoidal" else common


if __name__ == "__main__":
    main()
