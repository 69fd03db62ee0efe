"""`align` finds the characters that a normalization has changed, joined, split or removed."""

# ruff: noqa: RUF001 - the texts are awkward on purpose.

import functools
import sys
import unicodedata

import pytest

from keras_diet.models.hub.aligned_text import align

pytestmark = pytest.mark.any_backend

nfkc = functools.partial(unicodedata.normalize, "NFKC")


def parts(text, normalize):
    """The normalized characters, each with the part of the text it comes from."""
    normalized, spans = align(text, normalize)
    assert normalized == normalize(text)
    return [
        (character, text[start:end])
        for character, (start, end) in zip(normalized, spans, strict=True)
    ]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", []),
        ("abc", [("a", "a"), ("b", "b"), ("c", "c")]),
        # One character becomes several, several become one.
        ("xﬁy", [("x", "x"), ("f", "ﬁ"), ("i", "ﬁ"), ("y", "y")]),
        ("xe\u0301y", [("x", "x"), ("é", "e\u0301"), ("y", "y")]),
        ("Ａ１", [("A", "Ａ"), ("1", "１")]),
        # A half-width mark is a letter of its own, and so are parts of Hangul.
        ("aｶﾞb", [("a", "a"), ("ガ", "ｶﾞ"), ("b", "b")]),
        ("한a", [("한", "한"), ("a", "a")]),
        # Marks change their order, so both belong to both characters.
        (
            "q\u0307\u0323b",
            [
                ("q", "q\u0307\u0323"),
                ("\u0323", "q\u0307\u0323"),
                ("\u0307", "q\u0307\u0323"),
                ("b", "b"),
            ],
        ),
        # Devanagari has marks that combine with nothing.
        ("½की", [("1", "½"), ("⁄", "½"), ("2", "½"), ("क", "क"), ("ी", "ी")]),
    ],
)
def test_composed_characters(text, expected):
    assert parts(text, nfkc) == expected


def test_removed_characters_belong_to_the_character_before():
    def without_marks(text):
        decomposed = unicodedata.normalize("NFD", text)
        return "".join(c for c in decomposed if unicodedata.category(c) != "Mn" and c != "-")

    assert parts("\u0301éa-b\u0301", without_marks) == [("e", "é"), ("a", "a-"), ("b", "b\u0301")]
    assert parts("-", without_marks) == []


def test_letters_that_combine_without_being_marks():
    """As a newer version of Unicode may have: the ids stay right, and the span is the word."""
    assert parts("xaby", lambda text: text.replace("ab", "C")) == [(c, "xaby") for c in "xCy"]


def test_all_characters_that_combine_in_this_version_of_unicode_are_found():
    for character in map(chr, range(sys.maxunicode + 1)):
        pair = unicodedata.normalize("NFD", character)
        first_is_mark = unicodedata.category(pair[0])[0] == "M"
        if len(pair) > 1 and not first_is_mark and not "가" < character <= "힣":
            _, spans = align(f"x{pair}x", nfkc)
            end = 1 + len(pair)
            assert (spans[0], spans[-1]) == ((0, 1), (end, end + 1)), ascii(character)
            assert (spans[1][0], spans[-2][1]) == (1, end), ascii(character)
