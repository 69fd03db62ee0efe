"""Exact match and F1. The expected values are computed by hand from the definitions."""

import string

import pytest

from keras_diet.metrics import mlqa_metrics, normalize_mlqa, normalize_squad, squad_metrics

pytestmark = pytest.mark.any_backend

# === SQuAD ===


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
def test_normalization_of_squad(answer, expected):
    assert normalize_squad(answer) == expected


SCORES_OF_SQUAD = {
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


@pytest.mark.parametrize("prediction, golds, exact, f1", SCORES_OF_SQUAD.values())
def test_scores_of_squad(prediction, golds, exact, f1):
    for version in ("1.1", "2.0"):
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


# === MLQA ===


@pytest.mark.parametrize(
    ("language", "answer", "expected"),
    [
        # Punctuation goes before articles.
        ("en", "l\u2019a", "la"),
        ("es", "¿Unos zorros y El gato?", "zorros y gato"),
        ("de", "Des Fuchses Bau, dem „Hund“", "fuchses bau hund"),
        ("vi", "những Con cáo của tôi", "con cáo tôi"),
        # Hindi has no articles. Its full stop is punctuation.
        ("hi", "लोमड़ी।", "लोमड़ी"),
        # The Arabic article is a part of the word, and goes in every place.
        ("ar", "في القاهرة،", "في قاهرة"),
        # It becomes a space, so one word may become two.
        ("ar", "البرتقال مثالي", "برتق مث ي"),
        ("zh", "在北京2008年 NBA、赛", "在 北 京 2008 年 nba 赛"),
        ("zh", "《the》", "the"),
        # Characters after U+9FA5 and of other blocks are not separated.
        ("zh", "㐀㐁鿿", "㐀㐁鿿"),
    ],
)
def test_normalization_of_mlqa(language, answer, expected):
    assert normalize_mlqa(answer, language) == expected


# Copied from the official script.
ARTICLES = {
    "en": "a an the",
    "es": "un una unos unas el la los las",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "vi": "của là cái chiếc những",
    "ar": "ال",
    "hi": "",
    "zh": "",
}


@pytest.mark.parametrize("language", ARTICLES)
def test_each_language_has_its_articles_and_no_others(language):
    for other, articles in ARTICLES.items():
        for article in articles.split():
            is_removed = article in ARTICLES[language].split()
            found = normalize_mlqa(f"x {article} y", language)
            assert found == ("x y" if is_removed else f"x {article} y"), (other, article)
    kept = "x uno lo al del ans keine dies các cũng le les y"
    assert normalize_mlqa(kept, language) == kept


@pytest.mark.parametrize("language", ARTICLES)
def test_punctuation_and_ascii_symbols_are_removed(language):
    symbols = string.punctuation + "«»„“”‘’¿¡،؛؟।。、《》「」…–—·"  # noqa: RUF001
    assert normalize_mlqa(f"x{symbols}y", language) == "xy"
    # Symbols of other scripts are no punctuation.
    assert normalize_mlqa("5€ 3° ½", language) == "5€ 3° ½"


@pytest.mark.parametrize(
    ("language", "prediction", "golds", "exact", "f1"),
    [
        ("es", "der zorro", ["hunde", "el zorro!"], 0, 2 / 3),
        # 2 of 3 characters, and 2 of 4.
        ("zh", "北京市", ["在北京。", "北京大学"], 0, 2 * (2 / 3) * (2 / 3) / (4 / 3)),
        # 2008 is a word.
        ("zh", "2008年", ["2009年"], 0, 0.5),
        ("ar", "قاهرة", ["القاهرة"], 1, 1),
        # Nothing is left of both. F1 counts common words.
        ("en", "the", ["a"], 1, 0),
    ],
)
def test_scores_of_mlqa(language, prediction, golds, exact, f1):
    found = mlqa_metrics([prediction], [golds], language)
    assert found == {"exact_match": 100 * exact, "f1": pytest.approx(100 * f1)}


# === Errors ===

REFUSED = {
    "a string": (lambda: squad_metrics("fox", [["f"], ["o"], ["x"]]), "'fox' in the place of a l"),
    "a dictionary": (lambda: squad_metrics({"q1": "fox"}, [["fox"]]), "Received: {'q1': 'fox'}"),
    "a gold answer": (lambda: squad_metrics(["fox", "cat"], [["fox"], "cat"]), "Received: 'cat'"),
    # The answers in the data sets of Hugging Face.
    "gold answers": (lambda: mlqa_metrics(["fox"], [{"text": ["fox"]}], "de"), "ved: {'text': "),
    "more predictions": (lambda: squad_metrics(["a", "b"], [["a"]]), "zip"),
    "version": (lambda: squad_metrics(["a"], [["a"]], 2), "`version` must be one of '1.1', '2.0'"),
    "language": (lambda: mlqa_metrics(["a"], [["a"]], "EN"), "`language` must be one of 'en', 'es"),
}


@pytest.mark.parametrize("call, message", REFUSED.values(), ids=list(REFUSED))
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
