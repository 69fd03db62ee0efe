"""The best spans over windows, against a loop over all spans."""

import numpy as np
import pytest

from keras_diet.models.hub.answer_search import find_candidates
from keras_diet.models.hub.question_windows import QuestionWindows

pytestmark = pytest.mark.any_backend
LENGTH = 17
# Windows of three examples: the first has windows at 0, 3 and 6 of a context of 13 tokens.
EXAMPLES, FIRST, NUMBER, PLACES = (
    [0, 0, 0, 1, 2],
    [0, 3, 6, 0, 0],
    [7, 7, 7, 1, 11],
    [4, 4, 4, 9, 5],
)


# Token i has the characters from 3 i to 3 i + 2.
OFFSETS = [[(3 * i, 3 * i + 2) for i in range(number)] for number in (13, 1, 11)]


def windows(offsets=OFFSETS):
    arrays = (np.array(values) for values in (EXAMPLES, FIRST, NUMBER, PLACES))
    return QuestionWindows({}, *arrays, offsets=offsets)


def characters(first, last):
    """The span of characters of the tokens from first to last."""
    return 3 * first, 3 * last + 2


def random_logits(seed):
    rng = np.random.default_rng(seed)
    # The question and [CLS] have the highest logits, so that they win if nothing excludes them.
    logits = rng.normal(size=(2, len(EXAMPLES), LENGTH)).astype("float32")
    for row, place in enumerate(PLACES):
        logits[:, row, 1:place] += 50
    logits[:, :, 0] += 20
    return {"start": logits[0], "end": logits[1]}


def by_loops(logits, max_answer_length):
    """The score of each span of each example, and the null scores."""
    scores, null_scores = [{} for _ in range(3)], [np.inf] * 3
    for row, example in enumerate(EXAMPLES):
        start, end = (logits[name][row].astype("float64") for name in ("start", "end"))
        null_scores[example] = min(null_scores[example], start[0] + end[0])
        for i in range(NUMBER[row]):
            for j in range(i, min(i + max_answer_length, NUMBER[row])):
                span = characters(FIRST[row] + i, FIRST[row] + j)
                score = start[PLACES[row] + i] + end[PLACES[row] + j]
                scores[example][span] = max(score, scores[example].get(span, -np.inf))
    return scores, null_scores


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("max_answer_length", [1, 3, 30])
def test_the_best_spans_are_those_of_all_spans(seed, max_answer_length):
    logits = random_logits(seed)
    scores, null_scores = by_loops(logits, max_answer_length)
    for n_best in (5, 1000):
        found = find_candidates(windows(), logits, n_best, max_answer_length)
        assert [each.null_score for each in found] == pytest.approx(null_scores)
        for each, expected in zip(found, scores, strict=True):
            ordered = sorted(expected, key=lambda span: (-expected[span], span))[:5]
            best = each.best(5)
            assert [span for _, span in best] == ordered
            assert [score for score, _ in best] == pytest.approx([expected[s] for s in ordered])
            assert n_best == 5 or set(each.scores) == set(expected)


def test_each_window_contributes_its_best():
    """With one span for each window, the second best span of the best window is missing."""
    logits = {name: np.zeros((5, LENGTH), "float32") for name in ("start", "end")}
    logits["start"][1, [5, 7]] = 9, 8
    logits["start"][2, 6] = 1
    first, *_ = find_candidates(windows(), logits, n_best=1, max_answer_length=1)
    assert first.best(9) == [
        (9.0, characters(4, 4)),
        (1.0, characters(8, 8)),
        (0.0, characters(0, 0)),
    ]


def test_windows_share_spans():
    """Token 6 of the context is in three windows. Its best score counts, once."""
    logits = {name: np.full((5, LENGTH), -5, "float32") for name in ("start", "end")}
    for row, (place, value) in enumerate([(10, 1), (7, 3), (4, 2)]):
        logits["start"][row, place] = logits["end"][row, place] = value
    first, *_ = find_candidates(windows(), logits, n_best=2, max_answer_length=1)
    assert first.best(2)[0] == (6.0, characters(6, 6))
    assert len(first.scores) == 4


def test_equal_scores_prefer_the_first_span():
    logits = {name: np.zeros((5, LENGTH), "float32") for name in ("start", "end")}
    first, *_ = find_candidates(windows(), logits, n_best=3, max_answer_length=2)
    assert [span for _, span in first.best(3)] == [
        characters(*tokens) for tokens in ((0, 0), (0, 1), (1, 1))
    ]


def test_equal_scores_of_several_windows_prefer_the_first_span():
    """The span (3, 9) is in the second window only, and comes before (4, 4) of the first one."""
    logits = {name: np.full((5, LENGTH), -9.0, "float32") for name in ("start", "end")}
    logits["start"][0, 4 + 4] = logits["end"][0, 4 + 4] = 1
    logits["start"][1, 4] = logits["end"][1, 4 + 6] = 1
    first, *_ = find_candidates(windows(), logits, n_best=1, max_answer_length=30)
    assert first.best(2) == [(2.0, characters(3, 9)), (2.0, characters(4, 4))]


def test_answers_begin_and_end_with_characters():
    """SentencePiece has tokens of white space only. They may be inside of an answer."""
    offsets = [OFFSETS[0], OFFSETS[1], [(0, 2), (3, 3), (3, 5), (6, 6), *OFFSETS[2][4:]]]
    logits = {name: np.zeros((5, LENGTH), "float32") for name in ("start", "end")}
    # The best logits are at these tokens.
    for name in logits:
        logits[name][4, [5 + 1, 5 + 3]] = 7
        logits[name][4, 5 + 2] = 3
    *_, last = find_candidates(windows(offsets), logits, n_best=1000, max_answer_length=3)
    assert last.best(3) == [(6.0, (3, 5)), (3.0, (0, 5)), (3.0, (3, 14))]
    assert all(start < end for start, end in last.scores)


def test_spans_of_the_same_characters_are_one_answer():
    """A character may become several tokens, such as a ligature. The best score counts."""
    offsets = [OFFSETS[0], OFFSETS[1], [(0, 1)] * 3 + OFFSETS[2][3:]]
    logits = {name: np.zeros((5, LENGTH), "float32") for name in ("start", "end")}
    logits["start"][4, 5 : 5 + 3] = 4, 6, 5
    logits["end"][4, 5 : 5 + 3] = 4, 5, 6
    *_, last = find_candidates(windows(offsets), logits, n_best=1000, max_answer_length=3)
    (best, second) = last.best(2)
    assert best == (12.0, (0, 1))
    assert second[1] != (0, 1)
