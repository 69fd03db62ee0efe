"""Answers as texts and their characters in a context, and as tokens."""

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_diet.models.hub.graph_checks import is_in_graph
from keras_diet.models.hub.texts import (
    batch_sizes,
    check_texts_are_flat,
    check_texts_are_strings,
    is_one_text,
)

TEXT, START = "text", "answer_start"
# The start of no answer.
NO_START = -1
_FORM = f'{{"{TEXT}": [...], "{START}": [...]}}'


def check_answers(contexts: Any, answers: Any) -> None:
    """Raise a `ValueError` unless each answer is in its context, where its start says.

    Args:
        contexts: A string, or a batch of strings.
        answers: Dictionary of texts and starts, one for each context. `""` and -1 mean that a
            question has no answer. In a graph of TensorFlow, only the keys are checked.
    """
    if not isinstance(answers, Mapping) or set(answers) != {TEXT, START}:
        kind = type(answers).__name__
        received = f"the keys {list(answers)}" if isinstance(answers, Mapping) else kind
        raise ValueError(
            f"`y` must be the answers {_FORM}: their texts and the characters where they start in "
            f"the contexts. Received: {received}. For a question without answer, pass '' and "
            f"{NO_START}."
        )
    texts, starts = answers[TEXT], answers[START]
    where = f"`y[{TEXT!r}]`"
    if isinstance(texts, (list, tuple)):
        _check_one_each(texts, where)
    check_texts_are_flat(texts, f"y[{TEXT!r}]")
    check_texts_are_strings(texts, f"y[{TEXT!r}]")
    if any(map(is_in_graph, (contexts, texts, starts))):
        return
    if is_one_text(contexts):
        contexts, texts, starts = [contexts], [texts], [starts]
    sizes = [size for part in (contexts, texts, starts) for size in batch_sizes(part)]
    if len(set(sizes)) > 1 or len(sizes) < 3:
        raise ValueError(
            "There must be one answer for each context. Received: "
            f"{sizes[0]} contexts, and the number of texts and starts {sizes[1:]}. Pass '' and "
            f"{NO_START} for questions without answer."
        )
    for row, (context, text, start) in enumerate(zip(contexts, texts, starts, strict=True)):
        _check_answer(row, as_string(context), as_string(text), start, where)


def _check_one_each(texts, where):
    if isinstance(texts, tuple):
        raise ValueError(f"{where} must be a list. Received: a tuple. Make a list of it.")
    for row, text in enumerate(texts):
        if isinstance(text, (list, tuple)):
            raise ValueError(
                f"{where} must hold one answer for each context. Received: {text!r:.50} in row "
                f"{row}. Pass the first answer of each question and its start, or '' and "
                f"{NO_START} if there is none."
            )


def _check_answer(row, context, text, start, where):
    value = np.asarray(start)
    if value.shape or not isinstance(value.item(), numbers.Integral) or value.dtype.kind == "b":
        raise ValueError(
            f"`y[{START!r}]` must hold integers, the characters where answers start. Received: "
            f"{start!r} in row {row}. Pass one start for each answer, and {NO_START} for no answer."
        )
    start = int(value)
    if not text:
        if start != NO_START:
            raise ValueError(
                f"A question without answer must have the start {NO_START}. Received: an empty "
                f"text with the start {start} in row {row}. Correct the text or the start."
            )
        return
    found = context[start : start + len(text)] if start >= 0 else ""
    if found != text:
        places = f"It starts at {context.find(text)}." if text in context else "It is not there."
        raise ValueError(
            f"{where} must be in the context at `y[{START!r}]`. Received: {text!r} with the start "
            f"{start} in row {row}, where the context has {found!r}. {places} Starts count the "
            "characters of a Python string from 0."
        )


def as_string(text: str | bytes) -> str:
    """Return a text as a string."""
    return text.decode() if isinstance(text, bytes) else str(text)


def token_spans(
    answers: Mapping[str, Any], offsets: Sequence[Sequence[tuple[int, int]]]
) -> np.ndarray:
    """Return the first and the last token of each answer, or -1 for questions without answer.

    These are the tokens that share a character with the answer. A token that crosses the border of
    an answer belongs to it.

    Args:
        answers: Dictionary of texts and starts that were checked.
        offsets: For each context, the `(start, end)` characters of each token.

    Returns:
        Integers of shape `(num_examples, 2)`.
    """
    spans = np.full((len(offsets), 2), -1, "int32")
    texts = map(as_string, answers[TEXT])
    rows = zip(texts, answers[START], offsets, strict=True)
    for row, (text, start, of_context) in enumerate(rows):
        if not text:
            continue
        start, end = int(start), int(start) + len(text)
        tokens = [i for i, (a, b) in enumerate(of_context) if a < end and b > start]
        if not tokens:
            raise ValueError(
                f"An answer must have at least one token of its context. Received: {text!r} in row "
                f"{row}, where the tokenizer finds no token. Remove the row, or pass '' and "
                f"{NO_START}."
            )
        spans[row] = tokens[0], tokens[-1]
    return spans
