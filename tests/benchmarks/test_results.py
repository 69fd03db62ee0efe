"""How the results of a benchmark start, resume, and become files and pages."""

import argparse
import json

import keras
import pytest

from benchmarks import results

pytestmark = pytest.mark.any_backend


def test_results_their_page_and_their_next_run(tmp_path):
    """The page names each command, the settings, the software and the machine."""
    path = tmp_path / "new" / "results.json"

    def start(*argv):
        options = argparse.Namespace(output=path, resume=True, size="small")
        return results.start("benchmarks.some", argv, options, ["size"], seed=3)

    begun = start("--rows", "shaw")
    written = {**begun, "cells": {"a": {"numbers": [1.5, 2], "texts": ["a, b"]}}}
    results.write(path, written, "\n".join(results.head_of_page("Title", written)))
    assert json.loads(path.read_text()) == written
    assert '"numbers": [ 1.5, 2 ]' in path.read_text()
    page = path.with_suffix(".md").read_text()
    machine = begun["machine"]
    for text in (
        "# Title\n",
        "some --rows shaw",
        "size small, seed 3",
        f"keras {keras.__version__}",
        machine["date"],
        machine["processor"],
    ):
        assert text in page
    assert len(list(path.parent.iterdir())) == 2

    resumed = start("--second")
    assert resumed["cells"] == written["cells"]
    commands = [command.split(" # ")[0].split()[-1] for command in resumed["commands"]]
    assert commands == ["shaw", "--second"]
