"""The metrics of MLQA, whose normalization depends on the language."""

import re
import string
import sys
import unicodedata
from collections.abc import Sequence

from keras_diet import validation
from keras_diet.metrics.answer_scores import averages, checked_answers

_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "hi": None,
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    # The article is a part of the word. The official script removes these letters in all places.
    "ar": "ال",
    "zh": None,
}
LANGUAGES = tuple(_ARTICLES)
_PUNCTUATION = {
    chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "P"
}
_WITHOUT_PUNCTUATION = str.maketrans(dict.fromkeys(_PUNCTUATION | set(string.punctuation)))
# The Chinese characters that the official script separates.
_CHINESE_CHARACTER = re.compile("([\u4e00-\u9fa5])")


def normalize_mlqa(answer: str, language: str) -> str:
    """Return an answer as MLQA compares it.

    It is in lower case, and without punctuation of any script and articles of its language. Single
    spaces separate its words, and in Chinese, single characters. Languages that MLQA does not have
    raise a `ValueError`.

    Args:
        answer: str. The answer.
        language: str. The language of the context: `"en"`, `"es"`, `"hi"`, `"vi"`, `"de"`, `"ar"`
            or `"zh"`.

    Example:

    ```python
    keras_diet.metrics.normalize_mlqa("Die Stadt, heute!", "de")  # "stadt heute"
    ```

    References:
     - [Lewis et al., 2020](https://arxiv.org/abs/1910.07475)
    """
    validation.choice("language", language, LANGUAGES)
    answer = answer.lower().translate(_WITHOUT_PUNCTUATION)
    articles = _ARTICLES[language]
    if articles:
        answer = re.sub(articles, " ", answer)
    if language == "zh":
        answer = _CHINESE_CHARACTER.sub(r" \1 ", answer)
    return " ".join(answer.split())


def mlqa_metrics(
    predictions: Sequence[str], references: Sequence[Sequence[str]], language: str
) -> dict[str, float]:
    """Return exact match and F1 in percent, as the official script of MLQA.

    Both are means over the questions of the best value over the gold answers, after
    `normalize_mlqa`. F1 compares words, and in Chinese, characters.

    Args:
        predictions: list of strings. The predicted answers, `""` for no answer.
        references: list of lists of strings. The gold answers of each question.
        language: str. The language of the contexts, as in `normalize_mlqa`. MLQA's questions may
            have another language.

    Returns:
        Dictionary of `"exact_match"` and `"f1"`, both from 0 to 100.

    Raises:
        ValueError: If there are not as many lists of gold answers as predictions, or if MLQA does
            not have the language.

    Example:

    ```python
    keras_diet.metrics.mlqa_metrics(["der Fuchs"], [["ein Fuchs", "Hunde"]], "de")["f1"]  # 100.0
    ```

    References:
     - [Lewis et al., 2020](https://arxiv.org/abs/1910.07475)
    """
    validation.choice("language", language, LANGUAGES)
    pairs = checked_answers(predictions, references)
    return averages(pairs, lambda answer: normalize_mlqa(answer, language))
