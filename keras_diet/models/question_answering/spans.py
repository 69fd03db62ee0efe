"""Spans of answers: where they may begin and end, their tokens, and the best ones of a model."""

import collections
import heapq
import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from keras import ops

from keras_diet._arrays import largest
from keras_diet.models.question_answering.windows import QuestionWindows
from keras_diet.types import Tensor

# The start of no answer, whose text is "".
NO_START = -1
# The logit of positions that cannot win. Their probability is zero, also in half precision.
EXCLUDED = -1e9
# The first and the last character of an answer in its context.
Span = tuple[int, int]


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
