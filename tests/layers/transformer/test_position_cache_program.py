"""With cached positions, the forward pass holds no product of position embeddings."""

import collections

import keras
import pytest

from keras_diet.layers import cache_positions, drop_cached_positions
from tests.layers.cached_models import make_data, make_model

BACKEND = keras.backend.backend()


def jax_operations(model, x):
    """Count the primitives of the forward pass, in the functions that it calls too."""
    import jax

    trainable = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]
    program = jax.make_jaxpr(model.stateless_call)(trainable, others, x)
    counts = collections.Counter()

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            counts[equation.primitive.name] += 1
            for parameter in jax.tree.leaves(
                list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")
            ):
                inner = getattr(parameter, "jaxpr", parameter)
                if hasattr(inner, "eqns"):
                    visit(inner)

    visit(program.jaxpr)
    return counts


def tensorflow_operations(model, x):
    """Count the operations of the graph of the forward pass and of its functions."""
    import tensorflow as tf

    function = tf.function(model).get_concrete_function(tf.TensorSpec(x.shape, x.dtype))
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
    return collections.Counter(node.op for node in nodes)


def torch_operations(model, x):
    """Count the operators that the forward pass runs."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    counts = collections.Counter()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            counts[operator.overloadpacket.__name__] += 1
            return operator(*args, **(kwargs or {}))

    with Count(), torch.no_grad():
        model(x)
    return counts


OPERATIONS = {"jax": jax_operations, "tensorflow": tensorflow_operations, "torch": torch_operations}
PRODUCTS = {
    "jax": {"dot_general"},
    "tensorflow": {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"},
    "torch": {"mm", "addmm", "bmm", "baddbmm", "matmul", "dot", "mv"},
}


def count(model, x):
    """How many operations the forward pass holds, and how many of them are products."""
    counts = OPERATIONS[BACKEND](model, x)
    return counts.total(), sum(counts[name] for name in PRODUCTS[BACKEND])


@pytest.mark.parametrize("sharing, biases", [("layer-wise", 1), ("head-wise", 2), ("none", 2)])
def test_no_product_of_position_embeddings_is_left(rng, sharing, biases):
    model = make_model(rng, num_layers=2, position_encoding="diet_abs", sharing=sharing)
    x = make_data(rng)[0]
    _, before = count(model, x)
    cache_positions(model)
    _, cached = count(model, x)
    drop_cached_positions(model)
    _, after = count(model, x)
    # Two dense layers in each block, and the model's last.
    assert cached >= 2 * 2 + 1
    assert before - cached == biases
    assert after == before


@pytest.mark.parametrize("sharing", ["layer-wise", "head-wise", "none"])
def test_relative_scores_are_not_laid_out_again(rng, sharing):
    model = make_model(rng, num_layers=2, position_encoding="diet_rel", sharing=sharing)
    x = make_data(rng)[0]
    operations, products = count(model, x)
    cache_positions(model)
    cached_operations, cached_products = count(model, x)
    # No slice of distances, transpose, and windows in turn, or pad, broadcast and reshape: one
    # slice per layer.
    assert operations - cached_operations >= 4 * (1 if sharing == "layer-wise" else 2)
    assert cached_products == products


def test_the_program_without_positions_is_a_lower_bound(rng):
    """The cached encoder computes the same products as one that knows no positions."""
    x = make_data(rng)[0]
    cached = make_model(rng, num_layers=2, position_encoding="diet_abs", sharing="none")
    cache_positions(cached)
    plain = make_model(rng, num_layers=2, position_encoding="none")
    assert count(cached, x)[1] == count(plain, x)[1]
