"""The figures of the compiler for TPUs, and their tables."""

import types

import pytest

from benchmarks import tpu_compile_results, tpu_programs

INPUT = {"flops": 2e12, "bytes_accessed": 4e9, "temporary_bytes": 0, "compile_seconds": 3.0}
OTHER = {"flops": 2.5e12, "bytes_accessed": 3e9, "temporary_bytes": 2**20, "compile_seconds": 4.0}
pytestmark = pytest.mark.any_backend


def test_roofline_and_ratios():
    rows = {"input": dict(INPUT), "shaw": dict(OTHER), "t5": {"error": "too large"}}
    tpu_compile_results.compare(rows, "v5e")
    # The operations take longer than moving the bytes.
    assert rows["shaw"]["roofline_seconds"] == pytest.approx(2.5e12 / 197e12)
    ratios = {"flops": 1.25, "bytes_accessed": 0.75, "roofline_seconds": 1.25}
    assert rows["shaw"]["ratios_to_input"] == pytest.approx(ratios)
    assert rows["t5"]["ratios_to_input"] == {}
    rows = {"shaw": dict(OTHER)}
    tpu_compile_results.compare(rows, "v99")
    assert "roofline_seconds" not in rows["shaw"]
    assert rows["shaw"]["ratios_to_input"] == {}


def test_the_bytes_can_be_the_roofline():
    rows = {"input": {**INPUT, "bytes_accessed": 819e9}}
    tpu_compile_results.compare(rows, "v5e")
    assert rows["input"]["roofline_seconds"] == pytest.approx(1.0)


def test_tables():
    rows = {"input": dict(INPUT), "shaw": dict(OTHER), "t5": {"error": "too large"}}
    tpu_compile_results.compare(rows, "v5e")
    figures = tpu_compile_results.figures_table(rows)
    assert figures[0].startswith("|  | TFLOP | GB moved | Mcycles | roofline, ms |")
    assert figures[3] == "| shaw | 2.500 | 3.00 |  | 12.7 |  |  | 1 |  | 4 |"
    assert figures[4] == "| t5 | too large |  |  |  |  |  |  |  |  |"
    ratios = tpu_compile_results.ratios_table(rows, {"shaw": 1.33})
    assert ratios[0] == (
        "|  | FLOPs | bytes moved | cycles | roofline | temporary | peak | Table 1 |"
    )
    assert ratios[3] == "| shaw | 1.250 | 0.750 |  | 1.250 |  |  | 1.33 |"
    assert len({line.count("|") for line in figures}) == len({line.count("|") for line in ratios})


def test_cycles_of_the_entry_computation():
    program = (
        '%inner (p: f32[]) -> f32[] {\n a, backend_config={"estimated_cycles":"1"}\n}\n\n'
        'ENTRY %main {\n b, backend_config={"estimated_cycles":"20"}\n'
        ' c, backend_config={"estimated_cycles":"300"}\n}\n'
    )
    assert tpu_programs.estimated_cycles(program) == 320


@pytest.mark.parametrize(
    "program, counted",
    [
        ('ENTRY %main {\n a, backend_config={"estimated_cycles":"20"}\n}', True),
        ("ENTRY %main {\n a = (s32[]) while(b), condition=c, body=d\n}", False),
        ('ENTRY %main {\n a = custom-call(b), custom_call_target="tpu_custom_call"\n}', False),
    ],
)
def test_figures_that_the_compiler_does_not_count_are_left_out(program, counted):
    memory = ("argument", "output", "temp")
    compiled = types.SimpleNamespace(
        as_text=lambda: "\n" + program,
        cost_analysis=lambda: {"flops": 1.0, "bytes accessed": 2.0},
        memory_analysis=lambda: types.SimpleNamespace(
            peak_memory_in_bytes=7, **{f"{name}_size_in_bytes": 5 for name in memory}
        ),
    )
    figures = tpu_programs.figures_of(compiled)
    assert figures["peak_bytes"] == 7
    assert ("flops" in figures) == ("estimated_cycles" in figures) == counted
