"""The programs of the forward pass and the gradient: the products, calls and tensors in them."""

import collections
import math

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    DietEncoder,
    LinformerMultiHeadAttention,
    RelativeMultiHeadAttention,
)
from keras_diet.layers.attention import plan

BACKEND = keras.backend.backend()
# Sizes that no other axis has.
BATCH, LENGTH, NUM_HEADS, HEAD_DIM, RANK, NUM_LAYERS, NUM_SEGMENTS = 2, 19, 7, 14, 13, 2, 3
# Softmax removes a score that is the same for all keys.
NUM_SEGMENT_FEATURES = NUM_SEGMENTS - 1
HIDDEN, BLOCK_SIZE = NUM_HEADS * HEAD_DIM, 5
NUM_BLOCKS = LENGTH // BLOCK_SIZE
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="reads programs of JAX")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="records what PyTorch runs")
DIET_ABS = {"position_encoding": "diet_abs", "rank": RANK}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(plan, "BLOCK_SIZE", BLOCK_SIZE)


def make_encoder(name, **kwargs):
    sizes = {"num_segments": NUM_SEGMENTS, "max_sequence_length": 20}
    kwargs |= {**sizes, "attention_implementation": name}
    encoder = DietEncoder(NUM_LAYERS, NUM_HEADS, 23, **kwargs)
    encoder.build((BATCH, LENGTH, HIDDEN))
    return encoder


def make_inputs(rng):
    return {
        "inputs": rng.normal(size=(BATCH, LENGTH, HIDDEN)).astype("float32"),
        "segment_ids": rng.integers(NUM_SEGMENTS, size=(BATCH, LENGTH)).astype("int32"),
        "padding_mask": np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 3]]),
    }


def equations_of(program):
    """All equations of a program of JAX, those of the functions that it calls too."""
    import jax

    for equation in program.eqns:
        yield equation
        parameters = list(equation.params.values())
        for parameter in jax.tree.leaves(parameters, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from equations_of(inner)


def jax_equations(encoder, inputs, gradient=False):
    """The equations of the forward pass, or of it and the gradient."""
    import jax

    trainable = [variable.value for variable in encoder.trainable_variables]
    others = [variable.value for variable in encoder.non_trainable_variables]

    def loss(trainable, inputs):
        output, _ = encoder.stateless_call(trainable, others, **inputs)
        return output.sum()

    function = jax.grad(loss) if gradient else loss
    return list(equations_of(jax.make_jaxpr(function)(trainable, inputs).jaxpr))


def shapes_of(equations):
    return [tuple(variable.aval.shape) for equation in equations for variable in equation.outvars]


def products_of(equations, shape):
    """Count the products with results of this shape, in any order, by what they sum over."""
    counts = collections.Counter()
    for equation in equations:
        if equation.primitive.name != "dot_general":
            continue
        if sorted(equation.outvars[0].aval.shape) == sorted(shape):
            (axes, _), _ = equation.params["dimension_numbers"]
            counts[math.prod(equation.invars[0].aval.shape[axis] for axis in axes)] += 1
    return counts


@on_jax
@pytest.mark.parametrize("position_encoding", ["diet_abs", "none"])
def test_segments_and_padding_make_no_scores(rng, position_encoding):
    """They lengthen the sum of the product of queries and keys."""
    encoder, inputs = make_encoder("full", position_encoding=position_encoding), make_inputs(rng)
    scores = (BATCH, NUM_HEADS, LENGTH, LENGTH)
    features = HEAD_DIM + NUM_SEGMENT_FEATURES + 1
    forward = products_of(jax_equations(encoder, inputs), scores)
    assert forward == {features: NUM_LAYERS}
    # The gradient of the probabilities is a product with the values.
    both = products_of(jax_equations(encoder, inputs, gradient=True), scores)
    assert both == {features: NUM_LAYERS, HEAD_DIM: NUM_LAYERS}


def assert_linear(shapes):
    """Assert that no tensor has a row of keys for all queries, nor for those of all blocks."""
    shapes = set(shapes)
    for shape in shapes:
        long = [size for size in shape if size in (LENGTH, NUM_BLOCKS * BLOCK_SIZE)]
        assert len(long) < 2, shape
        assert not {NUM_BLOCKS, BLOCK_SIZE, LENGTH} <= set(shape), shape


@on_jax
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
def test_blocks_are_all_there_is(rng, gradient):
    encoder = make_encoder("blockwise", **DIET_ABS)
    equations = jax_equations(encoder, make_inputs(rng), gradient)
    assert_linear(shapes_of(equations))
    block = (NUM_HEADS, BATCH, BLOCK_SIZE, LENGTH)
    assert block in shapes_of(equations)
    # The full blocks are one program, which is called for each.
    features = HEAD_DIM + NUM_SEGMENT_FEATURES + 1 + RANK
    assert products_of(equations, block)[features] == (2 * NUM_LAYERS if gradient else NUM_LAYERS)


@on_jax
@pytest.mark.parametrize("name", ["shaw", "shaw_keys", "linformer"])
def test_no_tensor_is_as_large_as_the_equations_say(rng, name):
    """Shaw needs no vector for each pair, and Linformer no score for each pair."""
    import jax

    # Sizes that no other axis has, nor the number of distances.
    query_length, key_length, key_dim = 17, 23, 13
    if name == "linformer":
        attention = LinformerMultiHeadAttention(2, 5, key_length, projection_dim=3)
        most, arguments = query_length * key_length, {"value_mask": np.ones((2, 23), "bool")}
    else:
        values = name == "shaw"
        attention = RelativeMultiHeadAttention(2, key_dim, 3, use_value_embedding=values)
        most, arguments = query_length * key_length * key_dim, {}
    query, value = (rng.normal(size=(2, size, 5)) for size in (query_length, key_length))
    attention.build(query.shape, value.shape)
    weights = [weight.value for weight in attention.trainable_variables]

    def loss(weights, query, value):
        return attention.stateless_call(weights, [], query, value, **arguments)[0].sum()

    for function in (loss, jax.grad(loss, argnums=(0, 1, 2))):
        program = jax.make_jaxpr(function)(weights, query, value).jaxpr
        shapes = shapes_of(equations_of(program))
        has_pairs = any({query_length, key_length} <= set(shape) for shape in shapes)
        assert has_pairs == (name != "linformer")
        assert max(np.prod(shape) for shape in shapes) < most


def torch_operations(encoder, inputs, gradient=False):
    """Count the operators that run, by name, and list the shapes of what they return."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    counts, shapes = collections.Counter(), []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            outputs = operator(*args, **(kwargs or {}))
            counts[operator.overloadpacket.__name__] += 1
            tensors = outputs if isinstance(outputs, tuple | list) else [outputs]
            shapes.extend(tuple(t.shape) for t in tensors if isinstance(t, torch.Tensor))
            return outputs

    with Record(), torch.set_grad_enabled(gradient):
        output = encoder(**inputs)
        if gradient:
            output.sum().backward()
    return counts, shapes


@on_torch
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "gradient"])
@pytest.mark.parametrize(
    "name, position_encoding",
    [("features", "diet_abs"), ("blockwise", "diet_abs"), ("blockwise", "diet_rel")],
)
def test_no_tensor_has_queries_and_keys(rng, name, position_encoding, gradient):
    encoder = make_encoder(name, position_encoding=position_encoding)
    counts, shapes = torch_operations(encoder, make_inputs(rng), gradient)
    assert_linear(shapes)
    blocks = NUM_BLOCKS + 1 if name == "blockwise" else 1
    # Blocks are attended for again before their gradient is computed.
    recomputed = 2 if gradient and name == "blockwise" else 1
    # On a CPU the kernel has no gradient by a bias.
    if not gradient or position_encoding == "diet_abs":
        kernel = "_scaled_dot_product_flash_attention_for_cpu"
        assert counts[kernel] == NUM_LAYERS * blocks * recomputed
