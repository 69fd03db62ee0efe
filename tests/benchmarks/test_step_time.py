"""The benchmark of step times, with a tiny BERT."""

import json

import keras
import numpy as np
import pytest

from benchmarks import bert_models, step_time
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS

TINY = ["--sizes", "tiny", "--shapes", "2x8", "--rounds", "3", "--no-xla"]


@pytest.fixture(autouse=True)
def small_vocabulary(monkeypatch):
    monkeypatch.setattr(bert_models, "VOCABULARY_SIZE", 31)


@pytest.fixture
def output(tmp_path):
    return tmp_path / "step_time.json"


def run(output, *options):
    """Run the benchmark and return the rows of each cell."""
    step_time.main([*TINY, "--output", str(output), "--name", "tiny", *options])
    return json.loads(output.read_text())["tiny"]["cells"]


def check_rows(rows, others, output, printed):
    for values in rows.values():
        assert len(values["seconds"]) == 3
        assert values["milliseconds"] == pytest.approx(1000 * np.median(values["seconds"]))
        assert values["compile_seconds"] > 0
        ratios = np.divide(values["seconds"], values["reference_seconds"])
        assert values["ratio"] == pytest.approx(np.median(ratios))
    assert rows["input"]["ratio"] == 1
    page = output.with_suffix(".md").read_text()
    assert page in printed
    for row, values in rows.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {row} | ")]
        for other in others:
            assert f" | {values['ratio'] / rows[other]['ratio']:.3f} | " in line


def test_some_rows_are_timed_on_each_backend(output, capsys):
    names = ("diet_abs", "kerashub")
    (rows,) = run(output, "--steps", "inference", "--rows", *names).values()
    assert rows.keys() == {"input", *names}
    check_rows(rows, ["kerashub"], output, capsys.readouterr().out)


@pytest.mark.any_backend
def test_every_encoding_and_the_other_libraries_are_timed(output, capsys):
    (rows,) = run(output, "--steps", "inference").values()
    others = {"kerashub", "hugging_face"}
    assert rows.keys() == (bert_models.ENCODINGS.keys() - {"diet_abs_in_torch_loop"}) | others
    timed = {values["position_encoding"] for values in bert_models.ENCODINGS.values()}
    # No benchmark has results of these.
    assert timed | {"t5_input", "deberta_v1"} == set(POSITION_ENCODINGS)
    check_rows(rows, others, output, capsys.readouterr().out)


@pytest.mark.skipif(keras.config.backend() != "torch", reason="models and loops of PyTorch")
@pytest.mark.parametrize(
    "rows, have_same_weights",
    [(("kerashub", "hugging_face"), False), (("diet_abs", "diet_abs_in_torch_loop"), True)],
)
def test_other_libraries_and_loops_take_the_same_step(rows, have_same_weights):
    inputs, targets = bert_models.make_inputs(2, 8), bert_models.make_targets("tiny", 2, 8)
    outputs, losses = [], []
    for row in rows:
        keras.utils.set_random_seed(1)
        model = bert_models.make_model(row, "tiny", 8, dropout=0.0)
        if bert_models.has_row(row, "inference"):
            outputs.append(bert_models.make_step(row, model, "inference", inputs, targets)())
            expected = sum(np.mean(output**2) for output in outputs[-1].values())
        train = bert_models.make_step(row, model, "training", inputs, targets)
        # Keras returns the loss of each output after their sum.
        losses.append([np.ravel(train())[0] for _ in range(5)])
        assert losses[-1][0] == pytest.approx(expected, rel=1e-6)
        assert losses[-1][-1] < losses[-1][0]
    if have_same_weights:
        # The optimizers have different weight decay. A loop has no step of inference.
        np.testing.assert_allclose(*losses, rtol=1e-3)
        assert len(outputs) == 1
    else:
        for name, output in outputs[0].items():
            other = outputs[1][name]
            assert (output.shape, output.dtype) == (other.shape, other.dtype)
