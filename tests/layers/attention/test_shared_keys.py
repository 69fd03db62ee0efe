"""Attention in which several queries of the batch share their keys."""

import numpy as np
import pytest
from keras import ops

from keras_diet.layers import AttentionHook, BiasedMultiHeadAttention, ScoreTerms
from tests.helpers import assert_close, randomize

SOURCES, COPIES, QUERIES, KEYS, HEADS, DIM = 2, 3, 4, 5, 2, 6
TARGETS = SOURCES * COPIES
PADDING = np.array([[True] * 5, [True, False, True, True, False]])


def numbers(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def booleans(rng, *shape):
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    return mask


# Terms for `TARGETS` rows of queries. `numbers` and `booleans` get the generator first.
TERMS = {
    "none": lambda rng: {},
    "bias": lambda rng: {"bias": numbers(rng, 1, HEADS, QUERIES, KEYS)},
    "bias_of_targets": lambda rng: {"bias": numbers(rng, TARGETS, 1, QUERIES, KEYS)},
    "row_of_targets": lambda rng: {"bias": numbers(rng, TARGETS, HEADS, 1, KEYS)},
    "bias_without_batch": lambda rng: {"bias": numbers(rng, QUERIES, KEYS)},
    "features": lambda rng: {
        "features": ((numbers(rng, 1, QUERIES, 1, 3), numbers(rng, 1, KEYS, HEADS, 3)),)
    },
    "features_of_targets": lambda rng: {
        "features": ((numbers(rng, TARGETS, QUERIES, HEADS, 3), numbers(rng, 1, KEYS, 1, 3)),)
    },
    "mask": lambda rng: {"attention_mask": booleans(rng, QUERIES, KEYS)},
    "mask_of_targets": lambda rng: {"attention_mask": booleans(rng, TARGETS, QUERIES, KEYS)},
    "mask_of_heads": lambda rng: {"attention_mask": booleans(rng, 1, HEADS, QUERIES, KEYS)},
    "causal": lambda rng: {"is_causal": True, "start_index": 1},
    "window": lambda rng: {"sliding_window": 2, "start_index": 1},
}
HOOKS = {
    "none": None,
    "heads": AttentionHook(heads=lambda query, key, start: (query * 1.5, key - 0.5)),
    # A hook gets the shared keys. Its scores have a row for each row of queries.
    "bias": AttentionHook(
        bias=lambda query, key, start: (
            ops.swapaxes(query[..., :1], 1, 2) * (start + ops.arange(key.shape[1], dtype="float32"))
        )
    ),
    "scores": AttentionHook(scores=lambda scores: 2.0 * ops.tanh(scores / 2.0)),
    "output": AttentionHook(
        # The first query has another position than the others.
        output=lambda output, probabilities, start: (
            output * (1.0 + start + ops.arange(output.shape[1], dtype="float32")[:, None, None])
        )
    ),
}


def check(rng, terms, hook=None, length=QUERIES, **options):
    attention = BiasedMultiHeadAttention(HEADS, key_dim=3, value_dim=4)
    query, source = numbers(rng, TARGETS, length, DIM), numbers(rng, SOURCES, KEYS, DIM)
    attention.build(query.shape, source.shape)
    randomize(attention, rng)
    shared = attention.project_keys(ops.convert_to_tensor(source))
    repeated = tuple(ops.repeat(x, COPIES, axis=0) for x in shared)
    options |= {"attention_hook": hook}
    of_all = ScoreTerms(padding_mask=ops.convert_to_tensor(np.repeat(PADDING, COPIES, 0)), **terms)
    of_sources = of_all.replace(padding_mask=ops.convert_to_tensor(PADDING))
    expected = attention(query, None, projected_keys=repeated, score_terms=of_all, **options)
    found = attention(query, None, projected_keys=shared, score_terms=of_sources, **options)
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("returns_scores", [False, True])
@pytest.mark.parametrize("name", TERMS)
def test_terms(rng, name, returns_scores):
    terms = {
        key: ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value
        for key, value in TERMS[name](rng).items()
    }
    check(rng, terms, return_attention_scores=returns_scores)


@pytest.mark.parametrize("length", [1, QUERIES])
@pytest.mark.parametrize("name", HOOKS)
def test_hooks(rng, name, length):
    check(rng, {"start_index": 2}, HOOKS[name], length)


def test_blocks(rng):
    bias = ops.convert_to_tensor(numbers(rng, 1, HEADS, QUERIES, KEYS))
    check(rng, {"bias": bias, "is_causal": True}, block_size=3)


def test_one_row_of_keys_is_for_all_queries(rng):
    attention = BiasedMultiHeadAttention(HEADS, key_dim=3)
    query, source = numbers(rng, TARGETS, QUERIES, DIM), numbers(rng, 1, KEYS, DIM)
    expected = attention(query, np.repeat(source, TARGETS, axis=0))
    keys = attention.project_keys(ops.convert_to_tensor(source))
    assert_close(attention(query, None, projected_keys=keys), expected)


@pytest.mark.any_backend
def test_padding_of_another_number_of_rows_is_refused(rng):
    attention = BiasedMultiHeadAttention(HEADS, key_dim=3)
    query, source = numbers(rng, TARGETS, QUERIES, DIM), numbers(rng, SOURCES, KEYS, DIM)
    attention.build(query.shape, source.shape)
    keys = attention.project_keys(ops.convert_to_tensor(source))
    padding = ops.ones((TARGETS, KEYS), "bool")
    with pytest.raises(ValueError, match=r"`padding_mask` must have the shape.*\(2, 2, 4, 5\)"):
        attention(query, None, projected_keys=keys, score_terms=ScoreTerms(padding_mask=padding))
