"""The figures of the compiler for TPUs, and their tables."""

import pytest

from benchmarks import tpu_compile_results, tpu_programs

INPUT = {"flops": 2e12, "bytes_accessed": 4e9, "temporary_bytes": 0, "compile_seconds": 3.0}
OTHER = {"flops": 2.5e12, "bytes_accessed": 3e9, "temporary_bytes": 2**20, "compile_seconds": 4.0}
pytestmark = pytest.mark.any_backend


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
