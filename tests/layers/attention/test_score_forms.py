"""Score terms in every form add up to the sum of the terms."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import ScoreTerms
from keras_diet.layers.attention.dot_product import attend
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.prepared_terms import (
    lower_columns,
    lower_scores,
    padding_features,
    padding_row,
    prepare,
)
from tests.helpers import assert_close, to_numpy
from tests.layers.attention.variants import BATCH, KEYS, NUM_HEADS, QUERIES, VALID

KEY_DIM = 11
any_backend = pytest.mark.any_backend


def normal(rng, *shape):
    return ops.convert_to_tensor(rng.normal(size=shape).astype("float32"))


def make_pair(rng, query_sizes, key_sizes, rank):
    """Features, with sizes of the axes of batch and heads."""
    sizes = ((query_sizes, QUERIES), (key_sizes, KEYS))
    return tuple(normal(rng, size[0], length, size[1], rank) for size, length in sizes)


def make_heads(rng):
    return [normal(rng, BATCH, length, NUM_HEADS, KEY_DIM) for length in (QUERIES, KEYS)]


def products(pair):
    """Inner products `(B or 1, H or 1, T, S)`."""
    return np.einsum("bihr,bjhr->bhij", *map(to_numpy, pair))


@any_backend
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_padding_has_no_probability(rng, dtype):
    valid = ops.convert_to_tensor(VALID)
    row, features = padding_row(valid, dtype), padding_features(valid, dtype)
    assert [tuple(tensor.shape) for tensor in features] == [(1, 1, 1, 1), (BATCH, KEYS, 1, 1)]
    for tensor in (row, *features):
        assert keras.backend.standardize_dtype(tensor.dtype) == dtype
    expected = np.where(VALID, 0.0, -1e9)[:, None, None]
    for scores in (to_numpy(row), products(features)):
        np.testing.assert_allclose(scores, expected, rtol=1e-2)
        scores = scores.astype("float32") + 50 * rng.normal(size=scores.shape)
        probabilities = to_numpy(ops.softmax(scores))
        assert np.all(probabilities[:, 0, 0][~VALID] == 0)


PAIRS = np.random.default_rng(5).random((BATCH, QUERIES, KEYS)) < 0.7
TERMS = {
    "padding": ("padding",),
    "bias and padding": ("bias", "padding"),
    "features": ("features",),
    "features and padding": ("features", "padding"),
    "all": ("bias", "features", "padding", "mask", "causal", "window"),
}


def make_terms(rng, names):
    """Terms of these names; their sum; and the mask of what is allowed."""
    bias = normal(rng, NUM_HEADS, 1, KEYS) if "padding" not in names else normal(rng, QUERIES, KEYS)
    pairs = (
        make_pair(rng, (1, NUM_HEADS), (1, NUM_HEADS), 5),
        make_pair(rng, (BATCH, 1), (BATCH, NUM_HEADS), 2),
    )
    distance = np.arange(2, QUERIES + 2)[:, None] - np.arange(KEYS)
    terms = {
        "bias": ({"bias": bias}, to_numpy(bias), True),
        "features": ({"features": pairs}, sum(map(products, pairs)), True),
        "padding": ({"padding_mask": ops.convert_to_tensor(VALID)}, 0, VALID[:, None, None]),
        "mask": ({"attention_mask": ops.convert_to_tensor(PAIRS)}, 0, PAIRS[:, None]),
        "causal": ({"is_causal": True, "start_index": 2}, 0, distance >= 0),
        "window": ({"sliding_window": 3}, 0, np.abs(distance) < 3),
    }
    total, allowed, arguments = 0.0, np.ones((BATCH, 1, QUERIES, KEYS), "bool"), {}
    for name in names:
        arguments |= terms[name][0]
        total, allowed = total + terms[name][1], allowed & terms[name][2]
    return ScoreTerms(**arguments), total, allowed


@any_backend
@pytest.mark.parametrize("masks_padding", [False, True])
@pytest.mark.parametrize("columns", [True, False], ids=["columns", "tensor"])
@pytest.mark.parametrize("program", ["scores", "kernel"])
@pytest.mark.parametrize("name", TERMS)
def test_every_form_has_the_same_scores(rng, name, program, columns, masks_padding):
    query, key = make_heads(rng)
    terms, total, allowed = make_terms(rng, TERMS[name])
    expected = np.where(allowed, 0.3 * products((query, key)) + total, -1e9)
    plan = AttentionPlan(program, columns=columns, masks_padding=masks_padding)
    terms = prepare(terms, plan, query, key).replace(scale=0.3)
    query, key, terms = lower_columns(query, key, terms)
    terms = lower_scores(query, key, terms)
    scores = 0.3 * products((query, key))
    scores = scores + (0 if terms.bias is None else to_numpy(terms.bias))
    mask = terms.attention_mask
    scores = scores if mask is None else np.where(to_numpy(mask), scores, -1e9)
    assert_close(np.maximum(scores, -9e8), np.maximum(expected, -9e8))
    # Padding alone is a row.
    has_columns = "features" in TERMS[name] or (name == "bias and padding" and not masks_padding)
    assert (query.shape[-1] > KEY_DIM) == (columns and has_columns)


@any_backend
@pytest.mark.parametrize(
    "scale, features", [(0.3, 1.0), (1e-4, 1.0), (0.3, 3e4)], ids=["plain", "scale", "features"]
)
def test_columns_in_float16(rng, scale, features):
    """The features divided by the scale may exceed the largest number of float16."""
    query, key = (ops.cast(x, "float16") for x in make_heads(rng))
    value = ops.cast(normal(rng, *key.shape), "float16")
    pair = (features * ops.ones((1, QUERIES, 1, 1)), normal(rng, 1, KEYS, 1, 1) / features)
    terms = ScoreTerms(features=(pair,), padding_mask=ops.convert_to_tensor(VALID))
    plans = (AttentionPlan("scores", columns=columns) for columns in (True, False))
    prepared = [prepare(terms, plan, query, key).replace(scale=scale) for plan in plans]
    columns, tensor = (attend(query, key, value, terms)[0] for terms in prepared)
    assert_close(columns, tensor, 1e-2)


@any_backend
@pytest.mark.parametrize("scale, size, valid", [(300.0, 100.0, True), (0.3, 1.0, False)])
def test_scores_in_float16_are_finite(rng, scale, size, valid):
    """Also of large queries, and of queries that may attend to no key."""
    query, key = (ops.cast(size * x, "float16") for x in make_heads(rng))
    mask = ops.convert_to_tensor(VALID & valid)
    pair = (ops.ones((1, QUERIES, 1, 1)), normal(rng, 1, KEYS, 1, 1))
    terms = ScoreTerms(features=(pair,), padding_mask=mask)
    for columns in (True, False):
        plan = AttentionPlan("scores", columns=columns)
        prepared = prepare(terms, plan, query, key).replace(scale=scale)
        output = attend(query, key, key, prepared)[0]
        assert np.all(np.isfinite(to_numpy(output)))
