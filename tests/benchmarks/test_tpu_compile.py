"""The benchmark of costs on a TPU: its command, and a tiny BERT compiled for four chips."""

import importlib.util
import json

import keras
import pytest

from benchmarks import tpu_compile

INPUT = {"bytes_accessed": 4e9, "temporary_bytes": 0, "compile_seconds": 3.0}


@pytest.fixture
def compiler(monkeypatch):
    """Pretend that JAX and the compiler are installed, and return the compiled programs."""
    programs = []

    def compile_in_own_process(program, options):
        programs.append(program)
        flops = {"input": 2e12, "t5": 2.5e12}
        return {**INPUT, "flops": flops[row]} if (row := program[2]) in flops else {"error": "no"}

    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(tpu_compile, "PACKAGES", ("keras",))
    monkeypatch.setattr(tpu_compile, "ENVIRONMENT", {})
    monkeypatch.setattr(tpu_compile, "compile_in_own_process", compile_in_own_process)
    return programs


@pytest.mark.any_backend
def test_results_are_written_and_resumed(compiler, tmp_path, capsys):
    output = tmp_path / "tpu.json"
    arguments = ["--sizes", "small", "--steps", "inference", "--output", str(output)]
    tpu_compile.main([*arguments, "--rows", "shaw", "input"])
    rows = json.loads(output.read_text())["JAX"]["cells"]["small, inference"]
    assert list(rows) == ["input", "shaw"]
    assert rows["shaw"]["error"] == "no"
    compiler.clear()
    # Results are kept, and programs that failed are compiled again.
    tpu_compile.main([*arguments, "--rows", "shaw", "input", "t5", "--resume"])
    assert sorted(row for _, _, row in compiler) == ["shaw", "t5"]
    page = output.with_suffix(".md").read_text()
    assert page in capsys.readouterr().out
    for text in (
        "--rows shaw input #",
        "--rows shaw input t5 --resume #",
        "device: cpu",
        "| t5 | 1.250 | 1.000 |  | 1.250 |  |  |  |",
        "| shaw |  |  |  |  |  |  | 1.65 |",
    ):
        assert text in page
