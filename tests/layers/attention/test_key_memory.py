"""Keys in memory, and attention in which several queries of the batch share their keys."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend
from keras_diet.layers import AttentionHook, BiasedMultiHeadAttention, ScoreTerms
from tests.helpers import assert_close, once, randomize

SOURCES, COPIES, QUERIES, KEYS, HEADS, DIM = 2, 3, 4, 5, 2, 6
TARGETS = SOURCES * COPIES
PADDING = np.array([[True] * 5, [True, False, True, True, False]])


def numbers(rng, *shape):
    return ops.convert_to_tensor(rng.normal(size=shape).astype("float32"))


def booleans(rng, *shape):
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    return ops.convert_to_tensor(mask)


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
    # Without padding, a kernel may apply this mask itself.
    "causal_from_the_start": lambda rng: {"is_causal": True},
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


def watch_keys(monkeypatch):
    """Rows of keys and values in the products and in the kernel."""
    rows = []

    def matmul(left, right):
        if len(right.shape) == 4:
            rows.append(right.shape[0])
        return original_matmul(left, right)

    def fused_attention(query, key, value, **options):
        rows.extend((key.shape[0], value.shape[0]))
        return original_kernel(query, key, value, **options)

    original_matmul, original_kernel = ops.matmul, _backend.fused_attention
    monkeypatch.setattr(ops, "matmul", matmul)
    monkeypatch.setattr(_backend, "fused_attention", fused_attention)
    return rows


def check(rng, terms, hook=None, length=QUERIES, has_padding=True, **options):
    """Compare with repeated keys, and return the rows of keys in the products."""
    attention = BiasedMultiHeadAttention(HEADS, key_dim=3, value_dim=4)
    query, source = numbers(rng, TARGETS, length, DIM), numbers(rng, SOURCES, KEYS, DIM)
    attention.build(query.shape, source.shape)
    randomize(attention, rng)
    shared = attention.project_keys(source)
    repeated = tuple(ops.repeat(x, COPIES, axis=0) for x in shared)
    if has_padding:
        padding = ops.convert_to_tensor(np.repeat(PADDING, COPIES, axis=0))
        terms = {"padding_mask": padding, **terms}
    options |= {"attention_hook": hook, "score_terms": ScoreTerms(**terms)}
    expected = attention(query, None, projected_keys=repeated, **options)
    with pytest.MonkeyPatch.context() as patch:
        rows = watch_keys(patch)
        found = attention(query, None, projected_keys=shared, **options)
    keras.tree.map_structure(assert_close, found, expected)
    return set(rows)


@pytest.mark.parametrize(
    "name, returns_scores",
    [
        ("bias_of_targets", False),
        ("features_of_targets", True),
        *once(*((name, returns_scores) for name in TERMS for returns_scores in (False, True))),
    ],
)
def test_terms(rng, name, returns_scores):
    options = {"return_attention_scores": returns_scores, "has_padding": not returns_scores}
    assert check(rng, TERMS[name](rng), **options) == {SOURCES}


@pytest.mark.any_backend
@pytest.mark.parametrize("length", [1, QUERIES])
@pytest.mark.parametrize("name", HOOKS)
def test_hooks(rng, name, length):
    assert check(rng, {"start_index": 2}, HOOKS[name], length) == {SOURCES}


@pytest.mark.any_backend
def test_columns_and_blocks_repeat_the_keys(rng):
    bias = numbers(rng, 1, HEADS, QUERIES, KEYS)
    assert check(rng, {"bias": bias, "is_causal": True}, block_size=3) == {TARGETS}
    # More features than are worth a sum of outer products.
    features = numbers(rng, 1, QUERIES, 1, 9), numbers(rng, TARGETS, KEYS, HEADS, 9)
    assert check(rng, {"features": (features,)}) == {TARGETS}
