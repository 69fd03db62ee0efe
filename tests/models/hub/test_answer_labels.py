"""Answers as texts and characters: which ones are accepted, and which tokens they are."""

import re

import numpy as np
import pytest

from keras_diet.models.hub.answer_labels import check_answers, token_spans

pytestmark = pytest.mark.any_backend
CONTEXTS = ["The fox → see «Fox»", "fox fox"]


def answers(texts, starts):
    return {"text": texts, "answer_start": starts}


@pytest.mark.parametrize(
    "accepted",
    [
        answers(["→ see", "fox"], [8, 4]),
        answers(["", ""], [-1, -1]),
        answers(np.array(["The", "fox"]), np.array([0, 0])),
        answers([b"Fox", "x"], np.array([15, 6], "int64")),
    ],
)
def test_answers_at_their_places_are_accepted(accepted):
    check_answers(CONTEXTS, accepted)


def test_one_answer_of_one_context():
    check_answers(CONTEXTS[0], answers("Fox", 15))
    with pytest.raises(ValueError, match="with the start 4 in row 0, where the context has 'fox'"):
        check_answers(CONTEXTS[0], answers("Fox", 4))


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (["Fox", "fox"], "`y` must be the answers"),
        ([15, 0], "Received: list. For a question without answer, pass '' and -1."),
        ({"text": ["Fox", "fox"]}, "Received: the keys ['text']"),
        ({**answers(["", ""], [-1, -1]), "id": [1, 2]}, "the keys ['text', 'answer_start', 'id']"),
        (answers(["Fox"], [15]), "Received: 2 contexts, and the number of texts and starts [1, 1]"),
        (answers(["Fox", "fox"], [15]), "the number of texts and starts [2, 1]"),
        (answers(["Fox", "fox"], 15), "the number of texts and starts [2]"),
        (answers(["Fox", None], [15, 0]), "`y['text']` must hold strings. Received: None in row 1"),
        (answers(["Fox", np.nan], [15, 0]), "Received: nan in row 1"),
        (answers(["Fox", 3], [15, 0]), "Received: 3 in row 1"),
        (
            answers(["Fox", ["fox", "fox"]], [15, [0, 4]]),
            "one answer for each context. Received: ['fox', 'fox'] in row 1. Pass the first",
        ),
        (answers(("Fox", "fox"), [15, 0]), "`y['text']` must be a list. Received: a tuple"),
        (answers(np.array([["Fox"], ["fox"]]), [15, 0]), "in an array of several axes"),
        (answers(["Fox", "fox"], [15, None]), "Received: None in row 1"),
        (answers(["Fox", "fox"], [15, 0.5]), "Received: 0.5 in row 1"),
        (answers(["Fox", "fox"], ["15", "0"]), "Received: '15' in row 0"),
        (answers(["Fox", "fox"], [True, 0]), "Received: True in row 0"),
        (answers(["Fox", "fox"], [[15], [0]]), "Received: [15] in row 0"),
        (answers(["", "fox"], [3, 0]), "an empty text with the start 3 in row 0"),
        # One character off, in both directions, and behind the end.
        (
            answers(["Fox", "fox"], [15, 1]),
            "'fox' with the start 1 in row 1, where the context has 'ox '. It starts at 0.",
        ),
        (answers(["Fox", "fox"], [14, 0]), "where the context has '«Fo'. It starts at 15."),
        (answers(["Fox", "fox"], [15, 99]), "where the context has ''"),
        # Counted from the end, it would be there.
        (
            answers(["Fox", "fox"], [-4, 0]),
            "'Fox' with the start -4 in row 0, where the context has ''",
        ),
        (answers(["cat", "fox"], [0, 0]), "It is not there."),
    ],
)
def test_other_answers_are_refused(refused, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check_answers(CONTEXTS, refused)


def test_tokens_of_answers():
    """All tokens that share a character with the answer, also those that cross its border."""
    # "The fox", "→" has no token, "see" in two parts, "Fox" with its brackets.
    offsets = [[(0, 3), (4, 7), (10, 12), (12, 13), (14, 19)], [(0, 3), (4, 7)]]
    for texts, starts, expected in (
        (["The fox", "fox"], [0, 4], [[0, 1], [1, 1]]),
        (["fox → se", "fox fox"], [4, 0], [[1, 2], [0, 1]]),
        (["ee", ""], [11, -1], [[2, 3], [-1, -1]]),
        (["Fox", b"f"], [15, 0], [[4, 4], [0, 0]]),
        # A token that ends where the answer starts, and one that starts where it ends.
        (["e", "fox"], [12, 0], [[3, 3], [0, 0]]),
        (["se", "fox"], [10, 0], [[2, 2], [0, 0]]),
    ):
        found = token_spans(answers(texts, starts), offsets)
        assert found.tolist() == expected


def test_an_answer_without_tokens_is_refused():
    words = "Received: '→' in row 1, where the tokenizer finds no token"
    with pytest.raises(ValueError, match=words):
        token_spans(answers(["", "→"], [-1, 8]), [[(0, 3)], [(0, 3), (4, 7), (10, 13)]])
