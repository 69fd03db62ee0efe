"""The results of a benchmark: begun or gone on with, kept in a file, shown as a page."""

import json
import re
import sys
from pathlib import Path

import keras

from benchmarks import measure


def add_file_options(parser):
    """Add `--output` and `--resume` to the options of a benchmark."""
    parser.add_argument("--output", type=Path, help="JSON file; a page goes beside it")
    parser.add_argument("--resume", action="store_true", help="keep what `--output` has")


def parse_file_options(parser, argv):
    """Return the options, if `--resume` has a file to go on with."""
    options = parser.parse_args(argv)
    if options.resume and not options.output:
        parser.error("--resume needs --output")
    return options


def start(module, argv, options, names, computes_on=None, **settings):
    """Return results without cells, or with `--resume` those of the file if it is of the same kind.

    Args:
        module: Name of the benchmark.
        argv: Its command line.
        options: Its options; with `resume`, those of the file `output` are gone on with.
        names: The options that the figures depend on.
        computes_on: Device that the benchmark uses. Default: the one that the backend does.
        **settings: What they depend on beside.
    """
    machine = measure.machine(computes_on)
    command = f"KERAS_BACKEND={keras.config.backend()} python -m {module} {' '.join(argv)}"
    results = {
        # Later commands go on at another date, maybe with other code.
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
        compared = new.keys() - {"date", "commit"}
        changed = sorted(name for name in compared if old.get(name) != new[name])
        if changed:
            sys.exit(f"{options.output} has other values of: {', '.join(changed)}.")
    previous["commands"] += results["commands"]
    return previous


def date_and_commit(machine):
    commit = machine["commit"]
    return machine["date"] + (f", commit {commit}" if commit else "")


def head_of_page(title, results):
    """Return the lines of a page that say how its figures were measured."""
    machine = results["machine"]
    environment = "".join(f", {name}={value}" for name, value in machine["environment"].items())
    software = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    settings = ", ".join(f"{name} {value}" for name, value in results["settings"].items())
    return [
        f"# {title}",
        "",
        *(f"    {command}" for command in results["commands"]),
        "",
        f"- Begun: {date_and_commit(machine)}",
        f"- Machine: {machine['processor']}, {machine['cores']} cores used, "
        f"{machine['memory_gib']} GiB of memory; computes on: {machine['device']}",
        f"- Backend: {machine['backend']}{environment}",
        f"- Software: {software}",
        f"- Settings: {settings}",
        "",
    ]


def markdown_table(columns, rows):
    """Return the lines of a table, its first column to the left and the numbers to the right."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def write(path, results, page):
    """Write the results as JSON and, beside it, a page; neither is ever half written."""
    text = json.dumps(results, indent=2)
    # A list of numbers is a line.
    text = re.sub(r"\[[^][{}]*\]", lambda numbers: " ".join(numbers[0].split()), text)
    path.parent.mkdir(parents=True, exist_ok=True)
    for target, content in ((path, text), (path.with_suffix(".md"), page)):
        unfinished = target.with_name(target.name + ".unfinished")
        unfinished.write_text(content.rstrip() + "\n", encoding="utf-8")
        unfinished.replace(target)
