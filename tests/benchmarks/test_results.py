"""How the results of a benchmark start, resume, and become files and pages."""

import argparse
import json

import keras
import pytest

from benchmarks import results

MODULE = "benchmarks.some"
pytestmark = pytest.mark.any_backend


def start(output, *argv, size="small", resume=True, seed=0):
    options = argparse.Namespace(output=output, resume=resume, size=size)
    return results.start(MODULE, argv, options, ["size"], seed=seed)


@pytest.fixture
def output(tmp_path):
    path = tmp_path / "results.json"
    results.write(path, {**start(path, "--first"), "cells": {"a": 1}}, "# Page")
    return path


def test_results_resume(output):
    resumed = start(output, "--second")
    assert resumed["cells"] == {"a": 1}
    commands = [command.split(" # ")[0] for command in resumed["commands"]]
    assert [command.split()[-1] for command in commands] == ["--first", "--second"]
    assert start(output, resume=False)["cells"] == {}


def test_head_of_a_page(tmp_path):
    begun = start(tmp_path / "results.json", "--rows", "shaw")
    head = "\n".join(results.head_of_page("Title", begun))
    machine = begun["machine"]
    software = f"keras {keras.__version__}"
    command = "some --rows shaw"
    for text in (
        "# Title",
        command,
        "size small, seed 0",
        software,
        machine["date"],
        machine["processor"],
    ):
        assert text in head


def test_written_results(tmp_path):
    path = tmp_path / "new" / "results.json"
    written = {"numbers": [1.5, 2], "texts": ["a, b"], "nested": [[1, 2], [3]]}
    results.write(path, written, "# Page\n")
    assert json.loads(path.read_text()) == written
    assert '"numbers": [ 1.5, 2 ]' in path.read_text()
    assert (tmp_path / "new" / "results.md").read_text() == "# Page\n"
    assert len(list(path.parent.iterdir())) == 2
