"""Calls with a faster way on a backend return the same as `keras.ops`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend
from keras_diet.layers import AlibiPositionBias
from tests import reference
from tests.helpers import assert_close, floatx, gradients, normal, to_numpy, weighted_sum

BATCH, LENGTH, HIDDEN, NUM_HEADS, KEY_DIM = 2, 5, 7, 3, 11


QUERIES, KEYS = 5, 7
MASK = np.random.default_rng(5).random((BATCH, 1, QUERIES, KEYS)) < 0.6
MASK[0, :, 3] = False
BIAS = np.random.default_rng(6).normal(size=(1, NUM_HEADS, QUERIES, KEYS)).astype("float32")
TERMS = {
    "plain": {},
    "bias": {"bias": BIAS},
    "mask": {"mask": MASK},
    "keys": {"mask": MASK[:, :, :1]},
    "causal": {"is_causal": True},
}


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("value_dim", [KEY_DIM, 2])
def test_fused_attention_equals_arrays(rng, name, value_dim):
    query = normal(rng, BATCH, QUERIES, NUM_HEADS, KEY_DIM)
    key = normal(rng, BATCH, KEYS, NUM_HEADS, KEY_DIM)
    value = normal(rng, BATCH, KEYS, NUM_HEADS, value_dim)
    of_reference = {"mask": np.tri(QUERIES, KEYS) > 0} if name == "causal" else TERMS[name]
    expected = reference.attention_of_heads(query, key, value, 0.7, **of_reference)
    terms = {"bias": None, "mask": None, "is_causal": False, **TERMS[name]}
    terms = {
        name: ops.convert_to_tensor(term) if isinstance(term, np.ndarray) else term
        for name, term in terms.items()
    }
    heads = [ops.convert_to_tensor(tensor) for tensor in (query, key, value)]
    output = _backend.fused_attention(*heads, scale=0.7, flash_attention=None, **terms)
    # Without any key, kernels that take no mask return something else.
    defined = np.ones((BATCH, QUERIES), "bool")
    if "mask" in TERMS[name] and not _backend.kernel_takes_mask():
        defined = np.broadcast_to(TERMS[name]["mask"][:, 0].any(axis=-1), (BATCH, QUERIES))
    assert_close(to_numpy(output)[defined], expected[defined])


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["a column", "transposed", "windows", "rows"])
def test_kernels_get_rows_of_keys_that_are_contiguous(rng, monkeypatch, name):
    import torch
    from torch.nn import functional

    query, key = normal(rng, BATCH, QUERIES, NUM_HEADS, 4), normal(rng, BATCH, KEYS, NUM_HEADS, 4)
    bias = {
        "a column": torch.as_tensor(normal(rng, 1, NUM_HEADS, QUERIES, 1)),
        "transposed": torch.as_tensor(normal(rng, 1, NUM_HEADS, KEYS, QUERIES)).mT,
        # What DIET-REL's bias is made of: rows that overlap in memory.
        "windows": torch.as_tensor(normal(rng, 1, NUM_HEADS, 11)).unfold(-1, KEYS, 1),
        "rows": torch.as_tensor(normal(rng, 1, 1, QUERIES, KEYS)).expand(BATCH, -1, -1, -1),
    }[name]
    options = {"mask": None, "scale": 0.3, "is_causal": False, "flash_attention": None}
    tensors = [ops.convert_to_tensor(each) for each in (query, key, key)]
    expected = _backend.fused_attention(*tensors, bias.expand(BATCH, 3, 5, 7).clone(), **options)
    given, attention = [], functional.scaled_dot_product_attention

    def recorded(*args, attn_mask, **kwargs):
        given.append(attn_mask)
        return attention(*args, attn_mask=attn_mask, **kwargs)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", recorded)
    assert_close(_backend.fused_attention(*tensors, bias, **options), expected, 1e-6)
    assert (given[0].shape[-1], given[0].stride(-1)) == (KEYS, 1)
    # A bias whose rows are contiguous is not copied.
    assert (given[0] is bias) == (name in ("windows", "rows"))


def test_rows_of_a_small_table_on_a_gpu(rng, monkeypatch):
    """Equal rows, and gradients that add the gradients of all indices of a row."""
    table, random = keras.Variable(normal(rng, 4, NUM_HEADS)), normal(rng, 6, NUM_HEADS)
    indices = ops.convert_to_tensor([3, 0, 3, 3, 1, 0], "int32")
    monkeypatch.setattr(_backend, "platform", lambda: "gpu")
    assert_close(_backend.take_of_few(table, indices), to_numpy(table)[[3, 0, 3, 3, 1, 0]], 0)
    (found,) = gradients(
        lambda: weighted_sum(_backend.take_of_few(table, indices), random), [table]
    )
    wanted = [random[[1, 5]].sum(0), random[4], np.zeros(NUM_HEADS), random[[0, 2, 3]].sum(0)]
    assert_close(found, np.stack(wanted), 1e-6)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="reads a program of JAX")
def test_the_gradient_of_a_small_table_on_a_gpu_scatters_nothing(monkeypatch):
    import jax

    monkeypatch.setattr(_backend, "platform", lambda: "gpu")
    gradient = jax.grad(lambda table: _backend.take_of_few(table, np.array([1, 1, 0])).sum())
    assert "scatter" not in str(jax.make_jaxpr(gradient)(np.ones((3, 2), "float32")))


@pytest.mark.parametrize("rate", [0.1, 0.7])
def test_dropout(rng, rate):
    x = np.exp(normal(rng, 17, 19, 23))
    seed = keras.random.SeedGenerator(5).next()
    output = to_numpy(_backend.dropout(ops.convert_to_tensor(x), rate, seed, 2))
    kept = output != 0
    assert abs(kept.mean() - (1 - rate)) < 0.02
    assert_close(output[kept], x[kept] / (1 - rate))
    # In every row of every axis.
    for axis in range(3):
        shares = np.moveaxis(kept, axis, 0).reshape(kept.shape[axis], -1).mean(axis=1)
        assert np.abs(shares - (1 - rate)).max() < 0.1


def test_dropout_is_that_of_the_seed_and_of_the_block():
    x = ops.ones((17, 19, 23))
    seeds = keras.random.SeedGenerator(5)
    first, second = seeds.next(), seeds.next()

    def kept(seed, index):
        return to_numpy(_backend.dropout(x, 0.5, seed, index)) != 0

    once = kept(first, 3)
    np.testing.assert_array_equal(kept(first, 3), once)
    np.testing.assert_array_equal(kept(first, ops.convert_to_tensor(3)), once)
    # Two independent masks agree in half of the entries.
    for other in (kept(first, 4), kept(first, 0), kept(second, 3), kept(second, 2)):
        assert 0.45 < (other == once).mean() < 0.55


@pytest.mark.any_backend("torch")
def test_sliding_windows(rng):
    inputs = rng.normal(size=(3, 7)).astype("float32")
    # A transposed tensor, whose windows would be scattered in memory.
    windows = _backend.sliding_windows(ops.transpose(ops.convert_to_tensor(inputs.T)), 4)
    expected = np.stack([inputs[:, start : start + 4] for start in range(4)], axis=1)
    assert_close(windows, expected, 0)
    assert windows.stride(-1) == 1


def test_positions_have_32_bits_with_any_floatx():
    """TensorFlow has no range of 16 bits for a length that a graph does not know."""
    inputs = keras.Input((None, 3))
    model = keras.Model(inputs, AlibiPositionBias(2)(inputs))
    with floatx("float16"):
        assert to_numpy(_backend.arange(40_000))[-1] == 39_999
        scores = model.predict(np.zeros((1, 5, 3)), verbose=0)
    assert_close(scores[0, 1, 4], -np.arange(4, -1, -1) / 256)


@pytest.mark.parametrize("k, values", [(1, 5), (4, 2), (4, 5), (13, 5)])
def test_top_k_prefers_the_lower_index(rng, k, values):
    inputs = rng.integers(-values, values, size=(BATCH, 3, 13)).astype("float32")
    inputs[inputs == 1 - values] = -np.inf
    actual, indices = _backend.top_k(ops.convert_to_tensor(inputs), k)
    expected = np.argsort(-inputs, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(to_numpy(indices), expected)
    np.testing.assert_array_equal(to_numpy(actual), np.take_along_axis(inputs, expected, axis=-1))
