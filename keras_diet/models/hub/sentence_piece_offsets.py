"""The pieces of a text and their places in the text, from a SentencePiece model."""

import sentencepiece

from keras_diet.models.hub.aligned_text import Span

_WHITE_SPACE = "▁ "


def tokens_with_offsets(
    text: str, model: sentencepiece.SentencePieceProcessor
) -> tuple[list[int], list[Span]]:
    """Return the token ids of a text, and the span of characters of each token.

    SentencePiece says where each character of the normalized text comes from. White space before a
    word belongs to its first token, but not to the span.
    """
    ids = model.encode(text)
    normalized, starts = model.normalize(text, with_offsets=True)
    ends = _ends(starts)
    # A piece of an unknown character may be one of its bytes, so places are counted in bytes.
    characters = [i for i, character in enumerate(normalized) for _ in character.encode()]
    offsets: list[Span] = []
    end = 0
    for token_id, piece in zip(ids, model.encode(text, out_type=str), strict=True):
        start, end = end, end + (1 if model.is_byte(token_id) else len(piece.encode()))
        first, last = characters[start], characters[end - 1]
        while first <= last and normalized[first] in _WHITE_SPACE:
            first += 1
        while first < last and normalized[last] in _WHITE_SPACE:
            last -= 1
        is_white_space = first > last
        offsets.append((starts[first], starts[first] if is_white_space else ends[last]))
    return ids, offsets


def _ends(starts: list[int]) -> list[int]:
    """Return where each character ends: at the next one that comes from another place."""
    ends = starts[1:]
    for i in range(len(ends) - 2, -1, -1):
        if ends[i] == starts[i]:
            ends[i] = ends[i + 1]
    return ends
