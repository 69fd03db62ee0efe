"""Terms as functions of indices, evaluated for all indices, and their gradients."""

import numpy as np
import pytest
from keras import ops

from keras_diet.layers import ScoreTerms
from keras_diet.layers.attention.flex_attention import mask_of_indices, score_of_indices
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.prepared_terms import lower_columns, prepare
from keras_diet.layers.position.position_bias import has_scores_by_distance
from keras_diet.layers.transformer.cached_positions import CachedPositionBias
from tests import reference
from tests.helpers import assert_close, gradients, to_numpy, weighted_sum
from tests.layers.bias_layers import (
    BIAS_LAYERS,
    NUM_HEADS,
    expected_scores,
    make_bias,
    weights_of,
)

# The program is not called. Its terms stay in parts on all backends.
PLAN = AttentionPlan("pallas", bias="distances", masks_padding=True, alignment=1)
BATCH, QUERIES, KEYS, START = 2, 5, 7, 2
# Why a bias layer has no such form.
EXCEPTIONS = {
    "absolute": "It has features, which are columns of the queries and keys.",
    "absolute_of_projected_keys": "It has features.",
    "fire": "It divides the distance by the larger position, so its scores are a full matrix.",
    "query_relative": "Its scores depend on the query's content.",
    "query_relative_causal": "Its scores depend on the query's content.",
    "forgetting": "Its scores depend on the content; it has features.",
    "forgetting_both": "Its scores depend on the content.",
    "cached": "It has the scores of pairs, of any bias.",
    "custom": "It does not say that its scores depend on the distance.",
}
WITH_FORM = [name for name in BIAS_LAYERS if name not in EXCEPTIONS]


def indices(query_length, key_length):
    """The indices of examples, heads, queries and keys, each along its own axis."""
    sizes = (BATCH, NUM_HEADS, query_length, key_length)
    return [
        ops.reshape(
            ops.arange(size, dtype="int32"), [-1 if axis == own else 1 for axis in range(4)]
        )
        for own, size in enumerate(sizes)
    ]


def prepared(query_length, key_length, **terms):
    lengths = (query_length, key_length)
    return prepare(ScoreTerms(**terms), PLAN, *(np.zeros((BATCH, each, 3)) for each in lengths))


def scores_of_form(bias, lengths, start):
    """The scores of a form, `(1, H, T, S)`: by distance, features, or their sum."""
    terms = prepared(*lengths, bias=bias, start_index=start)
    assert terms.bias is None, "The bias must be in one form only."
    scores = [ops.einsum("bthr,bshr->bhts", *pair) for pair in terms.features]
    if terms.by_distance is not None:
        scores.append(score_of_indices(terms.by_distance, lengths[0])(*indices(*lengths)))
    return ops.broadcast_to(sum(scores), (1, NUM_HEADS, *lengths))


def test_each_bias_by_distance_has_the_form():
    by_distance = {
        name for name, spec in BIAS_LAYERS.items() if spec.distance_only and not spec.reads_content
    }
    assert set(WITH_FORM) - by_distance == {"tupe_abs", "tupe_rel", "tupe_tied"}
    assert by_distance <= set(WITH_FORM)


@pytest.mark.parametrize("name", WITH_FORM)
@pytest.mark.parametrize("share_heads", [False, True], ids=["own heads", "shared heads"])
def test_scores_and_gradients_are_those_of_the_paper(rng, name, share_heads):
    if share_heads and not BIAS_LAYERS[name].takes("share_heads"):
        pytest.skip("has no parameters to share")
    bias = make_bias(name, rng, **({"share_heads": True} if share_heads else {}))
    assert has_scores_by_distance(bias)
    for lengths in ((QUERIES, KEYS), (KEYS, QUERIES), (1, KEYS), (KEYS, 1)):
        scores = scores_of_form(bias, lengths, START)
        assert_close(scores, expected_scores(bias, *lengths, START), 2e-5)
    weights = rng.normal(size=(1, NUM_HEADS, QUERIES, KEYS)).astype("float32")
    found = gradients(
        lambda: weighted_sum(scores_of_form(bias, (QUERIES, KEYS), START), weights),
        bias.trainable_variables,
    )
    for variable, gradient in zip(bias.trainable_variables, found, strict=True):
        for index in rng.integers(0, variable.shape, size=(3, len(variable.shape))):

            def total(value, name=variable.name):
                values = {**weights_of(bias), name: value}
                return np.sum(weights * expected_scores(bias, QUERIES, KEYS, START, values))

            value = weights_of(bias)[variable.name]
            slope = reference.finite_difference(total, value, tuple(index))
            assert_close(gradient[tuple(index)], np.float32(slope), 1e-3)


@pytest.mark.parametrize("lengths", [(6, 6), (3, 6), (6, 3)], ids=str)
def test_cached_scores_have_the_form(rng, lengths):
    relative = make_bias("relative", rng, max_length=6)
    cached = CachedPositionBias.like(relative)
    cached.build()
    cached.assign_scores_of(relative)
    assert_close(scores_of_form(cached, lengths, 0), expected_scores(relative, *lengths), 1e-6)


class OwnCall(BIAS_LAYERS["relative"].layer):
    def call(self, query, key=None, start_index=0):
        return 2 * super().call(query, key, start_index)


@pytest.mark.any_backend
def test_other_layers_do_not_have_it(rng):
    assert not has_scores_by_distance(None)
    assert not has_scores_by_distance(OwnCall(NUM_HEADS, 11)), "its call returns other scores"
    for name, spec in BIAS_LAYERS.items():
        assert has_scores_by_distance(spec.make()) == (name in WITH_FORM), name


PADDING = np.array([[1, 1, 1, 1, 0, 0, 1], [0, 1, 1, 1, 1, 1, 1]], "bool")
DOCUMENTS = np.array([[4, 4, 4, 7, 7, 2, 2], [1, 1, 1, 1, 1, 9, 9]], "int32")
PAIRS = np.arange(KEYS)
MASKS = {
    "padding": ({"padding_mask": PADDING}, PADDING[:, None, None, :]),
    "causal": ({"is_causal": True}, PAIRS[:, None] >= PAIRS),
    "window": ({"sliding_window": 3}, reference.window_mask(KEYS, 3)),
    "documents": (
        {"document_ids": DOCUMENTS},
        (DOCUMENTS[:, :, None] == DOCUMENTS[:, None, :])[:, None],
    ),
}


@pytest.mark.parametrize(
    "names",
    [(name,) for name in MASKS] + [("causal", "window"), tuple(MASKS)],
    ids=" and ".join,
)
def test_masks(names):
    terms, expected = {}, np.ones((BATCH, NUM_HEADS, KEYS, KEYS), "bool")
    for name in names:
        term, mask = MASKS[name]
        terms, expected = {**terms, **term}, expected & mask
    mask = mask_of_indices(ScoreTerms(**terms), BATCH, (KEYS, KEYS))
    found = np.broadcast_to(to_numpy(mask(*indices(KEYS, KEYS))), expected.shape)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("lengths", [(QUERIES, KEYS), (KEYS, QUERIES)], ids=str)
def test_causal_masks_of_other_lengths(lengths):
    mask = mask_of_indices(ScoreTerms(is_causal=True), BATCH, lengths)
    found = to_numpy(mask(*indices(*lengths)))
    expected = np.arange(lengths[0])[:, None] >= np.arange(lengths[1])
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


@pytest.mark.parametrize("name", ["t5", "kerple_log", "tupe_rel"])
def test_features_are_columns_beside_it(rng, name):
    """DIET-ABS and a relative bias in one `ScoreTerms`."""
    bias, absolute = make_bias(name, rng), make_bias("absolute", rng)
    length, scale = KEYS, 0.3
    states = np.zeros((BATCH, length, 3))
    query, key = (rng.normal(size=(BATCH, KEYS, NUM_HEADS, 4)).astype("float32") for _ in "qk")
    features = absolute.features(states)
    terms = prepared(length, length, bias=bias, features=(features,), padding_mask=PADDING)
    assert len(terms.features) == (2 if name == "tupe_rel" else 1)
    columns = lower_columns(*map(ops.convert_to_tensor, (query, key)), terms.replace(scale=scale))
    sizes = 4 + sum(pair[0].shape[-1] for pair in terms.features)
    assert columns[0].shape[-1] == sizes, "Padding is in the mask, not in a column."
    products = scale * ops.einsum("bihd,bjhd->bhij", *columns[:2])
    found = products + score_of_indices(columns[2].by_distance, length)(*indices(length, length))
    expected = scale * np.einsum("bihd,bjhd->bhij", query, key)
    expected = expected + expected_scores(absolute, length) + expected_scores(bias, length)
    assert_close(found, expected, 2e-5)


@pytest.mark.any_backend
def test_without_masks_there_is_no_function():
    assert mask_of_indices(ScoreTerms(), BATCH, (KEYS, KEYS)) is None
