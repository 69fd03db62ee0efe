"""DeBERTa beside KerasHub and `transformers`."""

import json

import pytest

from benchmarks import deberta

pytestmark = pytest.mark.any_backend


def test_rows_compute_and_alternate(tmp_path):
    path = tmp_path / "deberta.json"
    deberta.main(["--size", "tiny", "--shapes", "2x9", "--rounds", "2", "--output", str(path)])
    cells = json.loads(path.read_text())["PyTorch"]["cells"]
    assert list(cells) == ["training, 2x9", "inference, 2x9"]
    rows = ["keras_diet", "no_positions", "kerashub", "hugging_face"]
    assert list(cells["inference, 2x9"]) == rows
    assert list(cells["training, 2x9"]) == [*rows, "deberta_in_torch_loop"]
    row = cells["inference, 2x9"]["kerashub"]
    quotient = f"{1 / row['ratio']:.2f}"
    assert f"| inference, 2x9 | kerashub | {row['milliseconds']:.0f} | {quotient} |" in (
        path.with_suffix(".md").read_text()
    )


def test_rows_have_the_same_number_of_weights(monkeypatch):
    """Other sizes would make a time unfair. A `DietBertBackbone` also has a pooler."""
    models = []
    make = deberta.bert_models.make_step
    monkeypatch.setattr(
        deberta.bert_models,
        "make_step",
        lambda row, model, *args: models.append(model) or make(row, model, *args),
    )
    for row in ("keras_diet", "kerashub"):
        deberta.make_step(row, "tiny", "inference", (2, 9))
    ours, theirs = (model.count_params() for model in models)
    other = deberta.make_hugging_face_model("tiny")
    counts = {ours, theirs, sum(each.numel() for each in other.parameters())}
    assert len(counts) == 1, counts
