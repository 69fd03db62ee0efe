"""Terms as functions of indices, evaluated for all indices, and their gradients."""

import numpy as np
import pytest
from keras import ops

from keras_diet.layers import ScoreTerms
from keras_diet.layers.attention.index_form import mask_of_indices, score_of_indices
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
BY_DISTANCE = [
    name for name, spec in BIAS_LAYERS.items() if spec.distance_only and not spec.reads_content
]


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
    """The scores of a form, `(1, H, T, S)`."""
    terms = prepared(*lengths, bias=bias, start_index=start)
    assert terms.bias is None, "The bias must be in one form only."
    return score_of_indices(terms.by_distance, lengths[0])(*indices(*lengths))


@pytest.mark.parametrize("name", BY_DISTANCE)
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
        assert has_scores_by_distance(spec.make()) == (name in BY_DISTANCE), name


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
@pytest.mark.parametrize("start", [0, START])
def test_masks(names, start):
    """Queries may begin at a later position, as in a block of queries."""
    terms, expected = {}, np.ones((BATCH, NUM_HEADS, KEYS, KEYS), "bool")
    for name in names:
        term, mask = MASKS[name]
        terms, expected = {**terms, **term}, expected & mask
    length = KEYS - start
    mask = mask_of_indices(prepared(length, KEYS, start_index=start, **terms))
    found = np.broadcast_to(
        to_numpy(mask(*indices(length, KEYS))), (BATCH, NUM_HEADS, length, KEYS)
    )
    np.testing.assert_array_equal(found, expected[:, :, start:])


def test_features_are_columns_beside_it(rng):
    bias, length, scale = make_bias("t5", rng), KEYS, 0.3
    query, key = (rng.normal(size=(BATCH, KEYS, NUM_HEADS, 4)).astype("float32") for _ in "qk")
    features = rng.normal(size=(2, BATCH, KEYS, 1, 3)).astype("float32")
    terms = prepared(length, length, bias=bias, features=(tuple(features),), padding_mask=PADDING)
    columns = lower_columns(*map(ops.convert_to_tensor, (query, key)), terms.replace(scale=scale))
    assert columns[0].shape[-1] == 4 + 3, "Padding is in the mask, not in a column."
    products = scale * ops.einsum("bihd,bjhd->bhij", *columns[:2])
    found = products + score_of_indices(columns[2].by_distance, length)(*indices(length, length))
    expected = scale * np.einsum("bihd,bjhd->bhij", query, key)
    expected = expected + np.einsum("bihd,bjhd->bhij", *features) + expected_scores(bias, length)
    assert_close(found, expected)


@pytest.mark.any_backend
def test_without_masks_there_is_no_function():
    assert mask_of_indices(prepared(KEYS, KEYS)) is None
