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
    options = ["--size", "tiny", "--lengths", "10", "--batches", "3x8", "--rounds", "2"]
    gpu.main([*options, "--parts", "attention", "training", "--output", str(path)])
    gpu.main([*options, "--parts", *gpu.PARTS, "--output", str(path), "--resume"])
    cells = json.loads(path.read_text())["PyTorch"]["cells"]
    assert len(cells) == 2 + 2 * len((*gpu.SHAPES, gpu.DISTANCES))
    others = ("sdpa", "hugging_face_t5", "hugging_face_mpnet")
    assert list(cells["attention, 10"]["result"]) == [*gpu.BIASES, *others]
    assert list(cells["training, 3x8"]["result"]) == list(gpu.TRAINING_ROWS)
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


def test_what_does_not_fit_into_memory_is_marked(monkeypatch):
    make_step = gpu.make_attention_step

    def run():
        raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 TiB")

    monkeypatch.setattr(
        gpu, "make_attention_step", lambda row, *args: run if row == "t5" else make_step(row, *args)
    )
    options = gpu.parse_arguments(["--size", "tiny", "--rounds", "1"])
    results = gpu.measure_attention(10, options)
    assert results["t5"] == {"failed": "out of memory"}
    assert np.isfinite(results["diet_rel"]["milliseconds"])
