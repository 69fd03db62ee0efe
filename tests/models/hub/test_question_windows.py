"""Windows of contexts, and the places of answers in them, against BERT's loop."""

import itertools
import re
import types

import numpy as np
import pytest

from keras_diet.models.hub.question_windows import make_windows, window_starts

pytestmark = pytest.mark.any_backend
# [PAD] is not 0, and all ids differ.
TOKENIZER = types.SimpleNamespace(start_token_id=7, end_token_id=5, pad_token_id=3)


def spans_of_bert(num_tokens, room, doc_stride):
    """The first and the last token of each window, as the loop of `run_squad.py` defines them."""
    spans, start = [], 0
    while start < num_tokens:
        length = min(num_tokens - start, room)
        spans.append((start, start + length - 1))
        if start + length == num_tokens:
            break
        start += min(length, doc_stride)
    return spans


@pytest.mark.parametrize(
    ("num_tokens", "room", "doc_stride"),
    [*itertools.product((1, 2, 5, 6, 7, 11, 12, 13, 29), (5, 7), (1, 2, 3)), (10, 5, 4)],
)
def test_windows_begin_as_in_bert(num_tokens, room, doc_stride):
    expected = spans_of_bert(num_tokens, room, doc_stride)
    assert list(window_starts(num_tokens, room, doc_stride)) == [first for first, _ in expected]


def make(question_lengths, context_lengths, length, doc_stride):
    """Windows of tokens that tell where they come from: 100 + row, and 1000 * row + place."""
    questions = [[100 + row] * n for row, n in enumerate(question_lengths)]
    contexts = [
        ([1000 * (row + 1) + i for i in range(n)], [(2 * i, 2 * i + 1) for i in range(n)])
        for row, n in enumerate(context_lengths)
    ]
    return make_windows(questions, contexts, TOKENIZER, length, doc_stride)


def test_windows_hold_question_and_context():
    windows = make((2, 1), (7, 3), length=9, doc_stride=3)
    assert windows.inputs["token_ids"].tolist() == [
        [7, 100, 100, 5, 1000, 1001, 1002, 1003, 5],
        [7, 100, 100, 5, 1003, 1004, 1005, 1006, 5],
        [7, 101, 5, 2000, 2001, 2002, 5, 3, 3],
    ]
    assert windows.inputs["segment_ids"].tolist() == [
        [0] * 4 + [1] * 5,
        [0] * 4 + [1] * 5,
        [0] * 3 + [1] * 4 + [0] * 2,
    ]
    assert windows.inputs["padding_mask"].sum(-1).tolist() == [9, 9, 7]
    assert windows.examples.tolist() == [0, 0, 1]
    assert windows.first_tokens.tolist() == [0, 3, 0]
    assert windows.num_tokens.tolist() == [4, 4, 3]
    assert windows.places.tolist() == [4, 4, 3]


def test_places_of_answers_against_bert():
    """An answer counts only in windows that hold all of it. Elsewhere, [CLS] is the target."""
    question_lengths, context_lengths, length = (2, 4, 1), (23, 17, 5), 13
    windows = make(question_lengths, context_lengths, length, doc_stride=3)
    for spans in (
        [(4, 8), (16, 16), (0, 4)],
        [(0, 0), (-1, -1), (2, 3)],
        [(22, 22), (3, 7), (4, 4)],
    ):
        positions = windows.positions(np.array(spans))
        expected = []
        for question_length, number, (first, last) in zip(
            question_lengths, context_lengths, spans, strict=True
        ):
            room = length - question_length - 3
            for window_first, window_last in spans_of_bert(number, room, 3):
                is_inside = first >= 0 and window_first <= first and last <= window_last
                shift = question_length + 2 - window_first
                expected.append((first + shift, last + shift) if is_inside else (0, 0))
        found = list(zip(positions["start"].tolist(), positions["end"].tolist(), strict=True))
        assert found == expected
        for row, (start, end) in enumerate(found):
            if start:
                example = windows.examples[row]
                ids = windows.inputs["token_ids"][row, [start, end]] - 1000 * (example + 1)
                assert ids.tolist() == list(spans[example])
    assert windows.positions(np.array(spans))["start"].dtype == "int32"


@pytest.mark.parametrize(
    ("questions", "contexts", "stride", "message"),
    [
        (
            (2, 7),
            (3, 3),
            2,
            "at most 6 tokens with sequence_length=10. Received: 7 tokens in row 1",
        ),
        ((2, 8), (3, 3), 2, "Received: 8 tokens in row 1"),
        ((2, 2), (3, 0), 2, "a context without tokens in row 1"),
        ((2, 2), (3, 6), 5, "doc_stride=5 and room for 5 tokens in row 1"),
        ((2, 4), (3, 4), 3, "doc_stride=3 and room for 3 tokens in row 1"),
    ],
)
def test_examples_that_do_not_fit_are_refused(questions, contexts, stride, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(questions, contexts, 10, stride)


def test_contexts_of_white_space_are_refused():
    """SentencePiece may make tokens of it."""
    words = ([8], [(0, 3)])
    for white_space in (([9, 9], [(0, 0), (1, 1)]), ([], [])):
        with pytest.raises(ValueError, match="a context without tokens in row 1"):
            make_windows([[7], [7]], [words, white_space], TOKENIZER, 10, 2)
    mixed = ([9, 8], [(1, 1), (1, 4)])
    assert make_windows([[7]], [mixed], TOKENIZER, 10, 2).num_tokens.tolist() == [2]


def test_offsets_of_windows():
    windows = make((2, 1), (7, 3), length=9, doc_stride=3)
    tokens = [range(4), range(3, 7), range(3)]
    expected = [[(2 * i, 2 * i + 1) for i in of_window] for of_window in tokens]
    assert [list(windows.offsets_of(row)) for row in range(3)] == expected


def test_what_just_fits_is_accepted():
    windows = make((6, 2, 2), (1, 5, 6), 10, 4)
    assert windows.examples.tolist() == [0, 1, 2, 2]
