"""How the results of a benchmark start, resume, and become files and pages."""

import argparse
import json

import keras
import pytest

from benchmarks import measure, results

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


def test_each_command_has_its_date_and_commit(output, monkeypatch):
    machine = measure.machine()
    later = {"date": "2030-01-31", "commit": "abc1234"}
    monkeypatch.setattr(measure, "machine", lambda computes_on: machine | later)
    resumed = start(output, "--second")
    first, second = resumed["commands"]
    assert first.endswith(f"--first # {results.date_and_commit(machine)}")
    assert second.endswith("--second # 2030-01-31, commit abc1234")
    assert resumed["machine"] == machine
    head = results.head_of_page("Title", resumed)
    assert [line.strip() for line in head[2:4]] == [first, second]


def test_a_checkout_without_git_has_only_a_date(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "commit", lambda: "")
    begun = start(tmp_path / "results.json", "--first")
    date = begun["machine"]["date"]
    assert begun["commands"][0].endswith(f"--first # {date}")
    assert f"- Started: {date}" in results.head_of_page("Title", begun)


@pytest.mark.parametrize("changed", [{"size": "base"}, {"seed": 1}])
def test_results_with_other_settings_do_not_resume(output, changed):
    with pytest.raises(SystemExit, match="".join(changed)):
        start(output, **changed)


def test_results_with_a_setting_that_is_gone_do_not_resume(output):
    """The format of the cells may have changed with it."""
    saved = json.loads(output.read_text())
    saved["settings"]["rounds"] = 7
    output.write_text(json.dumps(saved))
    with pytest.raises(SystemExit, match="rounds"):
        start(output)


def test_results_of_another_machine_do_not_resume(output):
    saved = json.loads(output.read_text())
    saved["machine"]["cores"] += 1
    output.write_text(json.dumps(saved))
    with pytest.raises(SystemExit, match="cores"):
        start(output)


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


def test_markdown_table():
    lines = results.markdown_table(["model", "ms"], [["ours", "1.0"], ["theirs", "2.0"]])
    assert lines == ["| model | ms |", "| --- | ---: |", "| ours | 1.0 |", "| theirs | 2.0 |"]
