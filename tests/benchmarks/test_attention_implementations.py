"""The benchmark of attention by length, with a tiny BERT."""

import json

import keras
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


def test_implementations_of_each_backend():
    on_torch = keras.config.backend() == "torch"
    assert benchmark.implementations("diet_rel") == ["full", "blockwise"]
    assert ("hugging_face" in benchmark.implementations("diet_abs")) == on_torch


@pytest.mark.any_backend
def test_resumed_run_measures_missing_cells(tmp_path, monkeypatch):
    output = tmp_path / "lengths.json"
    benchmark.main([*TINY, "--encodings", "diet_rel", "--output", str(output)])
    before = json.loads(output.read_text())["cells"]
    timed = []
    row = {"milliseconds": 1, "ratio_to_full": 1, "ratio_quartiles": [1, 1], "compile_seconds": 1}
    rows = {"full": row}
    monkeypatch.setattr(
        benchmark, "measure_times", lambda encoding, *rest: timed.append(encoding) or rows
    )
    benchmark.main([*TINY, "--output", str(output), "--resume"])
    after = json.loads(output.read_text())["cells"]
    assert timed == ["diet_abs"]
    assert after["diet_rel, 16 tokens, inference"] == before["diet_rel, 16 tokens, inference"]


@pytest.mark.any_backend
def test_results_with_other_settings_do_not_resume(tmp_path):
    output = tmp_path / "lengths.json"
    benchmark.main([*TINY, "--encodings", "diet_rel", "--output", str(output)])
    with pytest.raises(SystemExit, match="other values of: dropout"):
        benchmark.main([*TINY, "--dropout", "0.2", "--output", str(output), "--resume"])


@pytest.mark.any_backend
def test_resume_needs_a_file():
    with pytest.raises(SystemExit):
        benchmark.parse_arguments(["--resume"])
