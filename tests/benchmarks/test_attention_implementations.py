"""The benchmark of attention by length, with a tiny BERT."""

import json

import keras
import numpy as np
import pytest

from benchmarks import attention_implementations as benchmark
from benchmarks import bert_models, flex_attention
from keras_diet.layers.transformer import position_encodings

TINY = ["--size", "tiny", "--lengths", "16", "--steps", "inference", "--rounds", "1"]


@pytest.fixture(autouse=True)
def without_processes(monkeypatch):
    monkeypatch.setattr(bert_models, "VOCABULARY_SIZE", 31)
    monkeypatch.setattr(benchmark, "measure_memory", lambda *cell: 7.0)
    if keras.config.backend() == "torch":
        from torch.nn.attention.flex_attention import flex_attention as attend

        # Compiling takes long and needs a compiler.
        monkeypatch.setattr(flex_attention, "compiled_flex_attention", lambda: attend)
    monkeypatch.setattr(
        position_encodings, "POSITION_ENCODINGS", dict(position_encodings.POSITION_ENCODINGS)
    )


def test_every_implementation_is_compared_with_full(tmp_path, capsys):
    output = tmp_path / "lengths.json"
    benchmark.main([*TINY, "--output", str(output)])
    cells = json.loads(output.read_text())["cells"]
    assert list(cells) == ["diet_abs, 16 tokens, inference", "diet_rel, 16 tokens, inference"]
    for cell in cells.values():
        rows = benchmark.implementations(cell["encoding"], "inference", 0.1)
        assert list(cell["rows"]) == rows
        assert cell["rows"]["full"]["ratio_to_full"] == 1
        assert all(row["milliseconds"] > 0 and row["mib"] == 7 for row in cell["rows"].values())
    page = output.with_suffix(".md").read_text()
    assert page in capsys.readouterr().out
    assert page.count("| blockwise |") == 2


@pytest.mark.skipif(keras.config.backend() != "torch", reason="a kernel of PyTorch")
def test_flex_attention_is_diet_rel(rng):
    options = benchmark.parse_arguments(["--size", "tiny", "--dropout", "0"])
    models = [
        benchmark.make_model("diet_rel", name, 16, "tiny", options)
        for name in ("full", "flex_attention")
    ]
    relative, others = [], []
    for model in models:
        relative.append([w for w in model.weights if w.name == "relative_embedding"])
        others.append([w for w in model.weights if w.name != "relative_embedding"])
    assert len(relative[0]) == len(relative[1]) == 1
    for weight, other in zip(*others, strict=True):
        weight.assign(rng.normal(scale=0.3, size=weight.shape))
        other.assign(weight)
    relative[0][0].assign(rng.normal(size=relative[0][0].shape))
    relative[1][0].assign(np.transpose(keras.ops.convert_to_numpy(relative[0][0])))
    inputs = bert_models.make_inputs(2, 16)
    valid = inputs["padding_mask"].astype(bool)
    first, second = (model.predict_on_batch(inputs)["sequence_output"] for model in models)
    np.testing.assert_allclose(first[valid], second[valid], atol=1e-5)
