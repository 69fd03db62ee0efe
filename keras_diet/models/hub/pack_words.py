"""Sequences of tokens from the pieces of words, and the place of each word in its sequence."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Pieces = Sequence[int]


def pack_words(
    sentences: Sequence[Sequence[Pieces]], length: int, start: int, end: int, pad: int
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Return token ids, the padding mask, and the places of words.

    Tokens that do not fit are cut off before the end token.

    Args:
        sentences: For each word of each sentence, its tokens. A word has at least one.
        length: int. The length of the sequences.
        start: int. The first token of a sequence.
        end: int. The token after the last word.
        pad: int. The padding token.

    Returns:
        Arrays of shape `(B, length)`, and for each sentence an array with the index of the first
        token of each word. Words that were cut off have no index.
    """
    token_ids = np.full((len(sentences), length), pad, "int32")
    padding_mask = np.zeros((len(sentences), length), "bool")
    places = []
    for row, words in enumerate(sentences):
        tokens = [start, *itertools.chain.from_iterable(words)][: length - 1]
        tokens.append(end)
        token_ids[row, : len(tokens)] = tokens
        padding_mask[row, : len(tokens)] = True
        firsts = np.cumsum([1, *map(len, words)])[:-1]
        places.append(firsts[firsts < length - 1])
    return token_ids, padding_mask, places


def at_places(
    values: Iterable[Sequence[Any]], places: Sequence[np.ndarray], length: int, dtype: str
) -> np.ndarray:
    """Return an array of shape `(B, length)` with values at the places of words, and 0 elsewhere.

    Args:
        values: For each sentence, a value for each word. Those of words without a place are left
            out.
        places: What `pack_words` returns.
        length: int. The length of the sequences.
        dtype: str. The dtype of the result.
    """
    array = np.zeros((len(places), length), dtype)
    for row, (of_words, at) in enumerate(zip(values, places, strict=True)):
        array[row, at] = of_words[: len(at)]
    return array


def split_words(words: Iterable[Pieces], room: int) -> list[list[Pieces]]:
    """Return the words of a sentence in parts with at most `room` tokens.

    A word is never split. A word with more tokens is alone in its part.
    """
    parts: list[list[Pieces]] = [[]]
    size = 0
    for pieces in words:
        if parts[-1] and size + len(pieces) > room:
            parts.append([])
            size = 0
        parts[-1].append(pieces)
        size += len(pieces)
    return parts
