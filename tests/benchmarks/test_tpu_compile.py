"""The benchmark of costs on a TPU: tables, errors, and a tiny BERT compiled for four chips."""

import importlib.util
import json
import subprocess
import types

import keras
import pytest

from benchmarks import tpu_compile

INPUT = {"flops": 2e12, "bytes_accessed": 4e9, "temporary_bytes": 0, "compile_seconds": 3.0}
OTHER = {"flops": 2.5e12, "bytes_accessed": 3e9, "temporary_bytes": 2**20, "compile_seconds": 4.0}
TINY = ["--sizes", "tiny", "--topology", "v5e:2x2", "--global-batch", "16", "--dropout", "0"]


@pytest.fixture
def compiler(monkeypatch):
    """JAX and its compiler for TPUs as if they were here; returns the programs it is given."""
    programs = []

    def compile_in_own_process(program, arguments):
        programs.append(program)
        return {"error": "no such chip"} if program[2] == "shaw" else dict(INPUT)

    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(tpu_compile, "PACKAGES", ("keras",))
    monkeypatch.setattr(tpu_compile, "compile_in_own_process", compile_in_own_process)
    return programs


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--topology", "v5e"], "must look like v5e:4x4, not 'v5e'"),
        (["--topology", "v5e:2x4", "--global-batch", "12"], "cannot be split among 8 chips"),
        (["--resume"], "--resume needs the --output file"),
        (["--rows", "diet"], "invalid choice: 'diet'"),
    ],
)
def test_arguments_that_cannot_work(arguments, message, capsys):
    with pytest.raises(SystemExit):
        tpu_compile.main(arguments)
    assert message in capsys.readouterr().err


def test_other_backends_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(keras.config, "backend", lambda: "torch")
    with pytest.raises(SystemExit):
        tpu_compile.main([])
    assert "set KERAS_BACKEND=jax, not torch" in capsys.readouterr().err


def test_a_missing_compiler_names_the_extra(monkeypatch, capsys):
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        tpu_compile.main([])
    assert 'pip install "keras-diet[tpu-compile]"' in capsys.readouterr().err


def test_roofline_and_ratios():
    rows = {"input": dict(INPUT), "shaw": dict(OTHER), "t5": {"error": "too large"}}
    tpu_compile.compare(rows, "v5e")
    # The operations take longer than the bytes.
    assert rows["shaw"]["roofline_seconds"] == pytest.approx(2.5e12 / 197e12)
    ratios = {"flops": 1.25, "bytes_accessed": 0.75, "roofline_seconds": 1.25}
    assert rows["shaw"]["ratios_to_input"] == pytest.approx(ratios)
    assert rows["t5"]["ratios_to_input"] == {}
    rows = {"shaw": dict(OTHER)}
    tpu_compile.compare(rows, "v99")
    assert "roofline_seconds" not in rows["shaw"]
    assert rows["shaw"]["ratios_to_input"] == {}


def test_the_bytes_can_be_the_roofline():
    rows = {"input": {**INPUT, "bytes_accessed": 819e9}}
    tpu_compile.compare(rows, "v5e")
    assert rows["input"]["roofline_seconds"] == pytest.approx(1.0)


def test_tables():
    rows = {"input": dict(INPUT), "shaw": dict(OTHER), "t5": {"error": "too large"}}
    tpu_compile.compare(rows, "v5e")
    figures = tpu_compile.figures_table(rows)
    assert figures[0].startswith("|  | TFLOP | GB moved | Mcycles | roofline, ms |")
    assert figures[3] == "| shaw | 2.500 | 3.00 |  | 12.7 |  |  | 1 |  | 4 |"
    assert figures[4] == "| t5 | too large |  |  |  |  |  |  |  |  |"
    ratios = tpu_compile.ratios_table(rows, {"shaw": 1.33})
    assert ratios[0] == (
        "|  | FLOPs | bytes moved | cycles | roofline | temporary | peak | Table 1 |"
    )
    assert ratios[3] == "| shaw | 1.250 | 0.750 |  | 1.250 |  |  | 1.33 |"
    assert len({line.count("|") for line in figures}) == len({line.count("|") for line in ratios})


def test_cycles_are_those_of_the_entry_computation():
    program = (
        '%inner (p: f32[]) -> f32[] {\n a, backend_config={"estimated_cycles":"1"}\n}\n\n'
        'ENTRY %main {\n b, backend_config={"estimated_cycles":"20"}\n'
        ' c, backend_config={"estimated_cycles":"300"}\n}\n'
    )
    assert tpu_compile.estimated_cycles(program) == 320


@pytest.mark.parametrize(
    "program, counted",
    [
        ('ENTRY %main {\n a, backend_config={"estimated_cycles":"20"}\n}', True),
        ("ENTRY %main {\n a = (s32[]) while(b), condition=c, body=d\n}", False),
        ('ENTRY %main {\n a = custom-call(b), custom_call_target="tpu_custom_call"\n}', False),
    ],
)
def test_what_the_compiler_does_not_count_is_not_shown(program, counted):
    memory = ("argument", "output", "temp")
    compiled = types.SimpleNamespace(
        as_text=lambda: "\n" + program,
        cost_analysis=lambda: {"flops": 1.0, "bytes accessed": 2.0},
        memory_analysis=lambda: types.SimpleNamespace(
            peak_memory_in_bytes=7, **{f"{name}_size_in_bytes": 5 for name in memory}
        ),
    )
    figures = tpu_compile.figures_of(compiled)
    assert figures["peak_bytes"] == 7
    assert ("flops" in figures) == ("estimated_cycles" in figures) == counted


def test_results_are_kept_and_gone_on_with(compiler, tmp_path, capsys):
    output = tmp_path / "results" / "tpu.json"
    arguments = ["--sizes", "small", "--steps", "inference", "--output", str(output)]
    tpu_compile.main([*arguments, "--rows", "shaw", "input"])
    assert len(compiler) == 2
    rows = json.loads(output.read_text())["cells"]["small, inference"]
    assert list(rows) == ["input", "shaw"]
    assert rows["shaw"]["error"] == "no such chip"
    compiler.clear()
    # What is there is kept, and what failed is tried again.
    tpu_compile.main([*arguments, "--rows", "shaw", "input", "t5", "--resume"])
    assert sorted(row for _, _, row in compiler) == ["shaw", "t5"]
    first, second = json.loads(output.read_text())["commands"]
    assert "--rows shaw input #" in first
    assert "--rows shaw input t5 --resume #" in second
    page = output.with_suffix(".md").read_text()
    assert first in page
    assert "computes on: cpu" in page
    assert page in capsys.readouterr().out
    assert "| t5 | 1.000 | 1.000 |  | 1.000 |  |  |  |" in page
    assert "| shaw |  |  |  |  |  |  | 1.65 |" in page


def test_table_1_is_of_its_length(compiler, capsys):
    arguments = ["--sizes", "small", "--steps", "inference", "--rows", "input", "diet_abs_full"]
    pages = []
    for length in (128, 256):
        tpu_compile.main([*arguments, "shaw", "--length", str(length)])
        pages.append(capsys.readouterr().out)
    assert ["1.65" in page for page in pages] == [True, False]
    assert all("| diet_abs_full |" in page for page in pages)


def test_results_of_other_settings_are_not_gone_on_with(compiler, tmp_path):
    arguments = ["--rows", "input", "--output", str(tmp_path / "tpu.json")]
    tpu_compile.main(arguments)
    with pytest.raises(SystemExit, match="other values of: length"):
        tpu_compile.main([*arguments, "--length", "256", "--resume"])
    compiler.clear()
    tpu_compile.main([*arguments, "--length", "256"])
    assert len(compiler) == 4


def test_a_compiler_that_ends_its_process_is_an_error_of_its_row(monkeypatch):
    def run(command, **kwargs):
        return subprocess.CompletedProcess(command, -6, stdout="", stderr="note\nCheck failed\n")

    monkeypatch.setattr(subprocess, "run", run)
    result = tpu_compile.compile_in_own_process(("tiny", "inference", "input"), [])
    assert result == {"error": "exit status -6: Check failed"}


@pytest.fixture
def tables(tmp_path):
    """Return a function that compiles tiny programs and returns their tables."""
    if keras.config.backend() != "jax":
        pytest.skip("only JAX compiles for a TPU without one")
    pytest.importorskip("libtpu", reason="needs the compiler for TPUs: keras-diet[tpu-compile]")
    output = tmp_path / "tpu.json"

    def compile_tiny(*arguments):
        tpu_compile.main([*TINY, "--output", str(output), *arguments])
        return json.loads(output.read_text())["cells"]

    return compile_tiny


def test_a_tiny_model_compiles_for_a_tpu(tables):
    tables = tables("--rows", "input", "diet_abs")
    for step in tpu_compile.STEPS:
        rows = tables[f"tiny, {step}"]
        for values in rows.values():
            assert "error" not in values
            assert values["estimated_cycles"] > 0
            assert values["peak_bytes"] >= values["argument_bytes"]
        assert rows["diet_abs"]["ratios_to_input"]["flops"] > 1
    inference, training = (tables[f"tiny, {step}"]["input"] for step in tpu_compile.STEPS)
    # Four sequences of 128 tokens a chip: eight products of 16 x 16 a token, and attention.
    tokens, dim = 4 * 128, 16
    assert inference["flops"] > 2 * tokens * (8 * dim**2 + 2 * dim * 128)
    assert training["flops"] > 2 * inference["flops"]
    # Weights with AdamW's two moments, and they are returned.
    assert training["argument_bytes"] > 2.9 * inference["argument_bytes"]
    assert training["output_bytes"] > 2.9 * inference["argument_bytes"]


def test_kernels_and_loops_of_long_sequences_compile(tables):
    names = ["diet_abs", "diet_abs_features", "diet_abs_full"]
    tables = tables("--rows", "input", *names, "--length", "2048")
    for step in tpu_compile.STEPS:
        rows = tables[f"tiny, {step}"]
        assert not any("error" in rows[name] for name in names)
        blocks, kernel, full = (rows[name]["temporary_bytes"] for name in names)
        assert max(blocks, kernel) < full / 3
        assert ["flops" in rows[name] for name in names] == [False, False, True]


def test_an_unknown_chip_is_an_error_of_its_row(tables):
    tables = tables("--rows", "input", "--steps", "inference", "--topology", "v0:2x2")
    assert "v0" in tables["tiny, inference"]["input"]["error"]
