"""The words of sentences: their tokens, and the places of their labels."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_diet.data.columns import host_column, is_unicode
from keras_diet.models.hub.token_rows import inputs_of, template_of

# The tokens of a word.
Pieces = Sequence[int]


def as_lists(values: Any) -> Any:
    """Return sentences, or one value for each of their words, as a list of lists.

    Arrays, tensors and other sequences become lists, and bytes become strings. Anything else
    is returned as it is.
    """
    if isinstance(values, bytes):
        return values.decode()
    values = host_column(values)
    values = values.tolist() if isinstance(values, np.ndarray) else values
    return [as_lists(value) for value in values] if isinstance(values, list) else values


def check_sentences(sentences: Any, name: str) -> None:
    """Raise a `ValueError` that names the row unless each sentence is a list of words.

    Args:
        sentences: What `as_lists` returns.
        name: str. The name of the argument.
    """
    for row, words in enumerate(sentences if isinstance(sentences, list) else [sentences]):
        is_list = isinstance(words, list) and len(words) > 0
        if not is_list or not all(isinstance(w, str) and w and is_unicode(w) for w in words):
            raise ValueError(
                f"`{name}` must hold a list of words for each sentence, such as [['the', 'fox']]. "
                "Words are strings of Unicode that are not empty. "
                f"Received: {words!r:.70} in row {row}. Split texts into words, as the training "
                "data is split."
            )


def check_one_per_word(name: str, values: Any, sentences: list[list[str]]) -> None:
    """Raise a `ValueError` that names the row unless there is one value for each word."""
    for row, (of_words, words) in enumerate(zip(values, sentences, strict=True)):
        is_complete = isinstance(of_words, list) and len(of_words) == len(words)
        # NaN differs from itself.
        if not is_complete or any(
            value is None or isinstance(value, list) or value != value for value in of_words
        ):
            raise ValueError(
                f"`{name}` must hold a list for each sentence, with one value for each word, and "
                f"no one-hot rows. Received: {of_words!r:.70} for {len(words)} words in row {row}."
            )


def pack_words(
    sentences: Sequence[Sequence[Pieces]], tokenizer: Any, lengths: Sequence[int]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Return the inputs of a model, and the places of words.

    Tokens that do not fit are cut off before the end tokens.

    Args:
        sentences: For each word of each sentence, its tokens. A word has at least one.
        tokenizer: It knows the special tokens.
        lengths: The lengths to choose from, which increase.

    Returns:
        A dictionary of arrays of shape `(B, length)`, and for each sentence an array with the index
        of the first token of each word. Words that were cut off have no index.
    """
    chains = map(itertools.chain.from_iterable, sentences)
    template = template_of(tokenizer)
    start, end = template.start, template.end
    limit = len(start) + template.room(lengths[-1])
    rows = [[*[*start, *tokens][:limit], *end] for tokens in chains]
    firsts = (np.cumsum([len(start), *map(len, words)])[:-1] for words in sentences)
    inputs = inputs_of(rows, [[0] * len(row) for row in rows], lengths, tokenizer.pad_token_id)
    return inputs, [of_words[of_words < limit] for of_words in firsts]


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
