"""MLQA's exact match and F1. The expected values are computed by hand from the definitions."""

import string

import pytest

from keras_diet.metrics import mlqa_metrics, normalize_mlqa

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(
    ("language", "answer", "expected"),
    [
        ("en", "The «U.S.» Army", "us army"),
        ("en", "el zorro", "el zorro"),
        ("es", "¿Unos zorros y El gato?", "zorros y gato"),
        ("es", "the zorro", "the zorro"),
        ("de", "Des Fuchses Bau, dem „Hund“", "fuchses bau hund"),
        ("de", "Einerlei der Dem", "einerlei"),
        ("vi", "những Con cáo của tôi", "con cáo tôi"),
        # Hindi has no articles. Its full stop is punctuation.
        ("hi", "लोमड़ी।", "लोमड़ी"),
        # The Arabic article is a part of the word, and goes in every place.
        ("ar", "في القاهرة،", "في قاهرة"),
        ("ar", "البرتقال", "برتق"),
        ("zh", "在北京2008年 NBA、赛", "在 北 京 2008 年 nba 赛"),
        ("zh", "《the》", "the"),
        # Characters after U+9FA5 and of other blocks are not separated.
        ("zh", "㐀㐁鿿", "㐀㐁鿿"),
        ("en", "", ""),
    ],
)
def test_normalization(language, answer, expected):
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
# Words like articles, which none of the languages removes.
KEPT = "uno lo al del una-x ans keine dies các cũng le les"


@pytest.mark.parametrize("language", ARTICLES)
def test_each_language_has_its_articles_and_no_others(language):
    for other, articles in ARTICLES.items():
        for article in articles.split():
            is_removed = article in ARTICLES[language].split()
            found = normalize_mlqa(f"x {article} y", language)
            assert found == ("x y" if is_removed else f"x {article} y"), (other, article)
    for word in KEPT.split():
        kept = word.replace("-", "")
        assert normalize_mlqa(f"x {word} y", language) == f"x {kept} y"


@pytest.mark.parametrize("language", ARTICLES)
def test_punctuation_and_ascii_symbols_are_removed(language):
    symbols = string.punctuation + "«»„“”‘’¿¡،؛؟।。、《》「」…–—·"  # noqa: RUF001
    assert normalize_mlqa(f"x{symbols}y", language) == "xy"
    # Symbols of other scripts are no punctuation.
    assert normalize_mlqa("5€ 3° ½", language) == "5€ 3° ½"


def test_the_arabic_article_becomes_a_space():
    """Also inside of a word, so one word may become two."""
    assert normalize_mlqa("مثالي", "ar") == "مث ي"


@pytest.mark.parametrize(
    ("language", "prediction", "golds", "exact", "f1"),
    [
        ("de", "der Fuchs", ["Hunde", "ein Fuchs!"], 1, 1),
        ("es", "der zorro", ["zorro"], 0, 2 / 3),
        # 2 of 3 characters, and 2 of 4.
        ("zh", "北京市", ["在北京。", "北京大学"], 0, 2 * (2 / 3) * (2 / 3) / (4 / 3)),
        # 2008 is a word.
        ("zh", "2008年", ["2009年"], 0, 0.5),
        ("ar", "قاهرة", ["القاهرة"], 1, 1),
        ("ar", "", ["القاهرة"], 0, 0),
        # Nothing is left of both. F1 counts common words.
        ("en", "the", ["a"], 1, 0),
    ],
)
def test_scores(language, prediction, golds, exact, f1):
    found = mlqa_metrics([prediction], [golds], language)
    assert found == {"exact_match": 100 * exact, "f1": pytest.approx(100 * f1)}


@pytest.mark.parametrize("language", ["fr", None, "EN"])
def test_other_languages_are_refused(language):
    words = "`language` must be one of 'en', 'es', 'hi', 'vi', 'de', 'ar', 'zh'"
    for call in (
        lambda: normalize_mlqa("fox", language),
        lambda: mlqa_metrics(["fox"], [["fox"]], language),
    ):
        with pytest.raises(ValueError, match=words):
            call()
