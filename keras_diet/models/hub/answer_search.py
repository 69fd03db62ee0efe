"""The best spans of contexts, from the logits of their windows."""

import dataclasses
import heapq

import numpy as np

from keras_diet.models.hub.question_windows import QuestionWindows


@dataclasses.dataclass
class Candidates:
    """What the windows of one context say about its question.

    Attributes:
        scores: The best score of each span `(start, end)` of characters of the context.
        null_score: The score of no answer: the lowest score of `[CLS]` over the windows.
    """

    scores: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)
    null_score: float = float("inf")

    def best(self, number: int) -> list[tuple[float, tuple[int, int]]]:
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
        offsets = windows.offsets_of(row)
        is_empty = [first == last for first, last in offsets]
        context = slice(windows.places[row], windows.places[row] + windows.num_tokens[row])
        start, end = (np.where(is_empty, -np.inf, each[context]) for each in (start, end))
        for score, first, last in _best_spans(start, end, n_best, max_answer_length):
            # Windows overlap, so they may contribute the same span.
            span = (offsets[first][0], offsets[last][1])
            found.scores[span] = max(score, found.scores.get(span, -np.inf))
    return candidates


def _best_spans(
    start: np.ndarray, end: np.ndarray, n_best: int, max_answer_length: int
) -> list[tuple[float, int, int]]:
    """Return the scores, first and last tokens of the best spans, the best one first."""
    number = len(start)
    lengths = np.arange(min(max_answer_length, number))
    # Spans that would end after the window get no score.
    padded = np.concatenate([end, np.full(len(lengths), -np.inf)])
    scores = (start[:, None] + padded[np.arange(number)[:, None] + lengths]).ravel()
    # Sorting all scores would take ten times as long.
    limit = np.partition(scores, -n_best)[-n_best] if len(scores) > n_best else -np.inf
    best = np.flatnonzero((scores >= limit) & (scores > -np.inf))
    best = best[np.argsort(-scores[best], kind="stable")][:n_best]
    first, extra = np.divmod(best, len(lengths))
    return list(zip(scores[best].tolist(), first.tolist(), (first + extra).tolist(), strict=True))
