"""The metrics of SQuAD 1.1 and SQuAD 2.0."""

import re
import string
from collections.abc import Sequence

from keras_diet import validation
from keras_diet.metrics.answer_scores import averages, checked_answers, exact_match, token_f1

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


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
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_WITHOUT_PUNCTUATION)).split())


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
        ValueError: If there are not as many lists of gold answers as predictions.

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
    pairs = checked_answers(predictions, references)
    if version == "1.1":
        return averages(pairs, normalize_squad)
    with_answers = [
        (prediction, [gold for gold in golds if normalize_squad(gold)] or [""])
        for prediction, golds in pairs
    ]
    return averages(with_answers, normalize_squad, _f1_of_answers_or_none)


def _f1_of_answers_or_none(prediction: str, gold: str) -> float:
    return token_f1(prediction, gold) if prediction and gold else exact_match(prediction, gold)
