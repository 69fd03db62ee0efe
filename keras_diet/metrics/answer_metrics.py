"""Exact match and F1 of predicted answers, as SQuAD and MLQA define them."""

import collections
import re
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence

from keras_diet import validation

_ARTICLES = {
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "hi": "",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    # The article is a part of the word. The official script removes these letters in all places.
    "ar": "ال",
    "zh": "",
}
_ASCII_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
# The Chinese characters that the official script separates.
_CHINESE_CHARACTER = re.compile("([\u4e00-\u9fa5])")


# === SQuAD ===


def normalize_squad(answer: str) -> str:
    """Return an answer as SQuAD compares it.

    It is in lower case, and without ASCII punctuation and English articles. Single spaces separate
    its words. Punctuation goes first, so "a.m." becomes "am", not "m".

    Args:
        answer: str. The answer.

    Example:

    ```python
    keras_diet.metrics.normalize_squad("The  U.S. Army!")  # "us army"
    ```

    References:
     - [Rajpurkar et al., 2016](https://arxiv.org/abs/1606.05250)
    """
    answer = answer.lower().translate(_ASCII_PUNCTUATION)
    return " ".join(re.sub(_ARTICLES["en"], " ", answer).split())


def squad_metrics(
    predictions: Sequence[str], references: Sequence[Sequence[str]], version: str = "1.1"
) -> dict[str, float]:
    """Return exact match and F1 in percent, as the official scripts of SQuAD.

    Both are means over the questions of the best value over the gold answers. An answer matches
    exactly if it is equal after `normalize_squad`. F1 compares the words of two answers.

    Args:
        predictions: list of strings. The predicted answers, `""` for no answer.
        references: list of lists of strings. The gold answers of each question. In SQuAD 2.0, a
            question without gold answers has no answer.
        version: `"1.1"` or `"2.0"`. Defaults to `"1.1"`. In 2.0, a gold answer that is empty after
            normalization does not count. A question without gold answers has the answer `""`, and
            F1 is 100 if both answers are empty. In 1.1, F1 is then 0.

    Returns:
        Dictionary of `"exact_match"` and `"f1"`, both from 0 to 100.

    Raises:
        ValueError: If there are not as many lists of gold answers as predictions, or if a string or
            a dictionary stands in the place of a list.

    Example:

    ```python
    predictions, references = ["The fox", "quick"], [["fox", "a red fox"], ["slow cat"]]
    keras_diet.metrics.squad_metrics(predictions, references)  # {"exact_match": 50.0, "f1": 50.0}
    ```

    References:
     - [Rajpurkar et al., 2016](https://arxiv.org/abs/1606.05250)
     - [Rajpurkar et al., 2018](https://arxiv.org/abs/1806.03822)
    """
    validation.choice("version", version, ("1.1", "2.0"))
    return _averages(predictions, references, normalize_squad, version == "2.0")


# === MLQA ===


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
    validation.choice("language", language, list(_ARTICLES))
    answer = answer.lower().translate(_ASCII_PUNCTUATION)
    answer = "".join(each for each in answer if unicodedata.category(each)[0] != "P")
    if _ARTICLES[language]:
        answer = re.sub(_ARTICLES[language], " ", answer)
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
        ValueError: If there are not as many lists of gold answers as predictions, if a string or a
            dictionary stands in the place of a list, or if MLQA does not have the language.

    Example:

    ```python
    keras_diet.metrics.mlqa_metrics(["der Fuchs"], [["ein Fuchs", "Hunde"]], "de")["f1"]  # 100.0
    ```

    References:
     - [Lewis et al., 2020](https://arxiv.org/abs/1910.07475)
    """
    return _averages(predictions, references, lambda answer: normalize_mlqa(answer, language))


# === Both ===


def _averages(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    normalize: Callable[[str], str],
    may_have_no_answer: bool = False,
) -> dict[str, float]:
    """Return the means over the questions in percent. The best gold answer of a question counts."""
    for values in (predictions, references, *references):
        if isinstance(values, (str, Mapping)):
            # Python would read its characters or its keys one by one.
            raise ValueError(
                "`predictions` must be a list of strings, and `references` a list with a list of "
                f"strings for each question. Received: {values!r:.70} in the place of a list."
            )
    exact_matches, scores = [], []
    for prediction, golds in zip(predictions, references, strict=True):
        prediction, golds = normalize(prediction), [normalize(gold) for gold in golds]
        if may_have_no_answer:
            golds = [gold for gold in golds if gold] or [""]
        exact_matches.append(prediction in golds)
        # The official scripts fail without gold answers. No prediction can match one then.
        f1 = max((_token_f1(prediction, gold) for gold in golds), default=0.0)
        has_no_answer = may_have_no_answer and golds == [""]
        scores.append(float(prediction == "") if has_no_answer else f1)
    number = len(scores)
    return {"exact_match": 100 * sum(exact_matches) / number, "f1": 100 * sum(scores) / number}


def _token_f1(prediction: str, gold: str) -> float:
    """Return the F1 score of the tokens of two answers after normalization.

        F1 = 2 P R / (P + R),  P = common / predicted tokens,  R = common / gold tokens

    Without common tokens it is 0, also for two answers without tokens.
    """
    predicted, expected = prediction.split(), gold.split()
    common = (collections.Counter(predicted) & collections.Counter(expected)).total()
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(expected)
    return 2 * precision * recall / (precision + recall)
