import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet.pretraining import mask_tokens

VOCABULARY_SIZE = 31
SPECIAL = [0, 2, 3, 4]
PAD, CLS, SEP, MASK = SPECIAL
any_backend = pytest.mark.any_backend


def mask(token_ids, seed=0, **kwargs):
    arguments = {
        "vocabulary_size": VOCABULARY_SIZE,
        "mask_token_id": MASK,
        "unselectable_token_ids": SPECIAL,
        **kwargs,
    }
    return mask_tokens(token_ids, np.random.default_rng(seed), **arguments)


def sequence(num_tokens, length, seed=0):
    """`[CLS]`, random tokens, `[SEP]` and padding."""
    tokens = np.random.default_rng(seed).integers(5, VOCABULARY_SIZE, num_tokens)
    padding = [PAD] * (length - num_tokens - 2)
    return np.array([CLS, *tokens, SEP, *padding])


def batch(num_sequences=200, length=37):
    return np.stack([sequence(1 + i % (length - 2), length, i) for i in range(num_sequences)])


def unmask(features, labels, sample_weight):
    """Put the labels back to their positions."""
    tokens = features["token_ids"].copy()
    for row in range(len(tokens)):
        used = sample_weight[row] == 1
        tokens[row, features["mask_positions"][row, used]] = labels[row, used]
    return tokens


@any_backend
def test_labels_restore_the_sequences():
    tokens = batch()
    np.testing.assert_array_equal(unmask(*mask(tokens)), tokens)


@any_backend
def test_exactly_the_rate_is_selected():
    for num_tokens, expected in [(1, 1), (3, 1), (10, 2), (17, 3), (20, 3), (35, 5)]:
        for seed in range(20):
            _, _, weight = mask(sequence(num_tokens, 37), seed)
            assert weight.shape == (6,)
            assert weight.sum() == expected


@any_backend
@pytest.mark.parametrize("rate", [0.1, 0.25, 0.35, 0.5, 1.0])
def test_the_rate_is_rounded_as_python_rounds(rate):
    for num_tokens in range(1, 12):
        _, _, weight = mask(sequence(num_tokens, 13), mask_selection_rate=rate)
        assert weight.sum() == max(1, round(rate * num_tokens))
        assert weight.shape == (int(np.ceil(rate * 13)),)


@any_backend
def test_sequences_without_selectable_tokens():
    tokens = np.array([[CLS, SEP, PAD, PAD], [CLS, 7, SEP, PAD]])
    features, labels, weight = mask(tokens, mask_token_rate=1.0, random_token_rate=0.0)
    np.testing.assert_array_equal(weight, [[0], [1]])
    np.testing.assert_array_equal(labels, [[0], [7]])
    np.testing.assert_array_equal(features["token_ids"], [tokens[0], [CLS, MASK, SEP, PAD]])


@any_backend
def test_mask_selection_length_caps_and_pads():
    tokens = batch()
    _, _, weight = mask(tokens, mask_selection_length=3)
    assert weight.shape == (200, 3)
    assert weight.sum(axis=1).max() == 3
    features, labels, weight = mask(tokens, mask_selection_length=50)
    assert features["mask_positions"].shape == labels.shape == weight.shape == (200, 50)
    assert weight.sum(axis=1).max() == 5
    np.testing.assert_array_equal(unmask(features, labels, weight), tokens)


@any_backend
def test_positions_ascend_and_unused_entries_are_zero_at_the_end():
    features, labels, weight = mask(batch())
    positions = features["mask_positions"]
    used = weight == 1
    assert (np.diff(weight, axis=1) <= 0).all()
    assert (np.diff(positions, axis=1)[used[:, 1:]] > 0).all()
    assert (positions[~used] == 0).all()
    assert (labels[~used] == 0).all()


@any_backend
def test_special_tokens_are_neither_selected_nor_drawn():
    tokens = batch(2000)
    features, labels, weight = mask(tokens, mask_token_rate=0.0, random_token_rate=1.0)
    assert not np.isin(labels[weight == 1], SPECIAL).any()
    drawn = np.take_along_axis(features["token_ids"], features["mask_positions"], 1)[weight == 1]
    assert set(drawn) == set(range(VOCABULARY_SIZE)) - set(SPECIAL)
    special = np.isin(tokens, SPECIAL)
    np.testing.assert_array_equal(features["token_ids"][special], tokens[special])


@any_backend
def test_padding_is_unselectable_even_if_not_listed():
    tokens = np.array([5, 9, 9, 9, 9, 9, 9, 9])
    features, labels, _ = mask(
        tokens, unselectable_token_ids=[], pad_token_id=9, mask_selection_rate=1.0
    )
    assert labels.tolist() == [5, *[0] * 7]
    assert features["padding_mask"].tolist() == [True, *[False] * 7]


@any_backend
def test_eighty_ten_ten():
    tokens = np.full((4000, 100), 5)
    features, _, weight = mask(tokens, mask_token_rate=0.8, random_token_rate=0.1)
    new = np.take_along_axis(features["token_ids"], features["mask_positions"], 1)
    assert (weight == 1).all()
    assert new.shape == (4000, 15)
    # Standard errors are below 0.0017. One random token in 27 is 5 again.
    np.testing.assert_allclose((new == MASK).mean(), 0.8, atol=0.007)
    np.testing.assert_allclose((new == 5).mean(), 0.1 + 0.1 / 27, atol=0.006)
    np.testing.assert_allclose(np.isin(new, [MASK, 5], invert=True).mean(), 2.6 / 27, atol=0.006)


@any_backend
@pytest.mark.parametrize("mask_rate, random_rate, expected", [(1.0, 0.0, MASK), (0.0, 0.0, 5)])
def test_rates_of_zero_and_one_are_exact(mask_rate, random_rate, expected):
    features, _, _ = mask(
        np.full(100, 5),
        mask_selection_rate=1.0,
        mask_token_rate=mask_rate,
        random_token_rate=random_rate,
    )
    assert (features["token_ids"] == expected).all()


@any_backend
def test_selection_is_uniform():
    tokens = np.tile(sequence(20, 25), (20_000, 1))
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


@any_backend
def test_one_sequence_and_a_batch_of_one_are_the_same():
    tokens = sequence(20, 29)
    for one, many in zip(_leaves(mask(tokens)), _leaves(mask(tokens[np.newaxis])), strict=True):
        np.testing.assert_array_equal(one, many[0])
    for flat, nested in zip(
        _leaves(mask(batch(6))), _leaves(mask(batch(6).reshape(2, 3, -1))), strict=True
    ):
        assert nested.shape[:2] == (2, 3)
        np.testing.assert_array_equal(flat, nested.reshape(flat.shape))


@any_backend
def test_only_the_generator_is_random():
    tokens = batch()
    for first, second in zip(_leaves(mask(tokens, 1)), _leaves(mask(tokens, 1)), strict=True):
        np.testing.assert_array_equal(first, second)
    assert (mask(tokens, 1)[0]["mask_positions"] != mask(tokens, 2)[0]["mask_positions"]).any()


@any_backend
def test_input_does_not_change():
    tokens = batch().astype("int32")
    before = tokens.copy()
    mask(tokens)
    np.testing.assert_array_equal(tokens, before)


@pytest.mark.parametrize("dtype", ["uint16", "int64"])
def test_outputs_match_keras_hub(dtype):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    tokenizer = keras_hub.models.BertTokenizer(vocabulary)
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(
        tokenizer, sequence_length=8, mask_selection_length=3
    )
    theirs = preprocessor(["a b a", "b"])
    tokens = np.array([[2, 5, 6, 5, 3, 0, 0, 0], [2, 6, 3, 0, 0, 0, 0, 0]], dtype)
    ours = mask(tokens, vocabulary_size=7, mask_selection_length=3)
    assert set(ours[0]) == set(theirs[0])
    for name in ours[0]:
        assert ours[0][name].shape == tuple(theirs[0][name].shape)
        assert str(ours[0][name].dtype) in str(theirs[0][name].dtype)
    for our, their in zip(ours[1:], theirs[1:], strict=True):
        assert our.shape == tuple(their.shape)
        assert str(our.dtype) in str(their.dtype)
    np.testing.assert_array_equal(
        ours[0]["padding_mask"], ops.convert_to_numpy(theirs[0]["padding_mask"]).astype(bool)
    )
    assert (ours[0]["segment_ids"] == 0).all()


@any_backend
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mask_selection_rate": 1.1}, "`mask_selection_rate` must be a number in"),
        ({"mask_selection_rate": 0}, "`mask_selection_rate` must be above 0"),
        ({"mask_token_rate": -0.1}, "`mask_token_rate` must be a number in"),
        ({"random_token_rate": "0.1"}, "`random_token_rate` must be a number in"),
        ({"mask_token_rate": 0.8, "random_token_rate": 0.3}, "must sum to at most 1"),
        ({"mask_selection_length": 0}, "`mask_selection_length` must be a positive"),
        ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive"),
        ({"vocabulary_size": 6}, r"`token_ids` must be in.*\[0, 6\).*from 5 to 7"),
        ({"mask_token_id": 31}, r"`mask_token_id`.*Received: 31"),
        ({"pad_token_id": -1}, r"`pad_token_id`.*Received: -1"),
        ({"unselectable_token_ids": [0, 2.5]}, r"`unselectable_token_ids`.*Received: 2.5"),
        ({"unselectable_token_ids": range(31)}, "must leave at least one id to select"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        mask(np.array([5, 6, 7]), **arguments)


@any_backend
@pytest.mark.parametrize("tokens", [5, [], [[], []], [0.5], ["a"], [-1, 5]])
def test_bad_token_ids(tokens):
    with pytest.raises(ValueError, match="`token_ids` must"):
        mask(np.array(tokens))


def _leaves(masked):
    features, labels, weight = masked
    return [*(features[name] for name in sorted(features)), labels, weight]
