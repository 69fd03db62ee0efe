"""Exact match and F1 of predicted answers against gold answers."""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def checked_answers(
    predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> list[tuple[str, list[str]]]:
    """Return each prediction with its gold answers.

    Raises:
        ValueError: If the lists are empty or have different lengths. If a prediction is not a
            string, or the gold answers of a question are not a list of strings.
    """
    for name, values in (("predictions", predictions), ("references", references)):
        if not _is_list(values):
            raise ValueError(
                f"`{name}` must be a list, with one row for each question. Received: "
                f"{_kind(values)}. Put a single prediction into a list, and its gold answers into "
                "a list in a list."
            )
    if not len(predictions) or len(predictions) != len(references):
        raise ValueError(
            "There must be at least one prediction, and as many lists of gold answers. Received: "
            f"{len(predictions)} predictions and {len(references)} lists."
        )
    pairs = []
    for row, (prediction, golds) in enumerate(zip(predictions, references, strict=True)):
        if not isinstance(prediction, str):
            raise ValueError(
                f"`predictions` must hold strings. Received: {prediction!r} in row {row}. Pass '' "
                "for a question without a predicted answer."
            )
        if not _is_list(golds) or not all(isinstance(gold, str) for gold in golds):
            raise ValueError(
                "`references` must hold a list of strings for each question. Received: "
                f"{golds!r} in row {row}. Put a single gold answer into a list."
            )
        pairs.append((prediction, list(golds)))
    return pairs


def _is_list(values: Any) -> bool:
    # Arrays and columns of tables are lists here, dictionaries are not.
    is_text_or_mapping = isinstance(values, (str, bytes, Mapping))
    return not is_text_or_mapping and hasattr(values, "__len__") and hasattr(values, "__iter__")


def _kind(values: Any) -> str:
    return "a string" if isinstance(values, str) else type(values).__name__


def exact_match(prediction: str, gold: str) -> float:
    """Return 1 for two answers that are equal after normalization, and 0 for others."""
    return float(prediction == gold)


def token_f1(prediction: str, gold: str) -> float:
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


def averages(
    pairs: Sequence[tuple[str, list[str]]],
    normalize: Callable[[str], str],
    f1: Callable[[str, str], float] = token_f1,
) -> dict[str, float]:
    """Return the means in percent. For each question, the best gold answer counts.

    Args:
        pairs: Predictions and their gold answers.
        normalize: Function of an answer.
        f1: Function of two answers after normalization. Defaults to `token_f1`.
    """
    normal = [(normalize(prediction), list(map(normalize, golds))) for prediction, golds in pairs]
    return {
        name: 100 * sum(_best(score, *pair) for pair in normal) / len(normal)
        for name, score in (("exact_match", exact_match), ("f1", f1))
    }


def _best(score: Callable[[str, str], float], prediction: str, golds: list[str]) -> float:
    # The official scripts fail without gold answers. No prediction can match one then.
    return max((score(prediction, gold) for gold in golds), default=0.0)
