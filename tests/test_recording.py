"""Recorded graphs of PyTorch give the results of layers, bit by bit, and follow changes."""

import concurrent.futures
import functools
import gc
import weakref

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _recording
from keras_diet._recording import RecordedFunction
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from keras_diet.samplers import BeamSearchSampler
from tests.models import tasks
from tests.models.diet_transformer import tiny as translation
from tests.models.tiny import random_inputs, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend


@pytest.fixture(autouse=True)
def codes(monkeypatch):
    """The code of the graphs that a test has recorded."""
    codes, record = [], _recording.record

    def watched(*arguments):
        graph = record(*arguments)
        codes.append(graph[0].__self__.code)
        return graph

    monkeypatch.setattr(_recording, "record", watched)
    return codes


def without_recording(model, function):
    model.run_eagerly = True
    model.forget_steps()
    result = function()
    model.run_eagerly = False
    model.forget_steps()
    return result


def assert_equal(actual, desired):
    for one, other in zip(keras.tree.flatten(actual), keras.tree.flatten(desired), strict=True):
        np.testing.assert_array_equal(one, other)


def assert_recorded_results_are_equal(model, function, codes):
    """The results of layers, of the call that records, and of two that run the graph."""
    expected = without_recording(model, function)
    assert not codes
    for _ in range(4):
        assert_equal(function(), expected)
    assert len(codes) == 1


# The others have the operations of these.
OTHERS = {"diet_abs_input", "t5_input", "tupe_abs", "deberta_v1", "kerple", "sandwich", "none"}


@pytest.mark.parametrize("name", sorted(POSITION_ENCODINGS.keys() - OTHERS))
def test_encodings(rng, name, codes):
    # Rotary positions need heads of an even size.
    arguments = {"position_encoding": name, "num_layers": 1, "hidden_dim": 18}
    model = randomize_weights(tiny_backbone(**arguments))
    inputs = random_inputs(rng, batch_size=3)
    assert_recorded_results_are_equal(model, lambda: model.predict_on_batch(inputs), codes)
    # Queries, keys, values, outputs, and two of the feedforward network: product and bias in one.
    # DeBERTa projects its table for queries and for keys.
    expected = 8 if name == "deberta" else 6
    assert codes[0].count("aten.addmm.default(") == expected


@pytest.mark.parametrize("task", ["classifier", "masked_lm", "embedder", "token_classifier"])
def test_every_task(rng, task, codes):
    model = randomize_weights(tasks.tiny_task(task, with_preprocessor=False))
    inputs = tasks.random_data(task, rng)[0]
    predict = functools.partial(model.predict, inputs, batch_size=2, verbose=0)
    assert_recorded_results_are_equal(model, predict, codes)


# A bias, angles, and vectors of distances. The next search has an input.
@pytest.mark.parametrize("name", ["diet_abs", "rotary", "shaw"])
def test_beam_search(rng, name, codes):
    """The graph of one call has the sources of the next call as its arguments."""
    model = translation.tiny_task(position_encoding=name, hidden_dim=18, num_layers=1)
    model.compile(sampler=BeamSearchSampler(2))
    inputs = translation.prompts(translation.random_inputs(rng, target_length=5), (2,))
    others = {**inputs, "encoder_token_ids": 1 + inputs["encoder_token_ids"] % 30}

    def translate():
        return [model.generate(each, stop_token_ids=(7, 12)) for each in (inputs, others)]

    expected = without_recording(model, translate)
    assert not np.array_equal(*(each["decoder_token_ids"] for each in expected))
    for _ in range(2):
        assert_equal(translate(), expected)
    # The cache is updated in place.
    assert "aten.index_copy_.default" in "".join(codes)
    assert "aten.index_copy.default" not in "".join(codes)


class ShortestSearch(BeamSearchSampler):
    """A search with another score and the same configuration."""

    def _penalty(self, length):
        return 1.0 / ops.cast(length, "float32")


def test_another_search_has_a_graph_of_its_own(rng, codes):
    model = translation.tiny_task(position_encoding="input", num_layers=1)
    inputs = translation.prompts(translation.random_inputs(rng, target_length=6), (2,))
    searches = [
        (BeamSearchSampler(3), None),
        (BeamSearchSampler(3), (9,)),
        (BeamSearchSampler(3, length_penalty=9.0), (9,)),
        (ShortestSearch(3, length_penalty=9.0), (9,)),
    ]

    def translate(sampler, stops):
        model.sampler = sampler
        return model.generate(inputs, stop_token_ids=stops)

    expected = [without_recording(model, lambda each=each: translate(*each)) for each in searches]
    for each, result in zip(searches, expected, strict=True):
        count = len(codes)
        for _ in range(2):
            assert_equal(translate(*each), result)
        assert len(codes) > count


def test_other_nests_have_graphs_of_their_own(codes):
    import torch

    recorded = RecordedFunction(lambda nest: 2.0 * nest["a"] if "a" in nest else -nest["b"])
    for name, expected in (("a", 3.0), ("b", -1.5)):
        for _ in range(3):
            assert recorded({name: torch.tensor(1.5)}) == expected
    assert len(codes) == 2


def recorded_backbone(rng, **arguments):
    """A backbone with a recorded graph, and a function that predicts."""
    model = randomize_weights(tiny_backbone(num_layers=1, **arguments))
    predict = functools.partial(model.predict_on_batch, random_inputs(rng))
    for _ in range(3):
        predict()
    return model, predict


def change_by_training(model):
    inputs = random_inputs(np.random.default_rng(8))
    targets = {"sequence_output": np.ones((2, 11, 15)), "pooled_output": np.ones((2, 15))}
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mse")
    model.predict_on_batch(inputs)
    model.train_on_batch(inputs, targets)


def change_by_lora(model):
    model.enable_lora(2)
    for weight in model.trainable_variables:
        weight.assign(ops.ones_like(weight))


def change_by_compile(model):
    model.embeddings_layer_norm.epsilon = 0.7
    model.compile()


CHANGES = {
    "training": change_by_training,
    "assigned weights": lambda model: model.set_weights([0.7 * w for w in model.get_weights()]),
    "lora": change_by_lora,
    "int8": lambda model: model.quantize("int8"),
    "compile": change_by_compile,
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_count(rng, change, codes):
    # Quantization changes a frozen model, too.
    model, predict = recorded_backbone(rng, trainable=change != "int8")
    before, old = predict()["sequence_output"], model.predict_function
    CHANGES[change](model)
    found = [predict()["sequence_output"] for _ in range(3)]
    assert (model.predict_function is old) == (change == "assigned weights")
    assert (len(codes) == 1) == (change == "assigned weights"), "a graph reads new weights"
    expected = without_recording(model, predict)["sequence_output"]
    assert_equal(found, [expected] * 3)
    assert np.abs(expected - before).max() > 1e-3


def test_the_graphs_used_last_are_kept(monkeypatch, codes):
    import torch

    monkeypatch.setattr(_recording, "MAX_GRAPHS", 3)
    recorded = RecordedFunction(lambda x: x + 1)
    for x in (torch.ones(4), torch.ones(5), torch.ones(6), torch.ones(6, dtype=torch.int64)):
        for _ in range(2):
            np.testing.assert_array_equal(recorded(x), x + 1)
        recorded(torch.ones(3))
    assert len(codes) == 5
    for _ in range(2):
        recorded(torch.ones(4))
    assert len(codes) == 6


@pytest.mark.parametrize("arguments", [{"run_eagerly": True}, {"jit_compile": True}], ids=str)
def test_other_ways_record_nothing(rng, arguments):
    model = tiny_backbone()
    model.compile(**arguments)
    assert not isinstance(model.make_predict_function(), RecordedFunction)


def test_autocast_calls_the_function(rng, codes):
    import torch

    _, predict = recorded_backbone(rng)
    before = predict()["sequence_output"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = predict()["sequence_output"]
    assert np.abs(inside - before).max() > 1e-3
    assert_equal(predict()["sequence_output"], before)
    assert len(codes) == 1


def test_functions_do_not_keep_the_kernels_of_a_quantized_model(rng):
    model, _ = recorded_backbone(rng)
    kernel = weakref.ref(model.encoder.transformer_layers[0].feedforward_output_dense.kernel.value)
    model.quantize("int8")
    gc.collect()
    assert kernel() is None


def test_no_gradient_is_kept(rng):
    model, _ = recorded_backbone(rng)
    inputs = {name: ops.convert_to_tensor(x) for name, x in random_inputs(rng).items()}
    for _ in range(3):
        assert not model.infer_batch(inputs)["pooled_output"].requires_grad
    ops.sum(model.predict_step((inputs,))["pooled_output"]).backward()
    assert all(weight.value.grad is not None for weight in model.pooled_dense.trainable_weights)


def test_threads_record_and_run():
    model = randomize_weights(tiny_backbone(position_encoding="t5"))
    batches = [random_inputs(np.random.default_rng(seed)) for seed in range(16)]
    expected = without_recording(model, lambda: list(map(model.predict_on_batch, batches)))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert_equal(list(pool.map(model.predict_on_batch, batches)), expected)
