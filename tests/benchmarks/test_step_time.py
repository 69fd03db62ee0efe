"""The benchmark of step times, with a tiny BERT."""

import json

import keras
import numpy as np
import pytest

from benchmarks import bert_models, step_time
from benchmarks.step_time import Cell
from keras_diet.layers import POSITION_ENCODINGS

TINY = ["--sizes", "tiny", "--lengths", "8", "--tokens", "16", "--rounds", "3", "--no-xla"]
HUGGING_FACE = ["hugging_face"] if keras.config.backend() == "torch" else []


@pytest.fixture(autouse=True)
def small_vocabulary(monkeypatch):
    monkeypatch.setattr(bert_models, "VOCABULARY_SIZE", 31)


@pytest.fixture
def output(tmp_path):
    return tmp_path / "step_time.json"


def run(output, *options):
    """Run the benchmark and return the rows of each cell."""
    step_time.main([*TINY, "--output", str(output), *options])
    return {name: cell["rows"] for name, cell in json.loads(output.read_text())["cells"].items()}


def test_every_encoding_and_the_other_libraries_are_timed(output, capsys):
    (rows,) = run(output, "--steps", "inference", "--group", "5").values()
    others = {"kerashub", *HUGGING_FACE}
    elsewhere = {"diet_abs_in_torch_loop"}
    if keras.config.backend() != "torch":
        elsewhere.add("diet_abs_exact_gelu")
    assert rows.keys() == (bert_models.ENCODINGS.keys() - elsewhere) | others
    timed = {values["position_encoding"] for values in bert_models.ENCODINGS.values()}
    # No benchmark has results of these.
    untimed = {"alibi", "kerple", "sandwich", "fire", "rotary", "transformer_xl"}
    assert timed | untimed == set(POSITION_ENCODINGS)
    for values in rows.values():
        assert len(values["seconds"]) == 3
        assert values["milliseconds"] == pytest.approx(1000 * np.median(values["seconds"]))
        assert values["compile_seconds"] > 0
        ratios = np.divide(values["seconds"], values["seconds_of_input"])
        assert values["ratio_to_input"] == pytest.approx(np.median(ratios))
        for other in others:
            expected = values["ratio_to_input"] / rows[other]["ratio_to_input"]
            assert values[f"ratio_to_{other}"] == pytest.approx(expected)
    assert rows["input"]["ratio_to_input"] == 1
    page = output.with_suffix(".md").read_text()
    assert page in capsys.readouterr().out
    assert all(page.count(f"\n| {row} | ") == 1 for row in rows)


@pytest.mark.any_backend
def test_resumed_run_measures_what_is_missing(output, monkeypatch):
    options = ("--steps", "inference", "--resume", "--rows", "t5")
    (first,) = run(output, *options).values()
    made = []
    make_model = bert_models.make_model

    def record(row, *args):
        made.append(row)
        return make_model(row, *args)

    monkeypatch.setattr(bert_models, "make_model", record)
    (second,) = run(output, *options, "none").values()
    assert made == ["input", "none"]
    assert list(second) == ["input", "t5", "none"]
    assert {row: second[row] for row in first} == first
    (third,) = run(output, *options, "none").values()
    assert made == ["input", "none"]
    assert third == second


@pytest.mark.any_backend
def test_operations_of_the_matrix_products():
    tokens, hidden_dim, intermediate_dim, length = 24, 16, 32, 12
    projections = 4 * 2 * tokens * hidden_dim * hidden_dim
    feed_forward = 2 * 2 * tokens * hidden_dim * intermediate_dim
    attention = 2 * 2 * 2 * length * length * hidden_dim
    expected = projections + feed_forward + attention
    assert Cell("tiny", length, "inference", 2).matmul_flops() == expected
    assert Cell("tiny", length, "training", 2).matmul_flops() == 3 * expected


@pytest.mark.skipif(keras.config.backend() != "torch", reason="PyTorch's own model")
def test_hugging_face_takes_the_same_step(monkeypatch):
    inputs, targets = bert_models.make_inputs(2, 8), bert_models.make_targets("tiny", 2, 8)
    monkeypatch.setattr(bert_models, "DROPOUT", 0.0)
    outputs, losses = {}, {}
    for row in ("kerashub", "hugging_face"):
        model = bert_models.make_model(row, "tiny", 8)
        predict = bert_models.make_step(row, model, "inference", inputs, targets)
        outputs[row] = predict()
        train = bert_models.make_step(row, model, "training", inputs, targets)
        expected = sum(np.mean(output**2) for output in outputs[row].values())
        # Keras returns the loss of each output after their sum.
        losses[row] = [np.ravel(train())[0] for _ in range(5)]
        assert losses[row][0] == pytest.approx(expected, rel=1e-3)
    for name, output in outputs["kerashub"].items():
        assert outputs["hugging_face"][name].shape == output.shape
        assert outputs["hugging_face"][name].dtype == output.dtype
    assert all(loss[-1] < loss[0] for loss in losses.values())


@pytest.mark.skipif(keras.config.backend() != "torch", reason="a loop in PyTorch")
def test_ours_takes_the_same_step_in_a_torch_loop(monkeypatch):
    inputs, targets = bert_models.make_inputs(2, 8), bert_models.make_targets("tiny", 2, 8)
    monkeypatch.setattr(bert_models, "DROPOUT", 0.0)
    losses = {}
    for row in ("diet_abs", "diet_abs_in_torch_loop"):
        keras.utils.set_random_seed(1)
        model = bert_models.make_model(row, "tiny", 8)
        train = bert_models.make_step(row, model, "training", inputs, targets)
        losses[row] = [np.ravel(train())[0] for _ in range(3)]
    # The optimizers have different weight decay.
    np.testing.assert_allclose(*losses.values(), rtol=1e-3)
    assert losses["diet_abs_in_torch_loop"][-1] < losses["diet_abs_in_torch_loop"][0]
    assert not bert_models.has_row("diet_abs_in_torch_loop", "inference")
