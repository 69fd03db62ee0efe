"""The benchmark of recomputation, with a tiny BERT."""

import json

import pytest

from benchmarks import bert_models, measure
from benchmarks import recomputation as benchmark

TINY = ["--size", "tiny", "--length", "16", "--batch-size", "3", "--rounds", "1"]


def test_every_value_is_compared_with_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bert_models, "VOCABULARY_SIZE", 31)
    commands = []
    monkeypatch.setattr(measure, "in_own_process", lambda *part: commands.append(part) or "7.0")
    output = tmp_path / "recomputation.json"
    benchmark.main([*TINY, "--output", str(output)])
    (cell,) = json.loads(output.read_text())["cells"].values()
    assert list(cell["rows"]) == ["none", "attention", "block"]
    assert cell["rows"]["none"]["ratio_to_none"] == 1
    assert all(row["milliseconds"] > 0 and row["mib"] == 7 for row in cell["rows"].values())
    page = output.with_suffix(".md").read_text()
    assert page in capsys.readouterr().out
    assert page.count("\n| diet_abs | block |") == 1
    assert [command[2:4] for command in commands] == [("diet_abs", name) for name in cell["rows"]]
    # The process of a cell has the settings of the benchmark.
    options = benchmark.parse_arguments(commands[2][1:])
    assert (options.size, options.length, options.batch_size) == ("tiny", 16, 3)
    benchmark.main([*TINY, "--output", str(output), "--resume"])
    assert len(commands) == 3


@pytest.mark.any_backend
def test_memory_of_a_cell(monkeypatch, capsys):
    monkeypatch.setattr(bert_models, "VOCABULARY_SIZE", 31)
    made, make_step = [], benchmark.make_step
    monkeypatch.setattr(
        benchmark, "make_step", lambda *args, **kwargs: made.append(args) or make_step(*args)
    )
    monkeypatch.setattr(measure, "memory_of", lambda step: 7.0 if step() is not None else 0.0)
    benchmark.main([*TINY, "--cell", "diet_rel", "block"])
    assert capsys.readouterr().out == "7.0\n"
    assert [each[:2] for each in made] == [("diet_rel", "block")] * 2
    assert made[1][2].batch_size == 3
