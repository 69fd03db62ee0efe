"""Score terms in every form add up to the sum of the terms."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers.attention.lowering import (
    append_columns,
    concatenate_features,
    lower_columns,
    lower_scores,
    lower_shared_terms,
    padding_features,
    padding_row,
    with_four_axes,
    with_score_axes,
)
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import ScoreTerms, mask_of_positions, merge_masks
from keras_diet.layers.position.absolute_position_bias import AbsolutePositionBias
from tests.helpers import assert_close, randomize, to_numpy

BATCH, QUERIES, KEYS, NUM_HEADS, KEY_DIM = 2, 5, 7, 3, 11
VALID = np.array([[True] * 4 + [False] * 3, [True] * 7])
# Batch and heads of the features of queries and of keys, and their rank.
PAIRS = [
    ((1, NUM_HEADS), (1, NUM_HEADS), 5),
    ((BATCH, 1), (BATCH, NUM_HEADS), 2),
    ((1, 1), (BATCH, 1), 1),
    ((1, 1), (1, 1), 3),
]
DTYPES = pytest.mark.parametrize(
    "dtype, masked", [("float32", -1e9), ("bfloat16", -1e9), ("float16", -3e4)]
)


def normal(rng, *shape):
    return ops.convert_to_tensor(rng.normal(size=shape).astype("float32"))


def make_pair(rng, query_sizes, key_sizes, rank):
    sizes = ((query_sizes, QUERIES), (key_sizes, KEYS))
    return tuple(normal(rng, size[0], length, size[1], rank) for size, length in sizes)


def make_heads(rng):
    return (normal(rng, BATCH, length, NUM_HEADS, KEY_DIM) for length in (QUERIES, KEYS))


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


@DTYPES
def test_padding_features(dtype, masked):
    features = padding_features(ops.convert_to_tensor(VALID), dtype)
    assert [tuple(tensor.shape) for tensor in features] == [(1, 1, 1, 1), (BATCH, 7, 1, 1)]
    for tensor in features:
        assert keras.backend.standardize_dtype(tensor.dtype) == dtype
    expected = np.broadcast_to(np.where(VALID, 0.0, masked)[:, None, None], (BATCH, 1, 1, 7))
    np.testing.assert_allclose(products(features), expected, rtol=1e-2)


@DTYPES
def test_padding_row(dtype, masked):
    row = padding_row(ops.convert_to_tensor(VALID), dtype)
    assert keras.backend.standardize_dtype(row.dtype) == dtype
    expected = np.where(VALID, 0.0, masked)[:, None, None].astype("float32")
    np.testing.assert_allclose(to_numpy(row), expected, rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_padding_has_no_probability(rng, dtype):
    scores = products(padding_features(ops.convert_to_tensor(VALID), dtype)).astype("float32")
    probabilities = to_numpy(ops.softmax(scores + 50 * rng.normal(size=scores.shape)))
    assert np.all(probabilities.swapaxes(1, 3)[~VALID] == 0)
    assert_close(probabilities.sum(axis=-1), np.ones((BATCH, 1, 1)))
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (0, 1, 2), (3, 2, 0), (3, 3)], ids=str)
def test_products_of_concatenated_features_are_sums(rng, numbers):
    pairs = [make_pair(rng, *PAIRS[number]) for number in numbers]
    query, key = concatenate_features(*pairs)
    assert query.shape[-1] == key.shape[-1] == sum(PAIRS[number][2] for number in numbers)
    assert_close(products((query, key)), sum(products(pair) for pair in pairs))


def test_a_single_pair_is_the_features(rng):
    pair = make_pair(rng, *PAIRS[1])
    assert concatenate_features(pair) is pair


@pytest.mark.parametrize("number", range(4))
def test_products_with_columns_are_sums(rng, number):
    heads, pair = tuple(make_heads(rng)), make_pair(rng, *PAIRS[number])
    appended = [append_columns(*tensors) for tensors in zip(heads, pair, strict=True)]
    for tensor, length in zip(appended, (QUERIES, KEYS), strict=True):
        # The next multiple of 8.
        assert tuple(tensor.shape) == (BATCH, length, NUM_HEADS, 16)
    assert_close(products(appended), products(heads) + products(pair))


@pytest.mark.parametrize("alignment, size", [(1, 13), (4, 16)])
def test_the_plan_says_how_heads_are_aligned(rng, alignment, size):
    query, key, _ = (normal(rng, BATCH, 3, NUM_HEADS, 11) for _ in range(3))
    features = normal(rng, BATCH, 3, NUM_HEADS, 2), normal(rng, BATCH, 3, 1, 2)
    terms, plan = ScoreTerms(features=(features,)), AttentionPlan("scores", alignment=alignment)
    lowered = lower_columns(query, key, 0.5, terms, plan)
    assert lowered[0].shape[-1] == lowered[1].shape[-1] == size
    assert_close(products(lowered[:2]), 0.5 * products((query, key)) + products(features))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_columns_get_the_dtype_of_the_heads(rng, dtype):
    query, _ = make_pair(rng, *PAIRS[0])
    appended = append_columns(ops.cast(normal(rng, BATCH, QUERIES, NUM_HEADS, 11), dtype), query)
    assert keras.backend.standardize_dtype(appended.dtype) == dtype
    assert_close(to_numpy(appended)[0, ..., 11:16], to_numpy(query)[0], 1e-2)


MASK = np.random.default_rng(5).random((BATCH, QUERIES, KEYS)) < 0.7
TERMS = {
    "bias": ("bias",),
    "padding": ("padding",),
    "bias and padding": ("bias", "padding"),
    "features": ("features",),
    "features and padding": ("features", "padding"),
    "mask": ("mask",),
    "all": ("bias", "features", "padding", "mask", "causal", "window"),
}


def make_terms(rng, names):
    """Terms of these names; their sum; and the mask of what is allowed besides padding."""
    bias = normal(rng, NUM_HEADS, 1, KEYS) if "padding" not in names else normal(rng, QUERIES, KEYS)
    pairs = (make_pair(rng, *PAIRS[0]), make_pair(rng, *PAIRS[1]))
    terms = {
        "bias": {"bias": bias},
        "features": {"features": pairs},
        "padding": {"padding_mask": ops.convert_to_tensor(VALID)},
        "mask": {"attention_mask": ops.convert_to_tensor(MASK)},
        "causal": {"is_causal": True, "start_index": 2},
        "window": {"sliding_window": 3},
    }
    total, allowed = 0.0, np.ones((BATCH, 1, QUERIES, KEYS), "bool")
    total = total + (to_numpy(bias) if "bias" in names else 0)
    total = total + (sum(map(products, pairs)) if "features" in names else 0)
    distance = np.arange(2, QUERIES + 2)[:, None] - np.arange(KEYS)
    allowed = allowed & (MASK[:, None] if "mask" in names else True)
    allowed = allowed & (VALID[:, None, None] if "padding" in names else True)
    allowed = allowed & (distance >= 0 if "causal" in names else True)
    allowed = allowed & (np.abs(distance) < 3 if "window" in names else True)
    arguments = {key: value for name in names for key, value in terms[name].items()}
    return ScoreTerms(**arguments), total, allowed


@pytest.mark.parametrize("masks_padding", [False, True])
@pytest.mark.parametrize("low_rank", ["columns", "tensor"])
@pytest.mark.parametrize("program", ["scores", "kernel", "hook"])
@pytest.mark.parametrize("name", TERMS)
def test_every_form_has_the_same_scores(rng, name, program, low_rank, masks_padding):
    query, key = make_heads(rng)
    terms, total, allowed = make_terms(rng, TERMS[name])
    expected = np.where(allowed, 0.3 * products((query, key)) + total, -1e9)
    plan = AttentionPlan(program, low_rank=low_rank, masks_padding=masks_padding)
    terms = lower_shared_terms(terms, plan, query, key, "float32")
    query, key, scale, terms = lower_columns(query, key, 0.3, terms, plan)
    lowered = lower_scores(query, key, scale, terms, plan)
    scores = scale * products((lowered.query, lowered.key))
    scores = scores + (0 if lowered.bias is None else to_numpy(lowered.bias))
    scores = scores if lowered.mask is None else np.where(to_numpy(lowered.mask), scores, -1e9)
    assert_close(np.maximum(scores, -1e8), np.maximum(expected, -1e8))
    has_columns = "features" in TERMS[name]
    if "padding" in TERMS[name] and not masks_padding:
        # Padding alone is a row, unless the program takes no bias.
        has_columns |= "bias" in TERMS[name] or program == "hook"
    assert (lowered.query.shape[-1] > KEY_DIM) == (low_rank == "columns" and has_columns)


def test_padding_is_added_to_a_shared_bias_once(rng):
    """Of a kernel only: other programs add both where they compute scores."""
    query, key = make_heads(rng)
    terms, total, _ = make_terms(rng, ("bias", "padding"))
    plan = AttentionPlan("kernel", low_rank="tensor")
    folded = lower_shared_terms(terms, plan, query, key, "float32")
    assert folded.padding_mask is None
    assert_close(folded.bias, to_numpy(total) + np.where(VALID, 0, -1e9)[:, None, None])
    masked = AttentionPlan("kernel", low_rank="tensor", masks_padding=True)
    for other in (AttentionPlan("scores", low_rank="tensor"), AttentionPlan("kernel"), masked):
        assert lower_shared_terms(terms, other, query, key, "float32") == terms


@pytest.mark.parametrize("form", ["tensor", "features", "rows"])
def test_bias_layer(rng, form):
    query, key = make_heads(rng)
    layer = AbsolutePositionBias(NUM_HEADS, 13, rank=2)
    terms = ScoreTerms(bias=layer, start_index=3)
    terms = lower_shared_terms(terms, AttentionPlan("scores", form), query, key, "float32")
    assert layer.built
    randomize(layer, rng)
    expected = layer(query, key, start_index=3)
    terms = ScoreTerms(bias=layer, start_index=3)
    terms = lower_shared_terms(terms, AttentionPlan("scores", form), query, key, "float32")
    if form == "rows":
        assert terms.bias is layer
    elif form == "features":
        assert terms.bias is None
        assert_close(products(terms.features[0]), expected)
    else:
        assert_close(terms.bias, expected)


@pytest.mark.parametrize(
    "program, terms, is_causal",
    [
        ("kernel", {}, True),
        ("splash", {}, True),
        ("scores", {}, False),
        ("kernel", {"start_index": 2}, False),
        ("kernel", {"sliding_window": 3}, False),
        ("kernel", {"padding_mask": VALID}, False),
        ("kernel", {"attention_mask": MASK}, False),
        ("kernel", {"bias": np.ones((KEYS,), "float32")}, False),
    ],
)
def test_program_applies_the_causal_mask_if_it_is_alone(rng, program, terms, is_causal):
    query, key = make_heads(rng)
    terms = ScoreTerms(is_causal=True, **terms)
    lowered = lower_scores(query, key, 1.0, terms, AttentionPlan(program))
    assert lowered.is_causal == is_causal
    assert (lowered.mask is None) == is_causal


@pytest.mark.parametrize("start", [2, np.array(2, "int32")], ids=["int", "tensor"])
def test_masks_of_positions(start):
    start = start if isinstance(start, int) else ops.convert_to_tensor(start)
    terms = ScoreTerms(is_causal=True, sliding_window=3, start_index=start)
    found = to_numpy(mask_of_positions(terms, QUERIES, KEYS))
    for i, j in np.ndindex(found.shape):
        assert found[i, j] == (0 <= i + 2 - j < 3)
    assert mask_of_positions(ScoreTerms(start_index=2), QUERIES, KEYS) is None


def test_masks_are_merged_as_in_keras():
    query = np.array([[True] * 4 + [False], [True] * 5])
    merged = to_numpy(merge_masks(query, VALID, VALID[::-1], MASK.astype("int32")))
    np.testing.assert_array_equal(
        merged, query[..., None] & VALID[:, None] & VALID[::-1][:, None] & MASK
    )
    assert merge_masks(None, None, None, None) is None


@pytest.mark.parametrize(
    "shape, num_axes, expected",
    [
        ((BATCH, 5, 7), 1, (BATCH, 1, 5, 7)),
        ((5, 7), 1, (1, 1, 5, 7)),
        ((BATCH, 3, 5, 7), 1, (BATCH, 3, 5, 7)),
        # Two axes of queries and of keys.
        ((BATCH, 2, 3, 5, 7), 2, (BATCH, 1, 2, 3, 5, 7)),
    ],
)
def test_axes_of_masks(shape, num_axes, expected):
    mask = with_score_axes(np.ones(shape, "bool"), query_rank=3 + num_axes, num_axes=num_axes)
    assert np.broadcast_shapes(mask.shape, expected) == expected
    assert mask.shape[-2 * num_axes :] == shape[-2 * num_axes :]
    assert tuple(with_four_axes(ops.ones((5, 7))).shape) == (1, 1, 5, 7)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph for any length")
def test_one_graph_for_all_lengths(rng):
    import tensorflow as tf

    shapes = [(1, None, NUM_HEADS, 2), (None, None, 1, 2)]

    @tf.function(input_signature=[tf.TensorSpec(shape) for shape in (*shapes, *shapes)])
    def concatenate(first_query, second_query, first_key, second_key):
        return concatenate_features((first_query, first_key), (second_query, second_key))

    for length in (1, 5):
        sizes = [(1, length, NUM_HEADS, 2), (BATCH, length, 1, 2)] * 2
        tensors = [normal(rng, *shape) for shape in sizes]
        expected = products(tensors[::2]) + products(tensors[1::2])
        assert_close(products(concatenate(*tensors)), expected)
