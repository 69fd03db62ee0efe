"""Attention under float16 and bfloat16, with scores near the limits of float16."""

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_diet.layers import (
    BiasedMultiHeadAttention,
    RelativeMultiHeadAttention,
    ScoreTerms,
    TransformerXLMultiHeadAttention,
)
from tests import reference
from tests.helpers import assert_close, attention_weights, to_numpy

BATCH, LENGTH, NUM_HEADS, HEAD_DIM = 2, 7, 3, 4
HIDDEN = NUM_HEADS * HEAD_DIM
SHAPE = (BATCH, NUM_HEADS, LENGTH, LENGTH)
PADDING_MASK = np.ones((BATCH, 1, LENGTH), "bool")
PADDING_MASK[0, :, 4:] = False
# A multiple of 256 near 3e4, exact in float16 and in bfloat16.
LARGE = 29952.0
any_backend = pytest.mark.any_backend


def make(dtype, kind=BiasedMultiHeadAttention, **arguments):
    """A layer whose projections are identities."""
    attention = kind(NUM_HEADS, HEAD_DIM, dtype=dtype, **arguments)
    attention.build((BATCH, LENGTH, HIDDEN), (BATCH, LENGTH, HIDDEN))
    for name in ("query", "key", "value", "output"):
        kernel = getattr(attention, f"{name}_dense").kernel
        kernel.assign(np.eye(HIDDEN).reshape(kernel.shape))
    return attention


def make_inputs(rng):
    """Inputs whose scores reach 8192: powers of two, so that no dtype has to round them."""
    return rng.choice([-64.0, -32.0, 32.0, 64.0], size=(BATCH, LENGTH, HIDDEN)).astype("float32")


# The weights' dtype has nothing to do with the scores.
@any_backend
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "bfloat16"])
@pytest.mark.parametrize("biases", [(-LARGE, 0.0, LARGE), (LARGE,), (-LARGE,)], ids=str)
def test_probabilities_of_large_scores(rng, biases, dtype):
    attention = make(dtype)
    x, bias = make_inputs(rng), rng.choice(biases, size=SHAPE).astype("float32")
    arguments = {"attention_bias": bias, "attention_mask": PADDING_MASK}
    output, scores = attention(x, x, return_attention_scores=True, **arguments)
    terms = {"bias": bias, "mask": PADDING_MASK[:, None], "return_scores": True}
    weights = attention_weights(attention)
    expected, expected_scores = reference.multi_head_attention(x, x, weights, **terms)
    from_kernel = attention(x, x, **arguments)
    dtypes = {keras.backend.standardize_dtype(x.dtype) for x in (output, scores, from_kernel)}
    assert dtypes == {attention.compute_dtype}
    for found in (output, from_kernel):
        np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-2, atol=0.3)
    # The probabilities of padding are zero, and the others of a query have the sum 1.
    assert_close(scores, expected_scores, 1e-2)
    assert not to_numpy(scores)[0, :, :, 4:].any()
    assert_close(to_numpy(scores).sum(axis=-1), np.ones(SHAPE[:-1]), 1e-2)


@any_backend
@pytest.mark.parametrize("dtype", ["float16", "mixed_float16"])
def test_products_above_the_largest_float16(dtype):
    """Inputs of 300 have products of 180,000, and of 270,000 with the vectors of distances."""
    x = np.full((BATCH, LENGTH, HIDDEN), 300.0, "float16")
    plain, shaw = make(dtype), make(dtype, RelativeMultiHeadAttention, max_distance=7)
    shaw.key_embedding.assign(np.full(shaw.key_embedding.shape, 300.0))
    biases = to_numpy(shaw.distance_scores(shaw.query_dense(x), shaw.key_dense(x)))
    assert_close(biases / 180_000, np.ones(SHAPE), 1e-3)
    for attention in (plain, shaw):
        _, scores = attention(x, x, return_attention_scores=True)
        assert_close(scores, np.full(SHAPE, 1 / LENGTH), 1e-3)
    transformer_xl = make(dtype, TransformerXLMultiHeadAttention)
    assert np.all(np.isfinite(to_numpy(transformer_xl(x, x))))


# What makes columns of padding in the program with all scores, and in the one with blocks.
COLUMNS = {
    "bias": {"bias": np.zeros((NUM_HEADS, LENGTH, LENGTH), "float32")},
    "features": {"features": ((np.zeros((1, LENGTH, 1, 9)), np.zeros((1, LENGTH, 1, 9))),)},
}


@pytest.mark.parametrize("block_size", [None, 3])
@pytest.mark.parametrize("name", COLUMNS)
def test_padding_in_float16_is_left_out_whatever_its_scores(name, block_size):
    """The scores of tokens are 80,000, and those of padding 120,000."""
    x = np.where(PADDING_MASK[:, 0, :, None], 200.0, 300.0) * np.ones(HIDDEN)
    terms = {"padding_mask": ops.convert_to_tensor(PADDING_MASK[:, 0])}
    terms |= tree.map_structure(ops.convert_to_tensor, COLUMNS[name])
    arguments = {"score_terms": ScoreTerms(**terms), "block_size": block_size}
    output = make("float16")(x.astype("float16"), x.astype("float16"), **arguments)
    assert_close(output, np.full(x.shape, 200.0), 0)


def test_features_above_the_largest_float16(rng):
    """The second feature decides, although float16 has both as infinity. Keras casts arguments."""
    x = rng.normal(size=(BATCH, LENGTH, HIDDEN)).astype("float16")
    key = np.zeros((1, LENGTH, 1, 1), "float32")
    key[0, [2, 5]] = [[[70_000.0]], [[80_000.0]]]
    features = tree.map_structure(ops.convert_to_tensor, (np.ones_like(key), key))
    output = make("float16")(x, x, score_terms=ScoreTerms(features=(features,)))
    assert_close(output, np.repeat(x[:, 5:6], LENGTH, axis=1), 1e-3)
