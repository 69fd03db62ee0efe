"""The benchmark for GPUs, with small sizes on a CPU."""

import json

import keras
import pytest

from benchmarks import gpu, measure
from keras_diet import _backend

pytestmark = pytest.mark.any_backend


def test_runs_to_the_end_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "time_in_turn", lambda steps, n: dict.fromkeys(steps, [0.002] * n))
    monkeypatch.setattr(gpu, "LENGTHS_OF_GRADIENTS", ((9, 7), (6, 16)))
    path = tmp_path / "gpu.json"
    options = ["--size", "tiny", "--lengths", "10", "--packed", "2x32"]
    options += ["--rounds", "2", "--output", str(path), "--resume"]
    measure_row = gpu.measure_row
    measured = []

    def stopped(*args):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(measure_row(*args))
        return measured[-1]

    monkeypatch.setattr(gpu, "measure_row", stopped)
    with pytest.raises(KeyboardInterrupt):
        gpu.main([*options, "--parts", "attention"])
    found = json.loads(path.read_text())["PyTorch"]["cells"]["attention, 10"]
    assert list(found.values()) == measured, "Results are written after each row."
    monkeypatch.setattr(gpu, "measure_row", measure_row)
    gpu.main([*options, "--minutes", "0"])
    cells = gpu.cells_of(gpu.parse_arguments(options))
    left = sum(1 if callable(cell) else len(cell) for cell in cells.values()) - 3
    assert f"The time is over. {left} rows are left" in capsys.readouterr().out
    assert list(json.loads(path.read_text())["PyTorch"]["cells"]) == ["attention, 10"]
    with monkeypatch.context() as patch:
        patch.setitem(gpu.BIASES, "fire", lambda **kwargs: 1 / 0)
        with pytest.raises(SystemExit, match=r"attention, 10, fire: ZeroDivisionError"):
            gpu.main([*options, "--parts", "attention"])
    found = json.loads(path.read_text())["PyTorch"]["cells"]["attention, 10"]
    assert {"sdpa", "diet_rel_full"} <= found.keys(), "The rows after an error are measured."
    gpu.main(options)
    cells = json.loads(path.read_text())["PyTorch"]["cells"]
    assert len(cells) == 2 + 2 * len((*gpu.SHAPES, gpu.DISTANCES))
    # FlexAttention has no gradients on a CPU.
    rows = {"attention, 10": gpu.ATTENTION_ROWS, "packed, 2x32": gpu.PACKED_ROWS}
    for name, of_cell in rows.items():
        expected = [row for row in of_cell if not row.endswith(("indexed", "flex_attention"))]
        assert set(cells[name]) == set(expected)
    for name, cell in cells.items():
        if name.startswith("gradients"):
            assert cell["program"] == "kernel"
            assert 0 < max(cell[error] for error in ("bias", "query", "value")) < 0.03
    page = path.with_suffix(".md").read_text()
    assert "| 2x32 | diet_rel | 2.00 | 1.00 (1.00 - 1.00) |" in page
    assert page.strip() in capsys.readouterr().out


@pytest.mark.any_backend("jax")
def test_gradients_of_a_kernel_of_indices():
    found = gpu.compare_indexed(61, 83)
    assert (found.pop("program"), found.pop("two_runs_are_equal")) == ("pallas", True)
    assert list(found) == ["query", "key", "value", "bias"]
    assert 1e-4 < min(found.values()) <= max(found.values()) < 2 * 2**-8, "two roundings"


def measured(milliseconds, mib=10.0, reference=4.0):
    ratio = milliseconds / reference
    times = {"milliseconds": milliseconds, "ratio": ratio, "ratio_quartiles": [ratio, ratio]}
    return {**times, "mib": mib}


def cells_of_a_run(**changes):
    """A run that has everything, with changes of some values."""
    values = {"time": 9.0, "memory": 21.0, "documents": 5.0, "error": 0.007, "equal": True}
    values |= changes
    rows = {"no_bias": measured(4.0), "diet_rel_indexed": measured(values["time"])}
    if values["memory"] is not None:
        twice = {"diet_rel_indexed": measured(30.0, values["memory"])}
    else:
        twice = {"no_bias": measured(8.0)}
    packed = {"diet_rel_indexed": measured(11.0)}
    packed["diet_rel_documents_indexed"] = measured(values["documents"])
    errors = dict.fromkeys(("bias", "query", "key"), 0.001) | {"value": values["error"]}
    indexed = {**errors, "program": "pallas", "two_runs_are_equal": values["equal"]}
    cells = [
        ("indexed", "9 x 7", indexed),
        ("attention", "40", {**rows, "t5_indexed": measured(9.9)}),
        ("packed", "8x20", packed),
        ("attention", "20", {"diet_rel_indexed": measured(1.0, 1.0)}),
        ("attention", "80", twice),
    ]
    return {f"{part}, {name}": result for part, name, result in cells}


@pytest.mark.parametrize(
    "backend, changes, answer, line",
    [
        ("jax", {}, "yes", "memory of diet_rel_indexed, relative to half the tokens | 2.2 | 2.1 |"),
        ("jax", {"time": 10.1}, "no", "diet_rel_indexed, relative to no bias | 2.5 | 2.525 |"),
        ("jax", {"memory": 23.0}, "no", "relative to half the tokens | 2.2 | 2.3 |"),
        ("jax", {"memory": None}, "not known", "to half the tokens | 2.2 | not measured |"),
        ("jax", {"documents": 6.6}, "no", "with 16 documents, relative to one | 0.5 | 0.6 |"),
        ("jax", {"error": 0.008}, "no", "gradients, two roundings | 0.007812 | 0.008 |"),
        ("jax", {"equal": False}, "no", "other gradients in a second run | 0 | 1 |"),
        # FlexAttention adds gradients in any order.
        ("torch", {"equal": False}, "yes", "0.0010 | 0.0010 | 0.0070 | 0.0010 | no |"),
    ],
)  # fmt: skip
def test_what_auto_may_choose(backend, changes, answer, line):
    run = {"cells": cells_of_a_run(**changes), "machine": {"backend": backend}}
    table = "\n".join(gpu.make_tables(run))
    assert f"**Answer: {answer}.**" in table
    assert line in table
    assert "Not measured: *gradients*." in table


@pytest.mark.parametrize(
    "backend, device, row, expected",
    [
        ("torch", "cpu", "diet_rel_indexed", False),
        ("torch", "NVIDIA", "diet_rel_indexed", True),
        ("torch", "NVIDIA", "flex_attention", True),
        ("torch", "cpu", "indexed", False),
        ("jax", "cpu", "diet_rel_indexed", True),
        ("jax", "NVIDIA", "flex_attention", False),
        ("jax", "NVIDIA", "sdpa", False),
        ("jax", "NVIDIA", "t5", True),
    ],
)
def test_rows_of_a_backend(monkeypatch, backend, device, row, expected):
    monkeypatch.setattr(keras.config, "backend", lambda: backend)
    monkeypatch.setattr(measure, "device", lambda: device)
    assert gpu.has_row(row) == expected


def test_a_lost_gradient_is_seen(monkeypatch):
    kernel = _backend.fused_attention

    def without_gradient(query, key, value, bias, **options):
        return kernel(query, key, value, bias=bias.detach(), **options)

    monkeypatch.setattr(_backend, "fused_attention", without_gradient)
    with pytest.raises((AttributeError, TypeError)):
        gpu.compare_gradients("(B, 1, T, S)", 9, 7)


def test_what_does_not_fit_into_memory_is_marked():
    import torch

    def fail(error):
        raise error

    def makers(error):
        return {"no_bias": lambda: lambda: 1, "t5": lambda: lambda: fail(error)}

    errors = [torch.OutOfMemoryError("CUDA"), RuntimeError("RESOURCE_EXHAUSTED: 1.00 TiB")]
    for error in errors:
        failed = gpu.measure_row(makers(error), "t5", 1)
        assert failed == {"failed": "out of memory"}
    wrong = makers(RuntimeError("illegal memory access"))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        gpu.measure_row(wrong, "t5", 1)
    cell = {"no_bias": gpu.measure_row(wrong, "no_bias", 1), "t5": failed}
    assert cell["no_bias"]["ratio"] == 1
    run = {"cells": {"attention, 10": cell}, "machine": {"backend": "torch"}}
    table = "\n".join(gpu.make_tables(run))
    assert "| 10 | t5 | out of memory | - | - |" in table


def test_a_row_alternates_with_the_first_row_which_is_made_once():
    made, calls = [], []

    def maker(name):
        def make():
            made.append(name)
            return lambda: calls.append(name)

        return make

    makers = {name: maker(name) for name in ("no_bias", "t5", "alibi")}
    for name in makers:
        calls.clear()
        row = gpu.measure_row(makers, name, 3)
        assert len(row["seconds"]) == len(row["reference_seconds"]) == 3
        assert set(calls) == {"no_bias", name}
    assert made == ["no_bias", "t5", "alibi"]
