"""The benchmark of attention by length, with a tiny BERT."""

import json

import pytest

from benchmarks import attention_implementations as benchmark
from benchmarks import bert_models

TINY = ["--size", "tiny", "--lengths", "16", "--steps", "inference", "--rounds", "1"]


@pytest.fixture(autouse=True)
def without_processes(monkeypatch):
    monkeypatch.setattr(bert_models, "VOCABULARY_SIZE", 31)
    monkeypatch.setattr(benchmark, "measure_memory", lambda *cell: 7.0)


def test_every_implementation_is_compared_with_full(tmp_path, capsys):
    output = tmp_path / "lengths.json"
    benchmark.main([*TINY, "--output", str(output)])
    cells = json.loads(output.read_text())["cells"]
    assert list(cells) == ["diet_abs, 16 tokens, inference", "diet_rel, 16 tokens, inference"]
    for cell in cells.values():
        rows = benchmark.implementations(cell["encoding"])
        assert list(cell["rows"]) == rows
        assert cell["rows"]["full"]["ratio_to_full"] == 1
        assert all(row["milliseconds"] > 0 and row["mib"] == 7 for row in cell["rows"].values())
    page = output.with_suffix(".md").read_text()
    assert page in capsys.readouterr().out
    assert page.count("| blockwise |") == 2
