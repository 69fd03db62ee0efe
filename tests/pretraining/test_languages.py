"""The sampling of languages: probabilities, texts, and batches of packed sequences."""

import collections
import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_diet.pretraining import (
    language_probabilities,
    masked_lm_dataset,
    sample_languages,
)
from keras_diet.pretraining.dataset import MixedSequences
from tests.models.multilingual import multilingual_tokenizer

pytestmark = pytest.mark.any_backend

SIZES = {"en": 70, "sw": 11, "de": 19}


def reference_probabilities(sizes, exponent):
    """The equation of XLM, one language at a time."""
    total = sum(sizes.values())
    weights = {language: (size / total) ** exponent for language, size in sizes.items()}
    return {language: weight / sum(weights.values()) for language, weight in weights.items()}


# === Texts ===


def texts_of(sizes):
    return {language: [(language, i) for i in range(size)] for language, size in sizes.items()}


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    sizes=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 70), min_size=1),
    exponent=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    num_samples=st.one_of(st.none(), st.integers(1, 500)),
    seed=st.integers(0, 9),
)
@example(sizes={"en": 70, "sw": 1}, exponent=1.0, num_samples=7, seed=0)
def test_shares_of_texts(sizes, exponent, num_samples, seed):
    probabilities = language_probabilities(sizes, exponent)
    assert probabilities == pytest.approx(reference_probabilities(sizes, exponent))
    assert list(probabilities) == list(sizes)
    total = num_samples or sum(sizes.values())
    sampled = list(sample_languages(texts_of(sizes), exponent, seed, num_samples))
    for language, size in sizes.items():
        rows = [row for name, row in sampled if name == language]
        # Rare languages are not lost.
        assert len(rows) == max(1, round(probabilities[language] * total))
        # Each row comes equally often, or once more, and rows stay in their order in each pass.
        passes, rest = divmod(len(rows), size)
        times = sorted(collections.Counter(rows)[i] for i in range(size))
        assert times == [passes] * (size - rest) + [passes + 1] * rest
        for start in range(0, len(rows), size):
            of_pass = rows[start : start + size]
            assert of_pass == sorted(of_pass)


def test_languages_are_mixed_and_seeds_differ():
    texts = texts_of(SIZES)
    first, again, other = (list(sample_languages(texts, 0.0, seed)) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    languages = [language for language, _ in first]
    changes = sum(a != b for a, b in itertools.pairwise(languages))
    assert changes > 40
    # Another seed takes another part of a language with too many texts.
    parts = [{row for language, row in each if language == "en"} for each in (first, other)]
    assert len(parts[0]) == len(parts[1]) == 33
    assert parts[0] != parts[1]


class Lines:
    """Texts that can be read several times, such as those of files, without a length."""

    def __iter__(self):
        return iter(["one", "two", "three"])


def test_texts_without_a_length():
    sampled = list(sample_languages({"en": Lines(), "sw": ["moja"]}, 0.0, num_samples=6))
    assert sorted(sampled) == ["moja"] * 3 + ["one", "three", "two"]


# === Batches ===


def sequences_of(sizes, length=7):
    """Sequences that say which language and row they are: `[CLS] language row ...`."""
    arrays = {}
    for i, (language, size) in enumerate(sizes.items()):
        array = np.full((size, length), 9, "int32")
        array[:, 0], array[:, 1], array[:, 2] = 4, 7 + i, 10 + np.arange(size) % 50
        arrays[language] = array
    return arrays


def rows_of(dataset, num_batches):
    """The languages and rows in the first batches, which are not masked."""
    ids = np.concatenate([dataset[i][0]["token_ids"] for i in range(num_batches)])
    names = list(SIZES)
    return [(names[i - 7], row - 10) for i, row in ids[:, 1:3].tolist()]


def batches(sizes=SIZES, **arguments):
    unmasked = {"mask_token_rate": 0.0, "random_token_rate": 0.0, "repeat": True}
    tokenizer = multilingual_tokenizer()
    return masked_lm_dataset(sequences_of(sizes), tokenizer, 13, **{**unmasked, **arguments})


def test_shares_of_batches():
    rows, shares = rows_of(batches(sampling_exponent=0.3), 77), reference_probabilities(SIZES, 0.3)
    counts = collections.Counter(language for language, _ in rows)
    for language, probability in shares.items():
        assert counts[language] == pytest.approx(probability * 77 * 13, abs=3)
    # Each batch has these shares, as nearly as whole sequences permit.
    for start in range(0, len(rows), 13):
        of_batch = collections.Counter(language for language, _ in rows[start : start + 13])
        for language, probability in shares.items():
            assert abs(of_batch[language] - 13 * probability) < 2


def test_each_language_has_its_own_epochs():
    rows = rows_of(batches({"en": 43, "sw": 11, "de": 19}, sampling_exponent=0.0), 30)
    for language, size in {"en": 43, "sw": 11, "de": 19}.items():
        of_language = [row for name, row in rows if name == language]
        epochs = [of_language[i : i + size] for i in range(0, len(of_language) - size, size)]
        assert len(epochs) > 2
        for epoch in epochs:
            assert sorted(epoch) == list(range(size))
        assert epochs[0] != epochs[1]
        assert epochs[0] != sorted(epochs[0])


def test_languages_of_the_same_size_have_different_orders():
    """Otherwise each batch of a parallel corpus would hold a sentence and its translation."""
    rows = rows_of(batches(dict.fromkeys(SIZES, 43)), 13)
    orders = {language: [row for name, row in rows if name == language][:43] for language in SIZES}
    assert {len(order) for order in orders.values()} == {43}
    assert len(set(map(tuple, orders.values()))) == 3


def test_sequences_of_different_dtypes_keep_their_ids():
    sequences = MixedSequences(
        {"en": np.full((2, 3), 60_000, "uint16"), "zh": np.full((3, 3), 119_999, "int32")}
    )
    assert sequences[np.array([4, 0, 2])].tolist() == [[119_999] * 3, [60_000] * 3, [119_999] * 3]


def test_no_shuffling():
    rows = rows_of(batches(shuffle=False, sampling_exponent=1.0), 5)
    for language in SIZES:
        of_language = [row for name, row in rows if name == language]
        assert of_language == [i % SIZES[language] % 50 for i in range(len(of_language))]
