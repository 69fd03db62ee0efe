"""Windows of contexts, each after its question: the sequences of a question answerer."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_diet.models.hub.token_rows import inputs_of, template_of

# The ids of the tokens of a text, and the `(start, end)` characters of each token.
Tokens = tuple[Sequence[int], Sequence[tuple[int, int]]]


@dataclasses.dataclass(frozen=True)
class QuestionWindows:
    """The windows of a batch of questions and contexts.

    Attributes:
        inputs: Dictionary of the arrays `"token_ids"`, `"segment_ids"` and `"padding_mask"` of
            shape `(num_windows, length)`.
        examples: Integers of shape `(num_windows,)`. The row of the question and the context.
        first_tokens: Integers of shape `(num_windows,)`. Where the window begins in the context.
        num_tokens: Integers of shape `(num_windows,)`. The number of tokens of the context.
        shifts: Integers of shape `(num_windows,)`. The distance from a token of the context to its
            position in the sequence.
        offsets: For each example, the `(start, end)` characters of each token of the context.
    """

    inputs: dict[str, np.ndarray]
    examples: np.ndarray
    first_tokens: np.ndarray
    num_tokens: np.ndarray
    shifts: np.ndarray
    offsets: Sequence[Sequence[tuple[int, int]]]

    def positions(self, spans: np.ndarray) -> dict[str, np.ndarray]:
        """Return where answers begin and end in each window.

        A window without the whole answer has position 0, `[CLS]`, as in BERT.

        Args:
            spans: Integers of shape `(num_examples, 2)`: the first and the last token of each
                answer in its context, or -1 for questions without answer.

        Returns:
            Dictionary of the arrays `"start"` and `"end"`, of shape `(num_windows,)`.
        """
        first, last = spans[self.examples].T
        # -1 is in no window.
        is_inside = (first >= self.first_tokens) & (last < self.first_tokens + self.num_tokens)
        return {
            "start": np.where(is_inside, first + self.shifts, 0).astype("int32"),
            "end": np.where(is_inside, last + self.shifts, 0).astype("int32"),
        }


def window_starts(num_tokens: int, room: int, doc_stride: int) -> range:
    """Return where the windows of a context begin. The last window holds the last token.

    Args:
        num_tokens: Number of tokens of the context.
        room: Largest number of tokens of the context in a window.
        doc_stride: Distance between the beginnings of two windows.
    """
    num_more = -(-max(num_tokens - room, 0) // doc_stride)
    return range(0, (num_more + 1) * doc_stride, doc_stride)


def make_windows(
    questions: Sequence[Tokens],
    contexts: Sequence[Tokens],
    tokenizer: Any,
    length: int,
    doc_stride: int,
) -> QuestionWindows:
    """Return the windows of questions and contexts, example after example.

    Args:
        questions: The tokens of each question.
        contexts: The tokens of each context.
        tokenizer: A tokenizer with the ids of the special tokens.
        length: Length of the sequences.
        doc_stride: Distance in tokens between the beginnings of two windows of a context.

    Raises:
        ValueError: If a question or a context has no tokens, if a question fills the window, or if
            the windows would leave tokens of a context out.
    """
    template = template_of(tokenizer)
    rows, sequences, segments = [], [], []
    for example, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        before = [*template.start, *question[0], *template.separator]
        ids, room = context[0], length - len(before) - len(template.end)
        _check_example(example, question, context, room, length, doc_stride)
        for start in window_starts(len(ids), room, doc_stride):
            part = ids[start : start + room]
            rows.append((example, start, len(part), len(before) - start))
            sequences.append([*before, *part, *template.end])
            after = len(part) + len(template.end)
            segments.append([0] * len(before) + [int(template.numbers_segments)] * after)
    inputs = inputs_of(sequences, segments, [length], tokenizer.pad_token_id)
    examples, first_tokens, num_tokens, shifts = np.array(rows, "int32").T
    offsets = [spans for _, spans in contexts]
    return QuestionWindows(inputs, examples, first_tokens, num_tokens, shifts, offsets)


def _check_example(
    example: int, question: Tokens, context: Tokens, room: int, length: int, doc_stride: int
) -> None:
    for name, (_, spans) in (("question", question), ("context", context)):
        # SentencePiece has tokens of white space only, whose spans are empty.
        if all(start == end for start, end in spans):
            raise ValueError(f"Received: a {name} without tokens in row {example}. Remove it.")
    if room < 1 or (len(context[0]) > room and doc_stride >= room):
        raise ValueError(
            "A question must leave room for its context, and windows must overlap. Received: "
            f"sequence_length={length}, which leaves room for {room} tokens of the context in row "
            f"{example}, and doc_stride={doc_stride}. Shorten the question, or choose a larger "
            "`sequence_length` or a smaller `doc_stride`."
        )
