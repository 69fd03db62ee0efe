"""Windows of contexts, each after its question, and the spans of answers in them."""

import collections
import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_diet.models.hub.token_rows import inputs_of, largest, template_of
from keras_diet.types import Tensor

# The first character of a token or an answer in its text, and the one behind it.
Span = tuple[int, int]
# The ids of the tokens of a text, and their spans.
Tokens = tuple[Sequence[int], Sequence[Span]]
# The start of no answer, whose text is "".
NO_START = -1
# The logit of positions that cannot win. Their probability is zero, also in half precision.
EXCLUDED = -1e9


# === Windows ===


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


# === Spans ===


def mask_answer_logits(logits: Tensor, segment_ids: Tensor, padding_mask: Tensor) -> Tensor:
    """Return logits in float32, with -1e9 at all positions that cannot begin or end an answer.

    An answer may begin and end at `[CLS]`, the first position, and at the tokens of the context.
    These are the tokens of the second segment, except the last one, `[SEP]`. Without a second
    segment, as in RoBERTa's inputs, they are all tokens except the last one.

    Args:
        logits: Tensor of shape `(B, T)`.
        segment_ids: Integers of shape `(B, T)`: 1 for context and its `[SEP]`, or all 0.
        padding_mask: Booleans or integers of shape `(B, T)`.
    """
    padding_mask = ops.cast(padding_mask, "bool")
    # `[SEP]` is the token that no other token follows.
    next_mask = ops.concatenate([padding_mask[:, 1:], ops.zeros_like(padding_mask[:, :1])], axis=1)
    has_one_segment = ops.logical_not(ops.any(segment_ids, axis=1, keepdims=True))
    is_second = ops.logical_or(ops.equal(segment_ids, 1), has_one_segment)
    is_context = ops.logical_and(is_second, next_mask)
    is_allowed = ops.concatenate([ops.ones_like(is_context[:, :1]), is_context[:, 1:]], axis=1)
    return ops.where(is_allowed, ops.cast(logits, "float32"), EXCLUDED)


def token_spans(
    texts: Iterable[str], starts: Iterable[int], offsets: Sequence[Sequence[Span]]
) -> np.ndarray:
    """Return the first and the last token of each answer, or -1 for questions without answer.

    These are the tokens that share a character with the answer. A token that crosses the border of
    an answer belongs to it.

    Args:
        texts: The text of each answer, or `""`.
        starts: The character of the context where the answer starts.
        offsets: For each context, the `(start, end)` characters of each token.

    Returns:
        Integers of shape `(num_examples, 2)`.
    """
    spans = np.full((len(offsets), 2), -1, "int32")
    for row, (text, start, of_context) in enumerate(zip(texts, starts, offsets, strict=True)):
        if not text:
            continue
        tokens = [i for i, (a, b) in enumerate(of_context) if a < start + len(text) and b > start]
        if not tokens:
            raise ValueError(
                f"An answer must have at least one token of its context. Received: {text!r} in row "
                f"{row}, where the tokenizer finds no token. Remove the row."
            )
        spans[row] = tokens[0], tokens[-1]
    return spans


class Candidates:
    """What the windows of one context say about its question.

    Attributes:
        scores: The best score of each span of characters of the context.
        null_score: The score of no answer: the lowest score of `[CLS]` over the windows.
    """

    def __init__(self) -> None:
        self.scores: dict[Span, float] = {}
        self.null_score = float("inf")

    def best(self, number: int) -> list[tuple[float, Span]]:
        """Return scores and spans, the highest score first. Of equal scores, the first span."""
        ordered = ((score, span) for span, score in self.scores.items())
        return heapq.nsmallest(number, ordered, key=lambda pair: (-pair[0], pair[1]))


def find_candidates(
    windows: QuestionWindows, logits: dict[str, np.ndarray], n_best: int, max_answer_length: int
) -> list[Candidates]:
    """Return the best spans of each example.

    The score of a span is the sum of the start logit of its first token and the end logit of its
    last token. All spans of a window compete, up to a length. BERT combines the best starts with
    the best ends only. The result is the same unless the best span has one of the other starts or
    ends.

    A span neither begins nor ends at a token without characters. SentencePiece has such tokens:
    white space before an unknown word.

    Args:
        windows: The windows.
        logits: `"start"` and `"end"` of shape `(num_windows, length)`.
        n_best: Number of spans that each window contributes.
        max_answer_length: Largest number of tokens of a span.
    """
    candidates = [Candidates() for _ in windows.offsets]
    for row, example in enumerate(windows.examples):
        found = candidates[example]
        start, end = (logits[name][row].astype("float64") for name in ("start", "end"))
        found.null_score = min(found.null_score, float(start[0] + end[0]))
        first, number = windows.first_tokens[row], windows.num_tokens[row]
        offsets = windows.offsets[example][first : first + number]
        context = slice(first + windows.shifts[row], first + windows.shifts[row] + number)
        is_empty = [begin == stop for begin, stop in offsets]
        start, end = (np.where(is_empty, -np.inf, each[context]) for each in (start, end))
        # Tokens of one character, such as those of "…", make the same span several times.
        copies = [max(collections.Counter(edges).values()) for edges in zip(*offsets, strict=True)]
        n_cells = n_best * math.prod(copies)
        best: dict[Span, float] = {}
        for score, i, j in _best_spans(start, end, n_cells, max_answer_length):
            best.setdefault((offsets[i][0], offsets[j][1]), score)
        for span, score in itertools.islice(best.items(), n_best):
            # Windows overlap, so they may contribute the same span.
            found.scores[span] = max(score, found.scores.get(span, -np.inf))
    return candidates


def _best_spans(
    start: np.ndarray, end: np.ndarray, n_best: int, max_answer_length: int
) -> list[tuple[float, int, int]]:
    """Return the scores, first and last tokens of the best spans, the best one first."""
    lengths = np.arange(min(max_answer_length, len(start)))
    last = np.arange(len(start))[:, None] + lengths
    is_inside = last < len(end)
    scores = start[:, None] + end[np.minimum(last, len(end) - 1)]
    scores = np.where(is_inside, scores, -np.inf).ravel()
    possible = np.flatnonzero(scores != -np.inf)
    best = possible[largest(scores[possible], n_best)]
    first, extra = np.divmod(best, len(lengths))
    return list(zip(scores[best].tolist(), first.tolist(), (first + extra).tolist(), strict=True))
