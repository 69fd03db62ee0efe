"""Recorded graphs of PyTorch give the results of layers, bit by bit, and follow changes."""

import concurrent.futures
import functools
import gc
import types
import weakref

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _recording
from keras_diet._recording import RecordedFunction
from keras_diet.layers import cache_positions
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from keras_diet.samplers import BeamSearchSampler
from tests.models import tasks
from tests.models.diet_transformer import tiny as translation
from tests.models.tiny import random_inputs, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend


def signatures_of(model):
    _, graphs = _recording._graphs.get(model, ([], {}))
    return list(graphs)


def graphs_of(model):
    """The recorded graphs, without the signatures that were seen once."""
    _, graphs = _recording._graphs.get(model, ([], {}))
    return [each[0] for each in graphs.values() if each is not None]


def without_recording(model, function):
    model.run_eagerly = True
    signatures = signatures_of(model)
    result = function()
    assert signatures_of(model) == signatures
    model.run_eagerly = False
    return result


def assert_recorded_results_are_equal(model, function, num_graphs=1):
    """The results of layers, of the call that records, and of two that run the graph."""
    expected = keras.tree.flatten(without_recording(model, function))
    for number in range(4):
        found = keras.tree.flatten(function())
        for actual, desired in zip(found, expected, strict=True):
            np.testing.assert_array_equal(actual, desired)
        assert number == 0 or len(graphs_of(model)) == num_graphs


def products_of(model):
    """How often the graphs multiply by a matrix of weights: with a bias, without, by oneDNN."""
    code = "".join(run.code for run in graphs_of(model))
    names = ("aten_addmm", "aten_mm", "mkldnn__linear_pointwise")
    return [code.count(f"_{name}_default(") for name in names]


@pytest.mark.parametrize("name", sorted(POSITION_ENCODINGS))
def test_every_encoding(rng, name):
    # Rotary positions need heads of an even size.
    model = randomize_weights(tiny_backbone(position_encoding=name, hidden_dim=18))
    inputs = random_inputs(rng, batch_size=3)
    assert_recorded_results_are_equal(model, lambda: model.predict_on_batch(inputs))
    # Queries, keys, values, outputs, and two of the feedforward network: product and bias in one.
    with_bias, _, by_onednn = products_of(model)
    assert with_bias + by_onednn == 6 * model.num_layers


def test_each_product_is_one_operation(rng, library):
    model = randomize_weights(tiny_backbone(position_encoding="alibi"))
    inputs = random_inputs(rng, batch_size=3)
    assert_recorded_results_are_equal(model, lambda: model.predict_on_batch(inputs))
    count = 6 * model.num_layers
    # The pooled output is one of Keras.
    assert products_of(model) == {"MKL": [count, 1, 0], "oneDNN": [0, 1, count]}[library]


def test_each_product_of_a_search_is_one_operation(rng, library):
    model = translation.tiny_task(num_layers=1)
    inputs = translation.random_inputs(rng, target_length=6)
    assert_same_translations(model, lambda: model.generate(inputs, stop_token_ids=None))
    # One graph encodes, and two have a step: queries and outputs of both attention layers, keys
    # and values of one, two of the feedforward network, and the logits, which have no bias.
    count = 6 + 2 * 8
    assert products_of(model) == {"MKL": [count, 2, 0], "oneDNN": [0, 0, count + 2]}[library]


@pytest.mark.parametrize("task", ["classifier", "masked_lm", "embedder", "token_classifier"])
def test_every_task(rng, task):
    model = randomize_weights(tasks.tiny_task(task, with_preprocessor=False))
    inputs = tasks.random_data(task, rng)[0]
    assert_recorded_results_are_equal(model, lambda: model.predict(inputs, batch_size=2, verbose=0))


def assert_same_translations(model, generate):
    expected = without_recording(model, generate)["decoder_token_ids"]
    for _ in range(2):
        np.testing.assert_array_equal(generate()["decoder_token_ids"], expected)
    assert graphs_of(model)


@pytest.mark.parametrize("name", sorted(POSITION_ENCODINGS))
def test_beam_search(rng, name):
    model = translation.tiny_task(position_encoding=name, hidden_dim=18, num_layers=1)
    model.compile(sampler=BeamSearchSampler(3))
    inputs = translation.random_inputs(rng, target_length=6)
    inputs["decoder_padding_mask"][:, 2:] = 0
    assert_same_translations(model, lambda: model.generate(inputs, stop_token_ids=(7, 12)))
    # The cache is updated in place.
    codes = "".join(run.code for run in graphs_of(model))
    assert "aten_index_copy__default" in codes
    assert "aten_index_copy_default" not in codes


class ShortestSearch(BeamSearchSampler):
    """A search with another score and the same configuration."""

    def _penalty(self, length):
        return 1.0 / ops.cast(length, "float32")


def test_another_search_has_a_graph_of_its_own(rng):
    model = translation.tiny_task(position_encoding="sinusoidal")
    inputs = translation.random_inputs(rng)
    inputs["decoder_padding_mask"][:, 2:] = 0
    for sampler, stops in [
        (BeamSearchSampler(3), None),
        (BeamSearchSampler(3), (9,)),
        (BeamSearchSampler(3, length_penalty=9.0), (9,)),
        (BeamSearchSampler(2, length_penalty=9.0), (9,)),
        (ShortestSearch(2, length_penalty=9.0), (9,)),
    ]:
        count = len(graphs_of(model))
        model.sampler = sampler
        assert_same_translations(model, lambda x=stops: model.generate(inputs, stop_token_ids=x))
        assert len(graphs_of(model)) > count


def one_hot(prompt, index):
    return ops.one_hot(2 * ops.take(prompt, index - 1, axis=1), 16)


def by_keyword(self, prompt, cache, index, up=0.0, down=0.0):
    return (up - down) * one_hot(prompt, index), None, cache


def turned(self, prompt, cache, index, up):
    return -up * one_hot(prompt, index), None, cache


def by_position(self, factor, prompt, cache, index):
    return factor * one_hot(prompt, index), None, cache


UP, DOWN = [1, 2, 4, 8], [1, 0, 1, 0]
# Becomes a tensor.
X = np.float32(3.5)
FUNCTIONS = {
    "keywords": [(by_keyword, (), {"up": X}, UP), (by_keyword, (), {"down": X}, DOWN)],
    "methods": [(by_keyword, (), {"up": X}, UP), (turned, (), {"up": X}, DOWN)],
    "positions": [(by_position, (X,), {}, UP), (by_position, (-X,), {}, DOWN)],
    "numbers": [(by_keyword, (), {"up": 3.5}, UP), (turned, (), {"up": 3.5}, DOWN)],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_searches_are_told_apart(name):
    import torch

    def to_tensor(value):
        return ops.convert_to_tensor(value) if isinstance(value, np.float32) else value

    model = tiny_backbone()
    prompt = ops.convert_to_tensor([[1, 0, 0, 0]])
    for function, *arguments, expected in FUNCTIONS[name]:
        positions, keywords = keras.tree.map_structure(to_tensor, arguments)
        method = functools.partial(types.MethodType(function, model), *positions, **keywords)
        for _ in range(3):
            with torch.no_grad():
                found = BeamSearchSampler(2)(method, prompt, index=1, model=model)
            np.testing.assert_array_equal(found, [expected])
    assert bool(graphs_of(model)) == (name in ("keywords", "methods"))


def test_other_nests_have_graphs_of_their_own():
    import torch

    def function(nest):
        return 2.0 * nest["a"] if "a" in nest else -nest["b"]

    model = tiny_backbone()
    for name, expected in (("a", 3.0), ("b", -1.5)):
        for _ in range(3):
            with torch.no_grad():
                recorded = RecordedFunction(model, "function", function)
                assert recorded({name: torch.tensor(1.5)}) == expected


def test_an_object_looks_for_a_graph_once(monkeypatch):
    import torch

    with torch.no_grad():
        recorded = RecordedFunction(tiny_backbone(), "function", lambda x: x + 1.0)
        for _ in range(2):
            recorded(torch.ones(3))
        monkeypatch.setattr(recorded, "_find", None)
        np.testing.assert_array_equal(recorded(torch.zeros(3)), [1.0, 1.0, 1.0])


def test_sources_of_another_call_are_read(rng):
    """The graph of one call has the sources of the next call as its arguments."""
    model = translation.tiny_task(position_encoding="diet_rel")
    one, other = (translation.random_inputs(np.random.default_rng(seed)) for seed in (3, 4))
    for inputs in (one, other):
        inputs["decoder_padding_mask"][:, 1:] = 0
        inputs["decoder_token_ids"] = one["decoder_token_ids"]
    expected = [without_recording(model, lambda x=x: model.generate(x, stop_token_ids=None))
                for x in (one, other)]  # fmt: skip
    for _ in range(2):
        found = [model.generate(inputs, stop_token_ids=None) for inputs in (one, other)]
    assert not np.array_equal(*(each["decoder_token_ids"] for each in expected))
    for actual, desired in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual["decoder_token_ids"], desired["decoder_token_ids"])


def recorded_backbone(rng, **arguments):
    """A backbone with a recorded graph, and a function that predicts."""
    model = randomize_weights(tiny_backbone(**arguments))
    predict = functools.partial(model.predict_on_batch, random_inputs(rng))
    for _ in range(3):
        predict()
    assert len(graphs_of(model)) == 1
    return model, predict


def change_by_training(model):
    inputs = random_inputs(np.random.default_rng(8))
    targets = {"sequence_output": np.ones((2, 11, 15)), "pooled_output": np.ones((2, 15))}
    model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mse")
    model.train_on_batch(inputs, targets)


def layer_of(model):
    return model.encoder.transformer_layers[0].feedforward_output_dense


CHANGES = {
    "training": change_by_training,
    "assigned weights": lambda model: model.set_weights([0.7 * w for w in model.get_weights()]),
    "lora": lambda model: (
        model.enable_lora(2),
        [w.assign(ops.ones_like(w)) for w in model.trainable_variables],
    ),
    # Without a call of the model.
    "lora of a layer": lambda model: (
        layer_of(model).enable_lora(2),
        # Not all equal, because layer normalization subtracts the mean.
        layer_of(model).lora_kernel_b.assign(np.linspace(-3.0, 9.0, 30).reshape(2, 15)),
    ),
    "int8": lambda model: model.quantize("int8"),
    # Without a call of the model.
    "int8 of a layer": lambda model: layer_of(model).quantize("int8"),
    # `torch.nn.Module.to` and others replace the memory of parameters.
    "other memory": lambda model: [
        setattr(weight.value, "data", 0.7 * weight.value.data) for weight in model.weights
    ],
    "compile": lambda model: (
        setattr(model.embeddings_layer_norm, "epsilon", 0.7),
        model.compile(),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_count(rng, change):
    # Quantization changes a frozen model, too.
    model, predict = recorded_backbone(rng, trainable="int8" not in change)
    (old,) = graphs_of(model)
    before = predict()["sequence_output"]
    CHANGES[change](model)
    expected = without_recording(model, predict)["sequence_output"]
    for _ in range(3):
        np.testing.assert_array_equal(predict()["sequence_output"], expected)
    assert np.abs(expected - before).max() > 1e-3
    (new,) = graphs_of(model)
    assert (new is old) == (change == "assigned weights")


def test_loaded_weights_count(rng, tmp_path):
    model, predict = recorded_backbone(rng)
    randomize_weights(tiny_backbone(), seed=3).save_weights(tmp_path / "other.weights.h5")
    model.load_weights(tmp_path / "other.weights.h5")
    expected = without_recording(model, predict)["pooled_output"]
    np.testing.assert_array_equal(predict()["pooled_output"], expected)


def test_other_shapes_are_recorded_and_old_ones_forgotten(rng, monkeypatch):
    monkeypatch.setattr(_recording, "MAX_GRAPHS", 3)
    model, _ = recorded_backbone(rng)
    for length, dtype in ((5, "int32"), (5, "int16"), (7, "int32"), (9, "int32")):
        inputs = random_inputs(rng, batch_size=1, length=length)
        inputs = {name: array.astype(dtype) for name, array in inputs.items()}
        before = graphs_of(model)
        assert_recorded_results_are_equal(
            model, lambda x=inputs: model.predict_on_batch(x), min(3, len(before) + 1)
        )
        assert graphs_of(model)[-1] not in before


def test_the_graphs_used_last_are_kept(rng, monkeypatch):
    monkeypatch.setattr(_recording, "MAX_GRAPHS", 3)
    model, predict = recorded_backbone(rng)
    (first,) = graphs_of(model)
    for length in (5, 7, 9):
        for _ in range(2):
            model.predict_on_batch(random_inputs(rng, batch_size=1, length=length))
        predict()
    assert first in graphs_of(model)


def test_cached_positions(rng):
    model = cache_positions(randomize_weights(tiny_backbone(position_encoding="diet_abs")))
    inputs = random_inputs(rng)
    assert_recorded_results_are_equal(model, lambda: model.predict_on_batch(inputs))


class Live(keras.layers.Dense):
    """A layer of a user that reads what changes."""

    factor = 1.0

    def call(self, inputs, **arguments):
        return super().call(inputs, **arguments) * self.factor


def make_live(model):
    model.encoder.transformer_layers[0].feedforward_intermediate_dense.__class__ = Live
    return lambda: setattr(Live, "factor", 3.0)


def make_hooked(model):
    factor = [1.0]
    layer = model.encoder.transformer_layers[1].feedforward_output_dense
    layer.register_forward_hook(lambda layer, inputs, outputs: outputs * factor[0])
    return lambda: factor.__setitem__(0, 3.0)


def make_pre_hooked(model):
    factor = [1.0]
    layer_of(model).register_forward_pre_hook(lambda layer, inputs: inputs[0] * factor[0])
    return lambda: factor.__setitem__(0, 3.0)


def make_replaced(model):
    factor, layer = [1.0], layer_of(model)
    call = layer.call
    layer.call = lambda inputs, training=None: call(inputs) * factor[0]
    return lambda: factor.__setitem__(0, 3.0)


@pytest.mark.parametrize("make", [make_live, make_hooked, make_pre_hooked, make_replaced])
def test_what_may_change_is_not_recorded(rng, monkeypatch, make):
    monkeypatch.setattr(Live, "factor", 1.0)
    model = randomize_weights(tiny_backbone())
    predict = functools.partial(model.predict_on_batch, random_inputs(rng))
    change = make(model)
    before = [predict()["pooled_output"] for _ in range(3)][-1]
    change()
    assert np.abs(predict()["pooled_output"] - before).max() > 1e-3
    assert not graphs_of(model)


def autocast(layer):
    import torch

    return torch.autocast("cpu", dtype=torch.bfloat16)


def hook_of_all_layers(layer):
    from torch.nn.modules.module import register_module_forward_hook

    return register_module_forward_hook(lambda each, _, y: 3.0 * y if each is layer else None)


def scope_of_other_weights(layer):
    return keras.StatelessScope([(layer.bias, ops.ones_like(layer.bias))])


@pytest.mark.parametrize("around", [autocast, hook_of_all_layers, scope_of_other_weights])
def test_what_surrounds_a_call_counts(rng, around):
    model = randomize_weights(tiny_backbone())
    predict = functools.partial(model.predict_on_batch, random_inputs(rng))
    layer = model.encoder.transformer_layers[0].feedforward_output_dense
    before = predict()["sequence_output"]
    with around(layer):
        inside = [predict()["sequence_output"] for _ in range(3)]
    np.testing.assert_array_equal([predict()["sequence_output"] for _ in range(3)], [before] * 3)
    assert np.abs(inside[0] - before).max() > 1e-3
    with around(layer):
        np.testing.assert_array_equal(predict()["sequence_output"], inside[0])


def test_graphs_do_not_keep_the_kernels_of_a_quantized_model(rng):
    model, _ = recorded_backbone(rng)
    kernel = weakref.ref(model.encoder.transformer_layers[0].feedforward_output_dense.kernel.value)
    model.quantize("int8")
    assert kernel() is None


def test_gradients_and_calls_are_not_recorded(rng):
    model, _ = recorded_backbone(rng)
    inputs = {name: ops.convert_to_tensor(x) for name, x in random_inputs(rng).items()}
    ops.sum(model.predict_step((inputs,))["pooled_output"]).backward()
    assert all(weight.value.grad is not None for weight in model.pooled_dense.trainable_weights)


def test_threads_record_and_run(rng):
    model = randomize_weights(tiny_backbone(position_encoding="t5"))
    batches = [random_inputs(np.random.default_rng(seed)) for seed in range(16)]
    expected = [
        without_recording(model, lambda x=x: model.predict_on_batch(x))["pooled_output"]
        for x in batches
    ]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(model.predict_on_batch, batches))
    for actual, desired in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual["pooled_output"], desired)


def test_a_model_that_is_gone_leaves_no_graph(rng):
    model, predict = recorded_backbone(rng)
    count, seen = len(_recording._graphs), weakref.ref(model)
    del model, predict
    gc.collect()
    assert seen() is None
    assert len(_recording._graphs) < count
