"""Checks of sentences, which are lists of words, and of the labels and weights of the words."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

from keras_diet.models.hub.class_names import index_of_name
from keras_diet.models.hub.graph_checks import is_in_graph
from keras_diet.models.hub.texts import check_batch, is_string_dtype

_REMEDY = "Pass a list of words for each sentence, such as [['the', 'fox'], ['it', 'runs']]."


def as_rows(values: Any) -> Any:
    """Return sentences, or one value for each of their words, as a list of lists.

    Arrays, tensors and other sequences become lists, and bytes become strings. Tensors in a graph
    of TensorFlow, and what is not a sequence, are returned as they are.
    """
    return values if is_in_graph(values) else _as_list(values)


def _as_list(values):
    if isinstance(values, str):
        return values
    if isinstance(values, bytes):
        return _decoded(values)
    # Ragged tensors of TensorFlow have `to_list`, and its other tensors have `numpy` only.
    for method in ("to_list", "tolist", "numpy"):
        if hasattr(values, method):
            return _as_list(getattr(values, method)())
    return [_as_list(value) for value in values] if isinstance(values, Sequence) else values


def _decoded(text):
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def is_one_sentence(x: Any) -> bool:
    """Return whether `x` is the words of a single sentence, without a batch axis."""
    if is_in_graph(x):
        return x.shape.rank == 1
    words = as_rows(x)
    return isinstance(words, list) and len(words) > 0 and all(isinstance(w, str) for w in words)


def check_sentences(x: Any, name: str = "x") -> None:
    """Raise a `ValueError` that names the row unless `x` is a batch of sentences.

    Args:
        x: What `as_rows` returns.
        name: str. The name of `x` in messages. Defaults to `"x"`.
    """
    if is_in_graph(x):
        if x.shape.rank != 2 or not is_string_dtype(x.dtype):
            raise ValueError(
                f"`{name}` must be a batch of sentences, a ragged tensor of words of rank 2. "
                f"Received: rank {x.shape.rank}, {x.dtype}. Call `ragged_batch` on a dataset of "
                "sentences."
            )
        return
    if not isinstance(x, list):
        raise ValueError(
            f"`{name}` must be a list of sentences. Received: {x!r:.50} of type "
            f"{type(x).__name__}. {_REMEDY} For token ids, build the task with "
            "`preprocessor=None`."
        )
    check_batch(x, name)
    for row, words in enumerate(x):
        if not isinstance(words, list):
            kind = "a string" if isinstance(words, str) else type(words).__name__
            raise ValueError(
                f"`{name}` must hold a list of words for each sentence. Received: {kind}, "
                f"{words!r:.50}, in row {row}. Split texts into words, and put a single sentence "
                "into a list."
            )
        if not words:
            raise ValueError(
                f"`{name}` must hold sentences with at least one word. Received: an empty list in "
                f"row {row}. Remove such rows."
            )
        for number, word in enumerate(words):
            if not isinstance(word, str) or not word:
                raise ValueError(
                    f"`{name}` must hold words that are nonempty strings. Received: {word!r:.50} "
                    f"in row {row}, word {number}. Remove it, and its label. In `tf.data`, use "
                    "`ragged_batch` instead of `padded_batch`."
                )


def check_one_per_word(name: str, values: Any, sentences: list[list[str]]) -> None:
    """Raise a `ValueError` that names the row unless there is one value for each word."""
    for row, (of_words, words) in enumerate(zip(values, sentences, strict=True)):
        if not isinstance(of_words, list):
            raise ValueError(
                f"`{name}` must hold a list for each sentence, with one value for each word. "
                f"Received: {of_words!r:.50} in row {row}. Pass a list of lists."
            )
        if len(of_words) != len(words):
            raise ValueError(
                f"`{name}` must hold one value for each word. Received: {len(of_words)} values for "
                f"{len(words)} words in row {row}. Correct the words or `{name}`."
            )


def ids_of_words(labels: list[list[Any]], names: Sequence[str] | None) -> list[Any]:
    """Return the labels of all words in a row, with names replaced by their index.

    Args:
        labels: A list of labels for each sentence.
        names: Names of the classes, or `None` if labels must be numbers.

    Raises:
        ValueError: If a label is text, but none of the names.
    """
    index = {name: i for i, name in enumerate(names or ())}
    return [
        index_of_name(label, row, index) if index and isinstance(label, str) else label
        for row, of_words in enumerate(labels)
        for label in of_words
    ]


def weights_of_words(weights: Any, sentences: list[list[str]]) -> list[Any]:
    """Return a weight for each word.

    Args:
        weights: A number for each sentence, a list of numbers for each sentence, or `None`, which
            means 1 for all words.
        sentences: The words of each sentence.

    Raises:
        ValueError: If the weights do not fit the sentences, or are not finite numbers.
    """
    rows = [1.0] * len(sentences) if weights is None else as_rows(weights)
    if not any(isinstance(row, list) for row in rows):
        rows = [[weight] * len(words) for weight, words in zip(rows, sentences, strict=True)]
    check_one_per_word("sample_weight", rows, sentences)
    for row, of_words in enumerate(rows):
        for weight in of_words:
            if not isinstance(weight, numbers.Real) or not math.isfinite(weight):
                raise ValueError(
                    "`sample_weight` must hold finite numbers, one for each sentence or one for "
                    f"each word. Received: {weight!r:.50} in row {row}. Correct it."
                )
    return rows
