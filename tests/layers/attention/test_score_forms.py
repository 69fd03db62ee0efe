"""Score terms in every form add up to the sum of the terms."""

import numpy as np
import pytest
from keras import ops

from keras_diet.layers import ScoreTerms
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.prepared_terms import lower_columns, lower_scores, prepare
from tests.helpers import assert_close, to_numpy
from tests.layers.attention.variants import BATCH, KEYS, NUM_HEADS, QUERIES, VALID

KEY_DIM = 11
pytestmark = pytest.mark.any_backend


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
