"""WordPiece vocabularies: words, pieces, alphabets and reproducibility."""

import collections
import itertools

import keras_hub
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.models import DietBertTokenizer
from keras_diet.pretraining import train_wordpiece_vocabulary
from keras_diet.pretraining.vocabulary import SPECIAL_TOKENS, _count_words, _repeated

pytestmark = pytest.mark.any_backend

TEXTS = ["The lowest of the low is lower than the newest.", "New words widen the widest view."] * 3

STRINGS = [
    "Plain words, punctuation; and 3.14 (numbers)!",
    "GROSS naïve, café: Ångström",
    "ﬁne ﬂuﬀ x²",
    "漢字とかな 中文。混在abc文字",
    "tab\tnew\nline x\u00b4y \u00b4",
    "a+b=c $5 €5 x×y ~z^w |v| `q` «quoted» “curly” — dash",  # noqa: RUF001
    "[CLS] is [text] here [SEP]",
]


CHARACTERS = "".join(STRINGS) + "\u00a0\u00ad\u200b\x00ẞß\u0301"


def train(texts, size=200, **kwargs):
    return train_wordpiece_vocabulary(texts, size, show_progress=False, **kwargs)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    texts=st.lists(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from(CHARACTERS)))),
    lowercase=st.booleans(),
    strip_accents=st.booleans(),
)
def test_words_are_those_of_the_tokenizer(texts, lowercase, strip_accents):
    """The trained words are the tokens of a tokenizer with a vocabulary of all these words."""
    texts = [*texts, *STRINGS]
    counts = _count_words(texts, lowercase, strip_accents)
    tokenizer = DietBertTokenizer(
        [*SPECIAL_TOKENS, *sorted(counts)],
        lowercase=lowercase,
        strip_accents=strip_accents,
        dtype="string",
    )
    assert collections.Counter(itertools.chain(*tokenizer(texts))) == counts


def test_special_tokens_come_first_in_their_order():
    assert train(TEXTS)[:5] == list(SPECIAL_TOKENS)
    assert SPECIAL_TOKENS[0] == "[PAD]"
    assert train(TEXTS, special_tokens=["[PAD]", "<m>", "[UNK]"])[:3] == ["[PAD]", "<m>", "[UNK]"]


def test_frequent_words_become_tokens_and_pieces_inside_words_are_marked():
    tokens = train(TEXTS)
    assert {"the", "low", "new", "##est"} <= set(tokens)
    assert "The" not in tokens
    assert "The" in train(TEXTS, lowercase=False)


def test_every_training_word_can_be_tokenized():
    tokenizer = DietBertTokenizer(train(STRINGS * 2, 1000), lowercase=True)
    unknown = tokenizer.token_to_id("[UNK]")
    assert all(unknown not in ids for ids in tokenizer(STRINGS))


def test_characters_seen_only_at_the_start_can_stand_inside_words():
    tokenizer = keras_hub.models.BertTokenizer(train(["été ab"] * 2), lowercase=True)
    assert tokenizer.detokenize(tokenizer("abé")) == "abé"


def test_min_frequency():
    assert "once" not in train(["once twice twice"], min_frequency=2)
    assert "twice" in train(["once twice twice"], min_frequency=2)
    assert "once" in train(["once twice twice"], min_frequency=1)


@pytest.mark.parametrize(
    "text, limit, alphabet",
    [
        # Each word counts as often as it occurs: c is in more words, but a and b occur more often.
        ("ab ab ab cx cy", 2, "ab"),
        # Each character counts as often as it occurs in a word.
        ("zzz a b", 1, "z"),
        # Characters with the same count are kept in their order.
        ("dcba", 2, "ab"),
    ],
)
def test_limit_alphabet_counts_every_occurrence(text, limit, alphabet):
    tokens = train([text], limit_alphabet=limit, min_frequency=1)
    assert "".join(token for token in tokens[5:] if len(token) == 1) == alphabet


@pytest.mark.parametrize("count", [1, 6, 7, 8, 14, 17])
def test_words_are_trained_as_often_as_they_occur(count):
    texts = list(_repeated({"bb": count, "a": 3}, most=7))
    assert max(len(text.split()) for text in texts) <= 7
    assert collections.Counter(" ".join(texts).split()) == {"a": 3, "bb": count}


def test_result_is_the_same_each_time():
    # The order of pieces in the trainer alone depends on a hash map and differs between runs.
    texts = [f"w{i * i} {i:b}x{i % 7} {STRINGS[i % len(STRINGS)]}" for i in range(300)]
    assert len({tuple(train(texts, 500)) for _ in range(4)}) == 1


def test_vocabulary_may_have_just_the_alphabet():
    alphabet = [*SPECIAL_TOKENS, "a", "b", "##a", "##b"]
    assert train(["ab"] * 3, 9) == alphabet
    assert train(["ab"] * 3, 10) == [*alphabet, "ab"]
    with pytest.raises(ValueError, match="5 special tokens and 4 single characters"):
        train(["ab"] * 3, 8)
