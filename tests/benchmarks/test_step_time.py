"""The benchmark of step times, with a tiny BERT."""

import argparse
import json
import types

import keras
import numpy as np
import pytest

from benchmarks import bert_models, measure, step_time
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


@pytest.mark.usefixtures("compiled_steps")
def test_each_step_has_its_table(output):
    # Training drops cached positions.
    cells = run(output, "--rows", "diet_abs_cached")
    assert list(cells) == ["tiny, 2 x 8 tokens, training", "tiny, 2 x 8 tokens, inference"]
    assert [list(rows) for rows in cells.values()] == [["input"], ["input", "diet_abs_cached"]]


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
def test_interrupted_run_has_saved_earlier_groups(output, monkeypatch):
    calls = []
    time_group = step_time.time_group

    def interrupt(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return time_group(*args)

    monkeypatch.setattr(step_time, "time_group", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(output, "--steps", "inference", "--rows", "t5", "none", "--group", "1")
    (cell,) = json.loads(output.read_text())["cells"].values()
    assert list(cell["rows"]) == ["input", "t5"]


@pytest.mark.any_backend
def test_results_with_other_settings_do_not_resume(output):
    options = ("--steps", "inference", "--rows", "input", "--resume")
    run(output, *options)
    with pytest.raises(SystemExit, match="other values of: rounds"):
        run(output, *options, "--rounds", "2")


@pytest.mark.any_backend
def test_memory_of_each_row_is_measured_in_its_own_process(output, monkeypatch):
    asked = []

    def in_own_process(module, *arguments):
        asked.append(step_time.parse_arguments([*map(str, arguments)]))
        return json.dumps({"weights_mib": 7.0, "step_mib": 9.0})

    monkeypatch.setattr(measure, "in_own_process", in_own_process)
    (rows,) = run(output, "--steps", "inference", "--rows", "none", "--memory").values()
    assert [options.memory_of for options in asked] == ["input", "none"]
    assert (asked[1].sizes, asked[1].lengths, asked[1].xla) == (["tiny"], [8], False)
    assert rows["none"]["step_mib"] == 9.0
    assert "| weights, MiB | step, MiB |" in output.with_suffix(".md").read_text()


@pytest.mark.any_backend
def test_memory_of_a_step_is_measured_after_a_small_model(capsys, monkeypatch):
    calls = []

    def make_model(row, size, length, dtype):
        calls.append((row, size, length, dtype))
        return types.SimpleNamespace(size=size, count_params=lambda: 3 * 2**18)

    def make_step(row, model, step, *arguments):
        return lambda: calls.append((step, model.size))

    def memory_of(step):
        calls.append("measured")
        step()
        return 9.5

    monkeypatch.setattr(bert_models, "make_model", make_model)
    monkeypatch.setattr(bert_models, "make_step", make_step)
    monkeypatch.setattr(measure, "memory_of", memory_of)
    options = argparse.Namespace(dtype="mixed_bfloat16", xla=False)
    step_time.print_memory(Cell("small", 8, "training", 2), "none", options)
    tiny, small = (("none", size, 8, "mixed_bfloat16") for size in ("tiny", "small"))
    assert calls == [tiny, ("training", "tiny"), small, "measured", ("training", "small")]
    # Weights have four bytes.
    memory = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert memory == {"weights_mib": 3.0, "step_mib": 9.5}


@pytest.mark.parametrize("row", ["none", *HUGGING_FACE])
def test_weights_are_counted(row):
    model = bert_models.make_model(row, "tiny", 8)
    weights = model.parameters() if row == "hugging_face" else model.weights
    expected = sum(np.prod(weight.shape) for weight in weights)
    assert bert_models.count_weights(row, model) == expected


@pytest.mark.any_backend
def test_operations_of_the_matrix_products():
    tokens, hidden_dim, intermediate_dim, length = 24, 16, 32, 12
    projections = 4 * 2 * tokens * hidden_dim * hidden_dim
    feed_forward = 2 * 2 * tokens * hidden_dim * intermediate_dim
    attention = 2 * 2 * 2 * length * length * hidden_dim
    expected = projections + feed_forward + attention
    assert Cell("tiny", length, "inference", 2).matmul_flops() == expected
    assert Cell("tiny", length, "training", 2).matmul_flops() == 3 * expected


@pytest.mark.any_backend
def test_inputs():
    inputs = bert_models.make_inputs(batch_size=4, length=8)
    np.testing.assert_array_equal(inputs["padding_mask"].sum(axis=1), [8, 6, 8, 6])
    np.testing.assert_array_equal(inputs["segment_ids"], [[0] * 4 + [1] * 4] * 4)
    np.testing.assert_array_equal(inputs["token_ids"] == 0, inputs["padding_mask"] == 0)
    again = bert_models.make_inputs(batch_size=4, length=8)
    np.testing.assert_array_equal(inputs["token_ids"], again["token_ids"])


@pytest.mark.parametrize("row", ["input", "kerashub", *HUGGING_FACE])
def test_models_ignore_padding(row):
    inputs, targets = bert_models.make_inputs(2, 8), bert_models.make_targets("tiny", 2, 8)
    model = bert_models.make_model(row, "tiny", 8)
    before = bert_models.make_step(row, model, "inference", inputs, targets)()
    valid = inputs["padding_mask"].astype(bool)
    changed = {**inputs, "token_ids": np.where(valid, inputs["token_ids"], 7)}
    after = bert_models.make_step(row, model, "inference", changed, targets)()
    before, after = before["sequence_output"][valid], after["sequence_output"][valid]
    np.testing.assert_allclose(after, before, atol=1e-5)


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


@pytest.mark.any_backend
def test_bad_command_lines_are_explained(capsys):
    with pytest.raises(SystemExit):
        step_time.main(["--resume"])
    assert "--resume needs --output" in capsys.readouterr().err
