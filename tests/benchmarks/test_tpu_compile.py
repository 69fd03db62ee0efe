"""The benchmark of costs on a TPU: its command, and a tiny BERT compiled for four chips."""

import json
from concurrent.futures.process import BrokenProcessPool

import keras
import pytest

from benchmarks import tpu_compile

INPUT = {"bytes_accessed": 4e9, "temporary_bytes": 0, "compile_seconds": 3.0}


@pytest.fixture
def compiler(monkeypatch):
    """Pretend that JAX and the compiler are installed, and return the compiled programs."""
    programs = []

    def in_own_process(compile_program, *program):
        programs.append(program)
        row = program[2]
        if row == "shaw":
            raise BrokenProcessPool("crashed")
        return {**INPUT, "flops": {"input": 2e12, "t5": 2.5e12, "tupe_rel": 3e12}[row]}

    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    monkeypatch.setattr(tpu_compile, "PACKAGES", ("keras",))
    monkeypatch.setattr(tpu_compile, "ENVIRONMENT", {})
    monkeypatch.setattr(tpu_compile.measure, "in_own_process", in_own_process)
    return programs


@pytest.mark.any_backend
def test_results_are_written_and_resumed(compiler, tmp_path, capsys):
    output = tmp_path / "tpu.json"
    arguments = ["--sizes", "small", "--steps", "inference", "--output", str(output)]
    failed = pytest.raises(SystemExit, match="small, inference, shaw: BrokenProcessPool: crashed")
    with failed:
        tpu_compile.main([*arguments, "--rows", "shaw", "input"])
    rows = json.loads(output.read_text())["JAX"]["cells"]["small, inference"]
    assert list(rows) == ["input"]
    compiler.clear()
    # Results are kept, and programs that failed are compiled again.
    with failed:
        tpu_compile.main([*arguments, "--rows", "shaw", "tupe_rel", "t5", "--resume"])
    assert sorted(row for _, _, row, _ in compiler) == ["shaw", "t5", "tupe_rel"]
    page = output.with_suffix(".md").read_text()
    assert page in capsys.readouterr().out
    for text in (
        "--rows shaw input #",
        "--rows shaw tupe_rel t5 --resume #",
        "device: cpu",
        "| t5 | 1.250 | 1.000 |  | 1.250 |  |  |  |",
        "| tupe_rel | 1.500 | 1.000 |  | 1.500 |  |  | 1.27 |",
    ):
        assert text in page
