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
    cells = json.loads(path.read_text())["cells"]
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


ROWS = {
    "PyTorch: no bias": "torch no_bias",
    'PyTorch: DIET-ABS, `"features"`': "torch diet_abs_features",
    'PyTorch: DIET-ABS, `"auto"`': "torch diet_abs",
    "PyTorch: DIET-REL": "torch diet_rel",
    "JAX: no bias": "jax no_bias",
    'JAX: DIET-ABS, `"features"`': "jax diet_abs_features",
    'JAX: DIET-ABS, `"auto"`': "jax diet_abs",
    "JAX: DIET-REL": "jax diet_rel",
}


def test_the_table_on_the_page_has_the_numbers_of_the_files():
    docs = measure.ROOT / "docs"
    page = (docs / "get_started" / "cost_and_speed.md").read_text()
    lines = page.split("| milliseconds (MiB) |")[1].split("\n\n")[0].splitlines()
    lengths = [cell.split()[0] for cell in lines[0].strip("|").split("|")]
    found = {}
    for line in lines[2:]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found[ROWS[name]] = cells
    assert len(found) == len(ROWS)
    for row, cells in found.items():
        backend, name = row.split()
        file = json.loads((docs / "benchmarks" / f"gpu_{backend}.json").read_text())
        for length, cell in zip(lengths, cells, strict=True):
            result = file["cells"][f"attention, {length}"]["result"][name]
            milliseconds, mib = cell.strip(")").split(" (")
            # Two digits, or whole numbers.
            wanted = f"{result['milliseconds']:.2g}" if result["milliseconds"] < 10 else None
            wanted = wanted or f"{result['milliseconds']:.0f}"
            assert (float(milliseconds), mib) == (float(wanted), f"{result['mib']:.0f}"), row
