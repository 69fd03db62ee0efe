"""Recomputation: the gradients and random numbers of training without it."""

import functools
import gc

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_diet._compat import set_keras_mask
from keras_diet.layers import (
    AttentionHook,
    BiasedMultiHeadAttention,
    CoordinateBias,
    DietDecoder,
    DietEncoder,
    RelativePositionBias,
)
from keras_diet.layers.transformer.recomputed_call import call_recomputed
from tests.helpers import (
    assert_close,
    gradients,
    once,
    randomize,
    to_numpy,
    weighted_sum,
)

BACKEND = keras.backend.backend()
BATCH, LENGTH, SOURCE, HIDDEN, NUM_HEADS = 2, 5, 7, 12, 3
PADDING = np.array([[True] * 5, [True] * 3 + [False] * 2])
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]], "int32")


def normal(*shape):
    return np.random.default_rng(3).normal(size=shape).astype("float32")


STACKS = {
    # Each kind of term: one bias for all layers, own biases, and what reads the layer's weights.
    "diet_abs": {"position_encoding": "diet_abs", "rank": 5},
    "diet_rel": {"position_encoding": "diet_rel", "normalize_first": True},
    "shaw": {"position_encoding": "shaw", "max_distance": 4},
    "transformer_xl": {"position_encoding": "transformer_xl"},
    "blocks": {"position_encoding": "diet_rel", "attention_implementation": "blockwise"},
    "linformer": {
        "position_encoding": "diet_abs",
        "projection_dim": 4,
        "segment_encoding": "none",
    },
    "additions": {
        **{"position_encoding": "t5", "attention_windows": 3, "attention_scale": 0.7},
        **{"gated": True, "use_bias": False, "normalization": "rms_norm"},
    },
    "bfloat16": {"position_encoding": "rotary", "dtype": "mixed_bfloat16"},
    # Its blocks have two attention layers and several outputs, and Keras attaches masks to inputs.
    "decoder": {"stack_class": DietDecoder, "inputs": {"padding_mask": None}},
    # Two layers share the weights of a bias, and each computes its scores.
    "forgetting": {
        **{"position_encoding": "forgetting", "sharing": "layer-wise"},
        **{"stack_class": DietDecoder, "num_layers": 2},
    },
    "query_relative": {"position_encoding": "query_relative"},
    "documents": {"position_encoding": "tupe_abs", "inputs": {"document_ids": SEGMENTS + 1}},
    "pairs": {"pair_dim": 4, "inputs": {"pairs": normal(BATCH, LENGTH, LENGTH, 4)}},
    "coordinates": {
        "position_encoding": CoordinateBias([RelativePositionBias(NUM_HEADS, LENGTH)]),
        "inputs": {"coordinates": np.array([[[2], [0], [4], [1], [1]]], "int32")},
    },
}

# One layer is compiled faster, and two draw more numbers.
NUM_LAYERS = 2 if BACKEND == "torch" else 1
# Blocks of queries, several inputs and outputs, scores of the states, and terms of the call.
ON_EACH_BACKEND = ("blocks", "decoder", "forgetting", "pairs")


def stack_of(recompute, num_layers=2, **arguments):
    """A built encoder, or a decoder if the arguments say so."""
    sizes = {"num_layers": num_layers, "num_heads": NUM_HEADS, "intermediate_dim": 11}
    dropout = {"dropout": 0.4, "activation_dropout": 0.3}
    arguments = {**sizes, "max_sequence_length": 9, **dropout, **arguments}
    stack_class = arguments.pop("stack_class", DietEncoder)
    stack = stack_class(recompute=recompute, **arguments)
    stack.build((BATCH, LENGTH, HIDDEN))
    return randomize(stack, np.random.default_rng(7))


def call_of(stack, inputs):
    x = ops.convert_to_tensor(normal(BATCH, LENGTH, HIDDEN))
    options = {"padding_mask": PADDING, "training": True, **inputs}
    if isinstance(stack, DietDecoder):
        source = ops.convert_to_tensor(normal(BATCH, SOURCE, HIDDEN))
        if options["padding_mask"] is None:
            set_keras_mask(x, ops.convert_to_tensor(PADDING))
            set_keras_mask(source, ops.convert_to_tensor(np.tri(BATCH, SOURCE, 3) > 0))
        return lambda: stack(x, source, return_attention_scores=True, **options)
    segment_ids = None if stack.segment_encoding == "none" else SEGMENTS
    return lambda: stack(x, segment_ids, **options)


def states_of(stack):
    """The states of all random generators of a stack, in the order of its layers."""
    kept = {id(weight) for weight in stack.weights}
    return [variable for variable in stack.variables if id(variable) not in kept]


def results(stack, function, compiles=False, steps=2):
    """The gradients of some steps, and the states of random generators after them."""
    keras.utils.set_random_seed(13)
    states = states_of(stack)
    for number, state in enumerate(states):
        state.assign([100 + number, 0])

    def loss():
        rng = np.random.default_rng(5)
        return sum(weighted_sum(x, rng.normal(size=x.shape)) for x in tree.flatten(function()))

    weights = stack.trainable_weights
    found = [gradients(loss, weights, states, compiles) for _ in range(steps)]
    return found, list(map(to_numpy, states))


def assert_equal(found, expected, tolerance=1e-6):
    """Compare gradients, up to a part of the largest one, and states."""
    gradients, wanted = tree.flatten(found[0]), tree.flatten(expected[0])
    largest = max(1, *(np.abs(array).max() for array in wanted))
    for actual, array in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(actual, array, tolerance, tolerance * largest)
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("recompute", ["attention", "block"])
def test_gradients_with_dropout(recompute):
    """Equal gradients in two steps, which have other dropout, and equal states afterwards."""
    compiles = BACKEND == "tensorflow" and recompute == "block"
    expected, found = (
        results(encoder, call_of(encoder, {}), compiles, 1 if compiles else 2)
        for encoder in (
            stack_of(name, NUM_LAYERS, **STACKS["diet_abs"]) for name in ("none", recompute)
        )
    )
    assert_equal(found, expected)
    # The second step has other random numbers than the first.
    first, *others = expected[0]
    assert all(np.abs(each[0] - first[0]).max() > 1e-3 for each in others)


@pytest.mark.parametrize(
    "name, recompute",
    [
        *((name, "block") for name in ON_EACH_BACKEND),
        *once(
            ("decoder", "attention"),
            *((name, "block") for name in sorted(STACKS.keys() - {"diet_abs", *ON_EACH_BACKEND})),
        ),
    ],
)
def test_every_kind_of_term(name, recompute):
    arguments = {"num_layers": 1, **STACKS[name]}
    inputs = arguments.pop("inputs", {})
    expected, found = (
        results(stack, call_of(stack, inputs))
        for stack in (stack_of(each, **arguments) for each in ("none", recompute))
    )
    assert_equal(found, expected, 2e-2 if name == "bfloat16" else 1e-6)


def of_encoder(stack, x, pairs):
    return stack(x, pairs=pairs, training=True)


def of_decoder(stack, x, source):
    return stack(x, source, training=True)


@pytest.mark.parametrize("recompute", ["block", *once("attention")])
@pytest.mark.parametrize(
    "call, shape, arguments",
    [
        (of_encoder, (BATCH, LENGTH, LENGTH, 4), {"pair_dim": 4}),
        (of_decoder, (BATCH, SOURCE, HIDDEN), {"stack_class": DietDecoder}),
    ],
    ids=["pairs", "source"],
)
def test_gradients_reach_the_inputs(call, shape, arguments, recompute):
    arguments = {**arguments, "dropout": 0.0, "activation_dropout": 0.0}
    found = []
    for each in ("none", recompute):
        stack = stack_of(each, 1, **arguments)
        inputs = [keras.Variable(normal(*size)) for size in ((BATCH, LENGTH, HIDDEN), shape)]

        def loss(stack=stack, inputs=inputs):
            # Inputs are no variables, whose gradient TensorFlow would count twice.
            output = call(stack, *(1.0 * each for each in inputs))
            return weighted_sum(output, normal(BATCH, LENGTH, HIDDEN))

        found.append(gradients(loss, inputs))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected)
        assert np.abs(expected).max() > 1e-3, "no gradient reaches an input"


class NoisyAttention(BiasedMultiHeadAttention):
    """Draws several times in a call from the generator that all of Keras shares."""

    def attention_hook(self):
        return AttentionHook(scores=self.add_noise)

    def add_noise(self, scores):
        for _ in range(3):
            scores = scores + keras.random.normal(ops.shape(scores))
        return scores


@pytest.mark.skipif(BACKEND == "jax", reason="Keras refuses draws without a seed while JAX traces")
@pytest.mark.parametrize("compiles, dropout", [(False, 0.4), (True, 0.4), (False, 0.0)])
def test_draws_without_a_seed(compiles, dropout):
    """Also in a layer without a generator, which dropout 0 does not make."""
    attention = NoisyAttention(NUM_HEADS, 4, dropout=dropout, seed=17)
    query = ops.convert_to_tensor(normal(BATCH, LENGTH, HIDDEN))
    attention.build(query.shape, query.shape)
    randomize(attention, np.random.default_rng(7))
    calls = (
        lambda: attention(query, query, training=True),
        lambda: call_recomputed(attention, query, query, training=True),
    )
    # PyTorch draws the same numbers without its compiler, which takes 5 seconds.
    ways = (compiles and BACKEND != "torch", compiles)
    expected, found = (results(attention, *each, steps=1) for each in zip(calls, ways, strict=True))
    assert_equal(found, expected)


class CountingAttention(BiasedMultiHeadAttention):
    """Changes a weight in training, as batch normalization does."""

    def build(self, *shapes):
        super().build(*shapes)
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, *args, training=None, **kwargs):
        if training:
            self.count.assign(self.count + 1)
        return super().call(*args, training=training, **kwargs)


def test_effects_that_would_be_lost_are_refused():
    attention = CountingAttention(NUM_HEADS, 4, activity_regularizer="l2", name="a")
    query = ops.convert_to_tensor(normal(BATCH, LENGTH, HIDDEN))
    attention.build(query.shape, query.shape)
    message = r"'none' for layers.*Received: 'a', which adds a loss and changes its weights\."
    with pytest.raises(ValueError, match=message):
        call_recomputed(attention, query, query, training=True)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX traces a layer once")
def test_attention_runs_again_for_the_gradient(monkeypatch):
    """In training only. Otherwise nothing would be saved."""
    calls, call = [], BiasedMultiHeadAttention.call

    @functools.wraps(call)
    def counted(*args, **kwargs):
        calls.append(kwargs["training"])
        return call(*args, **kwargs)

    monkeypatch.setattr(BiasedMultiHeadAttention, "call", counted)
    x = ops.convert_to_tensor(normal(BATCH, LENGTH, HIDDEN))
    for recompute, times in (("none", 1), ("attention", 2), ("block", 2)):
        encoder = stack_of(recompute, position_encoding="none")
        for training, expected in ((True, 2 * times), (False, 2)):
            calls.clear()
            gradients(lambda e=encoder, t=training: ops.sum(e(x, training=t)), encoder.weights)
            assert calls == [training] * expected


@pytest.mark.skipif(BACKEND != "torch", reason="counts tensors of PyTorch")
@pytest.mark.parametrize("implementation", ["full", "blockwise"])
def test_the_gradient_frees_what_is_computed_again(implementation):
    """At once, not when Python collects garbage. Until then a step would hold all layers."""
    shapes = {
        recompute: shapes_left(stack_of(recompute, attention_implementation=implementation))
        for recompute in ("none", "attention", "block")
    }
    assert shapes["attention"] == shapes["block"] == shapes["none"]


def shapes_left(encoder):
    """Return the shapes of the tensors that a gradient leaves, of those as large as the input."""
    import torch

    call = call_of(encoder, {})
    gc.collect()
    gc.disable()
    try:
        earlier = {id(each) for each in gc.get_objects() if type(each) is torch.Tensor}
        ops.sum(call()).backward()
        left = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    finally:
        gc.enable()
    size = BATCH * LENGTH * HIDDEN
    return [x.shape for x in left if id(x) not in earlier and x.shape.numel() >= size]


@pytest.mark.any_backend
def test_weights_of_a_layer_with_another_dtype():
    """The layer around it computes in bfloat16, in which these weights would lose digits."""

    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__(dtype="mixed_bfloat16")
            self.inner = keras.layers.Dense(3, dtype="float32")

        def call(self, x, recomputes):
            arguments = ops.cast(x, "float32")
            return call_recomputed(self.inner, arguments) if recomputes else self.inner(arguments)

    x, outer = normal(BATCH, HIDDEN), Outer()
    expected = to_numpy(outer(x, recomputes=False))
    np.testing.assert_allclose(to_numpy(outer(x, recomputes=True)), expected, 1e-6, 1e-6)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="others find the gradients of a hook")
def test_a_hook_of_the_call_is_refused_on_tensorflow():
    x, hook = normal(BATCH, LENGTH, HIDDEN), AttentionHook(scores=ops.tanh)
    for recompute in ("attention", "block"):
        encoder = stack_of(recompute)
        with pytest.raises(ValueError, match=r"lose the gradients.*`attention_hook`"):
            encoder(x, attention_hook=hook, training=True)
        encoder(x, attention_hook=hook)
