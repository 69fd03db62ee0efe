"""The benchmark of costs on a TPU: its command, and a tiny BERT compiled for four chips."""

import importlib.util
import json

import keras
import pytest

from benchmarks import tpu_compile, tpu_programs

INPUT = {"bytes_accessed": 4e9, "temporary_bytes": 0, "compile_seconds": 3.0}
TINY = ["--sizes", "tiny", "--topology", "v5e:2x2", "--global-batch", "16", "--dropout", "0"]


@pytest.fixture
def compiler(monkeypatch):
    """Pretend that JAX and the compiler are installed, and return the compiled programs."""
    programs = []

    def compile_in_own_process(program, arguments):
        programs.append(program)
        flops = {"input": 2e12, "t5": 2.5e12}
        return {**INPUT, "flops": flops[row]} if (row := program[2]) in flops else {"error": "no"}

    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(tpu_compile, "PACKAGES", ("keras",))
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


@pytest.mark.any_backend
def test_cycles_of_the_entry_computation():
    program = (
        '%inner (p: f32[]) -> f32[] {\n a, backend_config={"estimated_cycles":"1"}\n}\n\n'
        'ENTRY %main {\n b, backend_config={"estimated_cycles":"20"}\n'
        ' c, backend_config={"estimated_cycles":"300"}\n}\n'
    )
    assert tpu_programs.estimated_cycles(program) == 320


@pytest.mark.any_backend("jax")
def test_a_tiny_model_compiles_for_a_tpu(tmp_path):
    pytest.importorskip("libtpu", reason="needs keras-diet[tpu-compile]")
    output = tmp_path / "tpu.json"
    tpu_compile.main([*TINY, "--output", str(output), "--rows", "input", "diet_abs"])
    tables = json.loads(output.read_text())["JAX"]["cells"]
    for step in tpu_programs.STEPS:
        rows = tables[f"tiny, {step}"]
        for values in rows.values():
            assert "error" not in values
            assert values["estimated_cycles"] > 0
            assert values["peak_bytes"] >= values["argument_bytes"]
        assert rows["diet_abs"]["ratios_to_input"]["flops"] > 1
    inference, training = (tables[f"tiny, {step}"]["input"] for step in tpu_programs.STEPS)
    # Each chip has four sequences of 128 tokens, with eight products of 16 x 16 per token.
    tokens, dim = 4 * 128, 16
    assert inference["flops"] > 2 * tokens * (8 * dim**2 + 2 * dim * 128)
    assert training["flops"] > 2 * inference["flops"]
    # The weights and AdamW's two moments are arguments and outputs.
    assert training["argument_bytes"] > 2.9 * inference["argument_bytes"]
    assert training["output_bytes"] > 2.9 * inference["argument_bytes"]
