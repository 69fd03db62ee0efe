"""BERT's rule for masks: invariants of any sequences, and the distributions."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.pretraining import mask_tokens

VOCABULARY_SIZE = 31
SPECIAL = [0, 2, 3, 4]
PAD, CLS, SEP, MASK = SPECIAL
pytestmark = pytest.mark.any_backend


def mask(token_ids, seed=0, **kwargs):
    arguments = {
        "vocabulary_size": VOCABULARY_SIZE,
        "mask_token_id": MASK,
        "unselectable_token_ids": SPECIAL,
        **kwargs,
    }
    return mask_tokens(token_ids, np.random.default_rng(seed), **arguments)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    rate=st.sampled_from([0.1, 0.15, 0.25, 0.35, 0.5, 1.0]),
    cap=st.sampled_from([None, 1, 3, 40]),
    rates=st.sampled_from([(1.0, 0.0), (0.0, 0.0), (0.0, 1.0), (0.3, 0.4)]),
)
def test_invariants(seed, rate, cap, rates):
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 23))
    unselectable = rng.choice(17, rng.integers(9), replace=False).tolist()
    pad, mask_id = rng.integers(17, size=2).tolist()
    # Some sequences hold no token that can be selected.
    tokens = rng.choice(rng.permutation(17)[: rng.integers(1, 17)], (2, 5, length)).astype("uint16")
    before = tokens.copy()
    features, labels, weight = mask(
        tokens,
        seed,
        vocabulary_size=17,
        mask_token_id=mask_id,
        unselectable_token_ids=unselectable,
        pad_token_id=pad,
        mask_selection_rate=rate,
        mask_selection_length=cap,
        mask_token_rate=rates[0],
        random_token_rate=rates[1],
    )
    np.testing.assert_array_equal(tokens, before)
    # Padding is what no other token follows.
    is_token = [[any(row[i:] != pad) for i in range(length)] for row in tokens.reshape(10, -1)]
    assert features["padding_mask"].reshape(10, -1).tolist() == is_token
    np.testing.assert_array_equal(features["segment_ids"], np.zeros(tokens.shape))
    size = int(np.ceil(rate * length)) if cap is None else cap
    positions = features["mask_positions"]
    dtypes = {name: array.dtype for name, array in features.items()}
    assert dtypes.pop("padding_mask") == "bool"
    assert dtypes == dict.fromkeys(("token_ids", "segment_ids", "mask_positions"), "int32")
    assert (labels.dtype, weight.dtype) == ("int32", "float32")
    assert labels.shape == weight.shape == positions.shape == (2, 5, size)
    selectable = set(range(17)) - {*unselectable, pad}
    for row in np.ndindex(2, 5):
        available = sum(token in selectable for token in tokens[row].tolist())
        count = min(max(1, round(rate * available)), size, available)
        assert weight[row].tolist() == [1] * count + [0] * (size - count)
        chosen = positions[row][:count].tolist()
        assert chosen == sorted(set(chosen))
        assert labels[row].tolist() == [*tokens[row][chosen].tolist(), *[0] * (size - count)]
        assert not positions[row][count:].any()
        assert set(labels[row][:count].tolist()) <= selectable
        new = features["token_ids"][row]
        others = np.setdiff1d(np.arange(length), chosen)
        np.testing.assert_array_equal(new[others], tokens[row][others])
        for old, token in zip(tokens[row][chosen].tolist(), new[chosen].tolist(), strict=True):
            allowed = {(1.0, 0.0): {mask_id}, (0.0, 0.0): {old}, (0.0, 1.0): selectable}
            assert token in allowed.get(rates, {mask_id, old, *selectable})


def test_one_sequence_is_a_batch_of_one():
    tokens = np.random.default_rng(3).integers(0, VOCABULARY_SIZE, 29)
    one, many = mask(tokens), mask(tokens[np.newaxis])
    keras.tree.map_structure(lambda a, b: np.testing.assert_array_equal(a, b[0]), one, many)


def test_eighty_ten_ten():
    tokens = np.full((4000, 100), 5)
    features, _, weight = mask(tokens)
    new = np.take_along_axis(features["token_ids"], features["mask_positions"], 1)
    assert (weight == 1).all()
    assert new.shape == (4000, 15)
    # Standard errors are below 0.0017. One random token in 27 is 5 again.
    np.testing.assert_allclose((new == MASK).mean(), 0.8, atol=0.007)
    np.testing.assert_allclose((new == 5).mean(), 0.1 + 0.1 / 27, atol=0.006)
    np.testing.assert_allclose(np.isin(new, [MASK, 5], invert=True).mean(), 2.6 / 27, atol=0.006)
    # Special tokens are not drawn.
    assert set(np.unique(new)) == set(range(VOCABULARY_SIZE)) - set(SPECIAL) | {MASK}


def test_selection_is_uniform():
    row = [CLS, *np.random.default_rng(0).integers(5, VOCABULARY_SIZE, 20), SEP, PAD, PAD, PAD]
    tokens = np.tile(row, (20_000, 1))
    features, _, weight = mask(tokens, mask_selection_rate=0.25)
    assert (weight.sum(axis=1) == 5).all()
    chosen = np.zeros(tokens.shape)
    used = weight == 1
    rows = np.broadcast_to(np.arange(20_000)[:, np.newaxis], used.shape)
    chosen[rows[used], features["mask_positions"][used]] = 1
    chosen = chosen[:, 1:21]
    np.testing.assert_allclose(chosen.mean(axis=0), 0.25, atol=0.016)
    # Without replacement, each pair is chosen with probability 5/20 * 4/19.
    pairs = chosen.T @ chosen / 20_000
    np.testing.assert_allclose(pairs[~np.eye(20, dtype=bool)], 1 / 19, atol=0.009)
