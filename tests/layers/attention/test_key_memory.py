"""Keys in memory, and attention in which several queries of the batch share their keys."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention, ScoreTerms
from keras_diet.layers.attention import dot_product
from tests.helpers import assert_close, once, randomize

SOURCES, COPIES, QUERIES, KEYS, HEADS, DIM = 2, 3, 4, 5, 2, 6
TARGETS = SOURCES * COPIES
PADDING = np.array([[True] * 5, [True, False, True, True, False]])


def numbers(rng, *shape):
    return ops.convert_to_tensor(rng.normal(size=shape).astype("float32"))


def mask_of_heads(rng):
    mask = rng.random((1, HEADS, QUERIES, KEYS)) < 0.6
    mask[..., 0] = True
    return ops.convert_to_tensor(mask)


# Terms for `TARGETS` rows of queries.
TERMS = {
    "none": lambda rng: {},
    "bias_of_targets": lambda rng: {"bias": numbers(rng, TARGETS, 1, QUERIES, KEYS)},
    "row_of_targets": lambda rng: {"bias": numbers(rng, TARGETS, HEADS, 1, KEYS)},
    "bias_without_batch": lambda rng: {"bias": numbers(rng, QUERIES, KEYS)},
    "features": lambda rng: {
        "features": ((numbers(rng, 1, QUERIES, 1, 3), numbers(rng, 1, KEYS, HEADS, 3)),)
    },
    "features_of_targets": lambda rng: {
        "features": ((numbers(rng, TARGETS, QUERIES, HEADS, 3), numbers(rng, 1, KEYS, 1, 3)),)
    },
    "mask_of_heads": lambda rng: {"attention_mask": mask_of_heads(rng)},
    "window": lambda rng: {"is_causal": True, "sliding_window": 2, "start_index": 1},
    # Without padding, a kernel may apply this mask itself.
    "causal_from_the_start": lambda rng: {"is_causal": True},
}


def check(rng, terms, has_padding=True, **options):
    """Compare with repeated keys, and return whether attention repeats the keys itself."""
    attention = BiasedMultiHeadAttention(HEADS, key_dim=3, value_dim=4)
    query, source = numbers(rng, TARGETS, QUERIES, DIM), numbers(rng, SOURCES, KEYS, DIM)
    attention.build(query.shape, source.shape)
    randomize(attention, rng)
    shared = attention.project_keys(source)
    repeated = tuple(ops.repeat(x, COPIES, axis=0) for x in shared)
    if has_padding:
        padding = ops.convert_to_tensor(np.repeat(PADDING, COPIES, axis=0))
        terms = {"padding_mask": padding, **terms}
    options |= {"score_terms": ScoreTerms(**terms)}
    expected = attention(query, None, projected_keys=repeated, **options)
    calls, repeat_rows = [], dot_product.repeat_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dot_product, "repeat_rows", lambda *x: calls.append(x) or repeat_rows(*x))
        found = attention(query, None, projected_keys=shared, **options)
    keras.tree.map_structure(assert_close, found, expected)
    return bool(calls)


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
    assert not check(rng, TERMS[name](rng), **options)


@pytest.mark.any_backend
def test_columns_and_blocks_repeat_the_keys(rng):
    bias = numbers(rng, 1, HEADS, QUERIES, KEYS)
    assert check(rng, {"bias": bias, "is_causal": True}, block_size=3)
    # More features than are worth a sum of outer products.
    features = numbers(rng, 1, QUERIES, 1, 9), numbers(rng, TARGETS, KEYS, HEADS, 9)
    assert check(rng, {"features": (features,)})
