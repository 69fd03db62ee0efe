"""Padding as features, and features put together."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers.attention.score_features import (
    append_features,
    concatenate_features,
    features_as_bias,
    padding_features,
)
from tests.helpers import assert_close, to_numpy

BATCH, QUERIES, KEYS, NUM_HEADS = 2, 5, 7, 3
VALID = np.array([[True] * 4 + [False] * 3, [True] * 7])
# Batch and heads of the features of queries and of keys, and their rank.
PAIRS = [
    ((1, NUM_HEADS), (1, NUM_HEADS), 5),
    ((BATCH, 1), (BATCH, NUM_HEADS), 2),
    ((1, 1), (BATCH, 1), 1),
    ((1, 1), (1, 1), 3),
]


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make_pair(rng, query_sizes, key_sizes, rank):
    return tuple(
        ops.convert_to_tensor(normal(rng, sizes[0], length, sizes[1], rank))
        for sizes, length in ((query_sizes, QUERIES), (key_sizes, KEYS))
    )


def products(pair):
    """Inner products `(B or 1, H or 1, T, S)` as a loop."""
    query, key = map(to_numpy, pair)
    batch_size, num_heads = np.broadcast_shapes(query.shape[::2], key.shape[::2])
    query = np.broadcast_to(query, (batch_size, query.shape[1], num_heads, query.shape[3]))
    key = np.broadcast_to(key, (batch_size, key.shape[1], num_heads, key.shape[3]))
    scores = np.zeros((batch_size, num_heads, query.shape[1], key.shape[1]))
    for b, h, i, j in np.ndindex(scores.shape):
        scores[b, h, i, j] = query[b, i, h] @ key[b, j, h]
    return scores


@pytest.mark.parametrize(
    "dtype, masked", [("float32", -1e9), ("bfloat16", -1e9), ("float16", -3e4)]
)
def test_padding(dtype, masked):
    features = padding_features(ops.convert_to_tensor(VALID), dtype)
    assert [tuple(tensor.shape) for tensor in features] == [(1, 7, 1, 1), (BATCH, 7, 1, 1)]
    for tensor in features:
        assert keras.backend.standardize_dtype(tensor.dtype) == dtype
    expected = np.broadcast_to(np.where(VALID, 0.0, masked)[:, None, None], (BATCH, 1, 7, 7))
    np.testing.assert_allclose(products(features), expected, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_padding_has_no_probability(rng, dtype):
    scores = products(padding_features(ops.convert_to_tensor(VALID), dtype)).astype("float32")
    probabilities = to_numpy(ops.softmax(scores + 50 * normal(rng, *scores.shape)))
    assert np.all(probabilities.swapaxes(1, 3)[~VALID] == 0)
    assert_close(probabilities.sum(axis=-1), np.ones((BATCH, 1, 7)))
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (0, 1, 2), (3, 2, 0), (2, 2), (3, 3)], ids=str)
def test_products_of_concatenated_features_are_sums(rng, numbers):
    pairs = [make_pair(rng, *PAIRS[number]) for number in numbers]
    query, key = concatenate_features(*pairs)
    rank = sum(PAIRS[number][2] for number in numbers)
    assert query.shape[-1] == key.shape[-1] == rank
    assert_close(products((query, key)), sum(products(pair) for pair in pairs))


@pytest.mark.parametrize("number", range(4))
def test_a_single_pair_is_the_features(rng, number):
    pair = make_pair(rng, *PAIRS[number])
    assert concatenate_features(pair) is pair


@pytest.mark.parametrize("number", range(4))
def test_products_with_appended_features_are_sums(rng, number):
    query = normal(rng, BATCH, QUERIES, NUM_HEADS, 11)
    key = normal(rng, BATCH, KEYS, NUM_HEADS, 11)
    pair = make_pair(rng, *PAIRS[number])
    heads = [ops.convert_to_tensor(tensor) for tensor in (query, key)]
    appended = [append_features(*tensors) for tensors in zip(heads, pair, strict=True)]
    for tensor, length in zip(appended, (QUERIES, KEYS), strict=True):
        # The next multiple of 8.
        assert tuple(tensor.shape) == (BATCH, length, NUM_HEADS, 16)
    assert_close(products(appended), products((query, key)) + products(pair))


@pytest.mark.parametrize("number", range(4))
def test_features_as_a_bias_are_their_products(rng, number):
    pair = make_pair(rng, *PAIRS[number])
    assert_close(features_as_bias(*pair, "float32"), products(pair))
    half = [ops.cast(tensor, "bfloat16") for tensor in pair]
    bias = features_as_bias(*half, "float32")
    assert keras.backend.standardize_dtype(bias.dtype) == "float32"
    assert_close(bias, products([ops.cast(tensor, "float32") for tensor in half]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_appended_features_get_the_dtype_of_the_heads(rng, dtype):
    heads = ops.cast(normal(rng, BATCH, QUERIES, NUM_HEADS, 11), dtype)
    query, _ = make_pair(rng, *PAIRS[0])
    appended = append_features(heads, query)
    assert keras.backend.standardize_dtype(appended.dtype) == dtype
    rank = query.shape[-1]
    assert_close(to_numpy(appended)[0, ..., 11 : 11 + rank], to_numpy(query)[0], 1e-2)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph for any length")
def test_one_graph_for_all_lengths(rng):
    import tensorflow as tf

    ids = [(1, NUM_HEADS), (BATCH, 1)]
    shapes = [(batch, None, heads, 2) for batch, heads in ids]
    shapes = [(None, *shape[1:]) if shape[0] != 1 else shape for shape in shapes]

    @tf.function(input_signature=[tf.TensorSpec(shape) for shape in (*shapes, *shapes)])
    def concatenate(first_query, second_query, first_key, second_key):
        return concatenate_features((first_query, first_key), (second_query, second_key))

    for length in (1, 5):
        tensors = [normal(rng, batch, length, heads, 2) for batch, heads in (*ids, *ids)]
        expected = products(tensors[::2]) + products(tensors[1::2])
        assert_close(products(concatenate(*tensors)), expected)
