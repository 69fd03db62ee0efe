import numpy as np
import pytest

from keras_diet.pretraining import masked_lm_dataset, number_segments

SEP, PAD = 3, 0
pytestmark = pytest.mark.any_backend


def expected_segments(token_ids, num_segments, pad=PAD):
    segments = np.zeros(token_ids.shape, "int32")
    for row, tokens in enumerate(token_ids):
        segment = 0
        for i, token in enumerate(tokens):
            segments[row, i] = 0 if token == pad else segment
            if token == SEP:
                segment = min(segment + 1, num_segments - 1)
    return segments


def test_as_bert_numbers_two_sentences():
    tokens = np.array([[2, 5, 6, SEP, 7, 8, SEP, PAD, PAD], [2, 5, SEP, 7, 7, 7, 7, 7, SEP]])
    expected = [[0, 0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1, 1]]
    segments = number_segments(tokens, SEP)
    assert segments.tolist() == expected
    assert segments.dtype == "int32"
    assert number_segments(tokens[0], SEP).tolist() == expected[0]


@pytest.mark.parametrize("pad", [0, 5])
@pytest.mark.parametrize("num_segments", [1, 2, 3, 11])
def test_equals_a_loop(rng, num_segments, pad):
    tokens = rng.integers(0, 5, size=(7, 13))
    tokens[rng.random(tokens.shape) < 0.1] = pad
    actual = number_segments(tokens, SEP, pad, num_segments)
    np.testing.assert_array_equal(actual, expected_segments(tokens, num_segments, pad))


@pytest.mark.parametrize("num_segments", [0, -1, 2.0, None])
def test_number_of_segments_must_be_a_positive_integer(num_segments, tokenizer):
    with pytest.raises(ValueError, match="`num_segments` must be a positive integer"):
        number_segments(np.array([5]), SEP, num_segments=num_segments)
    with pytest.raises(ValueError, match="`num_segments` must be a positive integer"):
        masked_lm_dataset(np.full((4, 5), 5), tokenizer, 2, num_segments=num_segments)


@pytest.mark.parametrize("num_segments", [1, 3])
def test_segments_of_a_dataset(rng, tokenizer, num_segments):
    tokens = rng.integers(5, 29, size=(6, 11))
    tokens[:, 0], tokens[:, 4], tokens[:, 6], tokens[:, -1] = 2, SEP, SEP, SEP
    tokens[1, 7:] = PAD
    arguments = {"shuffle": False, "mask_selection_rate": 0.5, "num_segments": num_segments}
    dataset = masked_lm_dataset(tokens, tokenizer, 3, **arguments)
    segments = np.concatenate([features["segment_ids"] for features, _, _ in dataset])
    np.testing.assert_array_equal(segments, expected_segments(tokens, num_segments))
    assert segments.dtype == "int32"
    assert set(np.unique(segments)) == set(range(num_segments))
    # The other features do not depend on it.
    plain = masked_lm_dataset(tokens, tokenizer, 3, **{**arguments, "num_segments": 1})
    for name in ("token_ids", "padding_mask", "mask_positions"):
        np.testing.assert_array_equal(dataset[0][0][name], plain[0][0][name])


def test_segments_follow_the_shuffled_sequences(rng, tokenizer):
    tokens = rng.integers(5, 29, size=(6, 11))
    tokens[range(6), range(2, 8)] = SEP
    features, _, _ = masked_lm_dataset(tokens, tokenizer, 6, num_segments=2)[0]
    starts = features["segment_ids"].argmax(axis=1)
    assert sorted(starts) == list(range(3, 9))
    assert (features["token_ids"][range(6), starts - 1] == SEP).all()
