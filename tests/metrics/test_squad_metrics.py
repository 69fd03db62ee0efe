"""SQuAD's exact match and F1. The expected values are computed by hand from the definitions."""

import numpy as np
import pytest

from keras_diet.metrics import normalize_squad, squad_metrics

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The  U.S. Army!", "us army"),
        # Punctuation goes first, so "a.m." has no article.
        ("at 5 a.m.", "at 5 am"),
        ("a-n the-other", "theother"),
        ("An\tanthem\nfor the thesis", "anthem for thesis"),
        ("the", ""),
        ("...", ""),
        ("", ""),
        # Only ASCII punctuation counts, and only English articles.
        ("«la» ville„s", "«la» ville„s"),
        ("在北京。", "在北京。"),
    ],
)
def test_normalization(answer, expected):
    assert normalize_squad(answer) == expected


SCORES = {
    # 2 of 3 predicted words, 2 of 2 gold words.
    "overlap": ("red fox sleeps", ["the red fox"], 0, 2 * (2 / 3) * 1 / (2 / 3 + 1)),
    "article": ("The fox", ["fox"], 1, 1),
    "best of several": ("slow red fox", ["cat", "fox", "slow fox"], 0, 2 * (2 / 3) / (5 / 3)),
    # The best F1 and the exact match belong to different gold answers.
    "exact match of another": ("fox", ["fox fox", "a fox."], 1, 1),
    # A word counts as often as both answers have it: 2 of 3, and 2 of 2.
    "repeated words": ("fox fox fox", ["fox fox"], 0, 0.8),
    "order does not count for F1": ("fox red", ["red fox"], 0, 1),
    "nothing in common": ("cat", ["fox"], 0, 0),
    "empty prediction": ("", ["fox"], 0, 0),
}


@pytest.mark.parametrize("version", ["1.1", "2.0"])
@pytest.mark.parametrize("case", SCORES)
def test_scores(case, version):
    prediction, golds, exact, f1 = SCORES[case]
    found = squad_metrics([prediction], [golds], version)
    assert found == {"exact_match": 100 * exact, "f1": pytest.approx(100 * f1)}


@pytest.mark.parametrize(
    ("prediction", "golds", "first", "second"),
    [
        # Both answers are empty after normalization. 1.1 divides by no common words.
        ("the", ["a"], (100, 0), (100, 100)),
        # 2.0 leaves out gold answers that are empty after normalization.
        ("the", ["a", "fox"], (100, 0), (0, 0)),
        # Questions without answer belong to 2.0. No gold answer can match in 1.1.
        ("", [], (0, 0), (100, 100)),
        ("fox", [], (0, 0), (0, 0)),
    ],
)
def test_versions_differ_in_empty_answers(prediction, golds, first, second):
    for version, (exact, f1) in (("1.1", first), ("2.0", second)):
        found = squad_metrics([prediction], [golds], version)
        assert found == {"exact_match": exact, "f1": f1}, version


def test_means_are_over_questions():
    predictions, golds = ["fox", "red fox", "cat"], [["fox"], ["fox"], ["dog", "bird"]]
    found = squad_metrics(predictions, golds)
    assert found == {
        "exact_match": pytest.approx(100 / 3),
        "f1": pytest.approx(100 * (1 + 2 / 3 + 0) / 3),
    }


@pytest.mark.parametrize(
    ("predictions", "golds", "message"),
    [
        ([], [], "at least one prediction"),
        (["a", "b"], [["a"]], "2 predictions and 1 lists"),
        ("fox", [["fox"]], "Received: a string"),
        (["fox", None], [["fox"], ["fox"]], "Received: None in row 1"),
        (["fox", "cat"], [["fox"], "cat"], "Received: 'cat' in row 1"),
        (["fox"], [["fox", 3]], r"Received: \['fox', 3\] in row 0"),
        # The answers in the data sets of Hugging Face. Their keys are strings too.
        (["fox"], [{"text": ["fox"], "answer_start": [0]}], r"Received: \{'text': .* in row 0"),
        (["fox"], [None], "Received: None in row 0"),
        ({"q1": "fox"}, {"q1": ["fox"]}, "`predictions` must be a list.*Received: dict"),
        (["fox"], {"q1": ["fox"]}, "`references` must be a list.*Received: dict"),
        ((text for text in ["fox"]), [["fox"]], "Received: generator"),
    ],
)
def test_wrong_arguments_are_refused(predictions, golds, message):
    with pytest.raises(ValueError, match=message):
        squad_metrics(predictions, golds)


def test_arrays_and_tuples_are_lists():
    expected = {"exact_match": 50.0, "f1": 50.0}
    for kind in (tuple, np.array):
        assert squad_metrics(kind(["fox", "cat"]), kind([["fox"], ["dog"]])) == expected


def test_unknown_versions_are_refused():
    with pytest.raises(ValueError, match=r"`version` must be one of '1.1', '2.0'.*version=2"):
        squad_metrics(["fox"], [["fox"]], 2)
