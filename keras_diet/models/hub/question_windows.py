"""Windows of contexts, each after its question: the sequences of a question answerer."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

# `[CLS] question [SEP] context [SEP]`.
NUM_SPECIAL_TOKENS = 3


@dataclasses.dataclass(frozen=True)
class QuestionWindows:
    """The windows of a batch of questions and contexts.

    Attributes:
        inputs: Dictionary of the arrays `"token_ids"`, `"segment_ids"` and `"padding_mask"` of
            shape `(num_windows, length)`.
        examples: Integers of shape `(num_windows,)`. The row of the question and the context.
        first_tokens: Integers of shape `(num_windows,)`. Where the window begins in the context.
        num_tokens: Integers of shape `(num_windows,)`. The number of tokens of the context.
        places: Integers of shape `(num_windows,)`. Where the context begins in the sequence.
        offsets: For each example, the `(start, end)` characters of each token of the context.
    """

    inputs: dict[str, np.ndarray]
    examples: np.ndarray
    first_tokens: np.ndarray
    num_tokens: np.ndarray
    places: np.ndarray
    offsets: Sequence[Sequence[tuple[int, int]]]

    def offsets_of(self, row: int) -> Sequence[tuple[int, int]]:
        """Return the characters of each token of the context in a window."""
        first = self.first_tokens[row]
        return self.offsets[self.examples[row]][first : first + self.num_tokens[row]]

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
        shift = self.places - self.first_tokens
        return {
            "start": np.where(is_inside, first + shift, 0).astype("int32"),
            "end": np.where(is_inside, last + shift, 0).astype("int32"),
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
    questions: Sequence[Sequence[int]],
    contexts: Sequence[tuple[Sequence[int], Sequence[tuple[int, int]]]],
    tokenizer: Any,
    length: int,
    doc_stride: int,
) -> QuestionWindows:
    """Return the windows of questions and contexts, example after example.

    Args:
        questions: The token ids of each question.
        contexts: The token ids of each context, and the characters of each token.
        tokenizer: A tokenizer with the ids of the start, end and padding token.
        length: Length of the sequences.
        doc_stride: Distance in tokens between the beginnings of two windows of a context.

    Raises:
        ValueError: If a question fills the window, if a context has no tokens, or if the windows
            would leave tokens of a context out.
    """
    rows = []
    for example, (question, (context, spans)) in enumerate(zip(questions, contexts, strict=True)):
        _check_context(example, spans)
        room = length - NUM_SPECIAL_TOKENS - len(question)
        _check_room(example, len(question), len(context), room, length, doc_stride)
        rows += [
            (example, start, min(room, len(context) - start))
            for start in window_starts(len(context), room, doc_stride)
        ]
    examples, first_tokens, num_tokens = np.array(rows, "int32").T
    token_ids = np.full((len(rows), length), tokenizer.pad_token_id, "int32")
    segment_ids = np.zeros((len(rows), length), "int32")
    padding_mask = np.zeros((len(rows), length), "bool")
    places = np.array([len(questions[example]) + 2 for example in examples], "int32")
    for row, (example, start, number) in enumerate(rows):
        before = [tokenizer.start_token_id, *questions[example], tokenizer.end_token_id]
        part = contexts[example][0][start : start + number]
        ids = [*before, *part, tokenizer.end_token_id]
        token_ids[row, : len(ids)] = ids
        segment_ids[row, len(before) : len(ids)] = 1
        padding_mask[row, : len(ids)] = True
    inputs = {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask}
    offsets = [offsets for _, offsets in contexts]
    return QuestionWindows(inputs, examples, first_tokens, num_tokens, places, offsets)


def _check_context(example, spans):
    # SentencePiece has tokens of white space only, whose spans are empty.
    if all(start == end for start, end in spans):
        raise ValueError(
            "A context must have at least one token. Received: a context without tokens in row "
            f"{example}. Remove such rows."
        )


def _check_room(example, question_length, context_length, room, length, doc_stride):
    if room < 1:
        raise ValueError(
            f"A question must leave room for its context: at most {length - NUM_SPECIAL_TOKENS - 1}"
            f" tokens with sequence_length={length}. Received: {question_length} tokens in row "
            f"{example}. Shorten the question, or choose a larger `sequence_length`."
        )
    if context_length > room and doc_stride >= room:
        raise ValueError(
            "`doc_stride` must be less than the room for the context, because windows overlap. "
            f"Received: doc_stride={doc_stride} and room for {room} tokens in row {example}, whose "
            f"question has {question_length} tokens. Choose a smaller `doc_stride`, or a larger "
            "`sequence_length`."
        )
