"""The benchmark for GPUs, with small sizes on a CPU."""

import json

import numpy as np
import pytest

from benchmarks import bert_models, gpu, measure
from keras_diet import _backend

pytestmark = pytest.mark.any_backend


def test_runs_to_the_end_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bert_models, "VOCABULARY_SIZE", 31)
    monkeypatch.setattr(measure, "time_in_turn", lambda steps, n: dict.fromkeys(steps, [0.002] * n))
    monkeypatch.setattr(gpu, "LENGTHS_OF_GRADIENTS", ((9, 7), (6, 16)))
    path = tmp_path / "gpu.json"
    options = ["--size", "tiny", "--lengths", "10", "--batches", "3x8", "--packed", "2x32"]
    options += ["--rounds", "2", "--output", str(path)]
    gpu.main([*options, "--parts", *gpu.PARTS])
    cells = json.loads(path.read_text())["PyTorch"]["cells"]
    assert len(cells) == 3 + 2 * len((*gpu.SHAPES, gpu.DISTANCES))
    # FlexAttention has no gradients on a CPU.
    rows = {
        "attention, 10": gpu.ATTENTION_ROWS,
        "packed, 2x32": gpu.PACKED_ROWS,
        "training, 3x8": gpu.TRAINING_ROWS,
    }
    for name, of_cell in rows.items():
        expected = [
            row for row in of_cell if not row.endswith(("indexed", "flex", "flex_attention"))
        ]
        assert list(cells[name]["result"]) == expected
    for cell in cells.values():
        if cell["part"] == "gradients":
            assert cell["result"]["program"] == "kernel"
            assert 0 < max(cell["result"][name] for name in ("bias", "query", "value")) < 0.03
    page = path.with_suffix(".md").read_text()
    assert "| 3x8 | diet_rel | 2.00 | 1.00 (1.00 - 1.00) |" in page
    assert page.strip() in capsys.readouterr().out


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

    errors = [torch.OutOfMemoryError("CUDA"), RuntimeError("RESOURCE_EXHAUSTED: 1.00 TiB")]
    for error in errors:
        failed = gpu.measure_row(lambda error=error: fail(error), None, 1)
        assert failed == {"failed": "out of memory"}
    with pytest.raises(RuntimeError, match="illegal memory access"):
        gpu.measure_row(lambda: fail(RuntimeError("illegal memory access")), None, 1)
    # A row whose reference failed has no ratio.
    found = gpu.measure_row(lambda: lambda: None, failed, 1)
    assert np.isfinite(found["milliseconds"])
    assert "ratio" not in found
    cell = {"part": "attention", "name": "10", "result": {"no_bias": failed, "t5": found}}
    table = "\n".join(gpu.make_tables({"cells": {"attention, 10": cell}}))
    assert "| 10 | no_bias | out of memory | - | - |" in table
