"""Windows of contexts, the tokens of answers, and the best spans, against loops."""

import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.models.diet_bert.question_windows import (
    find_candidates,
    make_windows,
    token_spans,
)
from tests.models.question_answering import all_spans

pytestmark = pytest.mark.any_backend
# [PAD] is not 0, and all ids differ.
TOKENIZER = types.SimpleNamespace(start_token_id=7, end_token_id=5, pad_token_id=3)
quickly = settings(deadline=None, max_examples=20, derandomize=True)


def make(question_lengths, context_lengths, length, doc_stride, offsets=None):
    """Windows of tokens that tell where they come from: 100 + row, and 1000 * row + place.

    Token i of a context has the characters from 3 i to 3 i + 2.
    """
    questions = [([100 + row] * n, [(0, 1)] * n) for row, n in enumerate(question_lengths)]
    contexts = [
        (
            [1000 * (row + 1) + i for i in range(n)],
            offsets[row] if offsets else [(3 * i, 3 * i + 2) for i in range(n)],
        )
        for row, n in enumerate(context_lengths)
    ]
    return make_windows(questions, contexts, TOKENIZER, length, doc_stride)


# === Windows ===


def starts_of_bert(num_tokens, room, doc_stride):
    """Where the windows begin, as the loop of `run_squad.py` defines them."""
    starts, start = [], 0
    while start < num_tokens:
        starts.append(start)
        length = min(num_tokens - start, room)
        if start + length == num_tokens:
            break
        start += min(length, doc_stride)
    return starts


@st.composite
def batches(draw):
    """Lengths of questions and contexts, and a length and a stride that fit them."""
    examples = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 29)), min_size=1))
    questions, contexts = zip(*examples, strict=True)
    length = draw(st.integers(max(questions) + 5, 17))
    return questions, contexts, length, draw(st.integers(1, length - max(questions) - 4))


@quickly
@given(batches(), st.data())
def test_windows_cover_every_token_and_hold_answers_at_their_place(sizes, data):
    questions, contexts, length, stride = sizes
    windows = make(*sizes)
    spans = [
        data.draw(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).map(sorted))
        for n in contexts
    ]
    positions = windows.positions(np.array(spans))
    assert positions["start"].dtype == positions["end"].dtype == "int32"
    for example, (question, number) in enumerate(zip(questions, contexts, strict=True)):
        rows = np.flatnonzero(windows.examples == example)
        room = length - 3 - question
        assert windows.first_tokens[rows].tolist() == starts_of_bert(number, room, stride)
        covered = set()
        first, last = spans[example]
        for row in rows:
            begin = windows.first_tokens[row]
            end = begin + windows.num_tokens[row]
            ids, segments, mask = (array[row] for array in windows.inputs.values())
            assert ids[: question + 2].tolist() == [7, *[100 + example] * question, 5]
            in_context = segments.astype(bool)
            assert ids[in_context][-1] == 5
            assert set(ids[~mask]) <= {3}
            assert mask.sum() == question + 3 + end - begin
            assert (ids[in_context][:-1] - 1000 * (example + 1)).tolist() == list(range(begin, end))
            covered |= set(range(begin, end))
            found = [int(positions[name][row]) for name in ("start", "end")]
            if begin <= first and last < end:
                assert (ids[found] - 1000 * (example + 1)).tolist() == [first, last]
            else:
                assert found == [0, 0]
        assert covered == set(range(number))


def test_what_just_fits_is_accepted():
    """`tests/models/test_question_answering.py` has what does not fit."""
    assert make((6, 2, 2), (1, 5, 6), 10, 4).examples.tolist() == [0, 1, 2, 2]
    # SentencePiece has tokens of white space.
    with pytest.raises(ValueError, match="a context without tokens in row 1"):
        make((2, 2), (3, 1), 10, 2, [[(0, 1)] * 3, [(4, 4)]])


# === Tokens of answers ===


def test_tokens_of_answers():
    """All tokens that share a character with the answer, also those that cross its border."""
    # "The fox → see «Fox»", where "→" has no token, "see" has two, and "Fox" has its quotes.
    offsets = [[(0, 3), (4, 7), (10, 12), (12, 13), (14, 19)]] * 6
    texts, starts = ["The fox", "fox → se", "ee", "", "Fox", "e"], [0, 4, 11, -1, 15, 12]
    found = token_spans(texts, starts, offsets)
    assert found.tolist() == [[0, 1], [1, 2], [2, 3], [-1, -1], [4, 4], [3, 3]]
    with pytest.raises(ValueError, match="'→' in row 1, where the tokenizer finds no token"):
        token_spans(["", "→"], [-1, 8], offsets[:2])


# === The best spans ===


@quickly
@given(batches(), st.integers(1, 7), st.sampled_from([1, 2, 3, 30]), st.randoms())
def test_the_best_spans_are_those_of_all_spans(sizes, number, max_answer_length, random):
    """Some tokens have no characters, and some have the characters of the token before."""
    contexts = sizes[1]
    offsets = []
    for n in contexts:
        spans = [(0, 2)]
        for i in range(1, n):
            spans.append(random.choice([(3 * i, 3 * i + 2)] * 4 + [(3 * i, 3 * i), spans[-1]]))
        offsets.append(spans)
    windows = make(*sizes, offsets)
    shape = windows.inputs["token_ids"].shape
    # Whole numbers have ties. The question and [CLS] win if nothing excludes them.
    rng = np.random.default_rng(random.randrange(1000))
    logits = {name: rng.integers(0, 9, shape).astype("float32") for name in ("start", "end")}
    is_context = windows.inputs["segment_ids"] == 1
    for array in logits.values():
        array[~is_context] += 50
        array[:, 0] -= rng.integers(0, 100, shape[0])
    scores, null_scores = all_spans(windows, logits, max_answer_length)
    found = find_candidates(windows, logits, 10**6, max_answer_length)
    few = find_candidates(windows, logits, number, max_answer_length)
    for example, each in enumerate(found):
        assert each.scores == scores[example]
        assert each.null_score == few[example].null_score == null_scores[example]
        ordered = sorted(scores[example], key=lambda span: (-scores[example][span], span))
        assert [span for _, span in each.best(number)] == ordered[:number]
        # Each window has its best ones, so the scores are the same.
        best = [score for score, _ in few[example].best(number)]
        assert best == [scores[example][span] for span in ordered[:number]]


def zeros(value=0.0):
    return {name: np.full((5, 17), value, "float32") for name in ("start", "end")}


def test_each_window_contributes_its_best():
    """With one span for each window, the second best span of the best window is missing."""
    windows = make((10, 8), (10, 1), 17, 3)
    logits = zeros()
    logits["start"][1, [13, 15]] = 9, 8
    logits["start"][2, 14] = 1
    first, _ = find_candidates(windows, logits, n_best=1, max_answer_length=1)
    assert first.best(9) == [(9.0, (12, 14)), (1.0, (24, 26)), (0.0, (0, 2))]


def test_scores_that_are_not_numbers_are_shown():
    windows = make((3,), (5,), 17, 3)
    (found,) = find_candidates(windows, zeros(np.nan), n_best=2, max_answer_length=3)
    assert np.isnan(found.best(1)[0][0])
