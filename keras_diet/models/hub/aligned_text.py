"""Which characters of a text became which characters of its normalized form."""

import unicodedata
from collections.abc import Callable, Iterator

Span = tuple[int, int]
# The vowels and final consonants of Hangul, if a syllable is written as several characters.
_HANGUL_PARTS = (("\u1160", "\u11ff"), ("\ud7b0", "\ud7fb"))


def align(text: str, normalize: Callable[[str], str]) -> tuple[str, list[Span]]:
    """Return a normalized text and, for each of its characters, the span in the original text.

    If several characters become one, such as a letter and its accent, the span holds them all. If
    one character becomes several, such as a ligature, each of them has the same span. Characters
    that are removed belong to the span of the character before them.

    Args:
        text: str. The original text.
        normalize: A function of a string, such as a Unicode normalization. It may change characters
            and their marks, and nothing that depends on words further away.
    """
    normalized = normalize(text)
    if normalized == text:
        return text, [(i, i + 1) for i in range(len(text))]
    pieces: list[tuple[str, Span]] = []
    for start, end in _spans_with_marks(text):
        for piece, span in _pieces(text, start, end, normalize):
            if piece or not pieces:
                pieces.append((piece, span))
            else:
                previous, (first, _) = pieces[-1]
                pieces[-1] = previous, (first, span[1])
    if "".join(piece for piece, _ in pieces) != normalized:
        # A newer version of Unicode may have letters that are not marks and combine all the same.
        pieces = [(normalized, (0, len(text)))]
    return normalized, [span for piece, span in pieces for _ in piece]


def _spans_with_marks(text: str) -> Iterator[Span]:
    """Yield the span of each character, together with the marks that follow it."""
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or not _is_mark(text[end]):
            yield start, end
            start = end


def _is_mark(character: str) -> bool:
    # Half-width marks are letters. Only their full-width forms are marks.
    character = unicodedata.normalize("NFKD", character)[0]
    is_hangul = any(first <= character <= last for first, last in _HANGUL_PARTS)
    return is_hangul or unicodedata.category(character)[0] == "M"


def _pieces(
    text: str, start: int, end: int, normalize: Callable[[str], str]
) -> list[tuple[str, Span]]:
    """Return the normalized parts of a character with its marks, and the span of each."""
    whole = normalize(text[start:end])
    characters = [normalize(character) for character in text[start:end]]
    if "".join(characters) != whole:
        return [(whole, (start, end))]
    return [(piece, (i, i + 1)) for i, piece in enumerate(characters, start)]
