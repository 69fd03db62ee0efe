"""The answers to questions, as parts of their contexts."""

import math
import numbers
from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet._compat import variables_restored
from keras_diet.models.hub.answer_labels import NO_START
from keras_diet.models.hub.answer_search import Candidates, find_candidates
from keras_diet.models.hub.array_batches import ArrayBatches
from keras_diet.models.hub.batches import preprocessed
from keras_diet.models.hub.method_checks import check_finite, checked_preprocessor
from keras_diet.models.hub.question_windows import QuestionWindows
from keras_diet.models.hub.texts import as_strings, check_texts_are_not_blank, is_one_text


def answer(
    task: keras.Model,
    questions: str | list[str],
    contexts: str | list[str],
    top_k: int | None = None,
    n_best: int = 20,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
    batch_size: int | None = None,
) -> Any:
    """Return the part of each context that answers its question.

    A context that is longer than the model becomes several windows. The score of a part is its
    start logit plus its end logit. Each window contributes its `n_best` parts, and the best part of
    all windows is the answer.

    Args:
        questions: A string, or a list of strings.
        contexts: A string for one question, or as many strings as there are questions.
        top_k: int or `None`. Number of answers for each question, at most `n_best`. A short context
            may have fewer. Defaults to `None`, which means the best answer itself, not in a list.
        n_best: int. Number of parts that each window contributes. Defaults to `20`.
        max_answer_length: int. The longest answer, in tokens. Defaults to `30`.
        null_threshold: float or `None`. With SQuAD 2.0, questions may have no answer. A question
            has none if `null_score` exceeds the best score by more than this. `null_score` is the
            lowest score of `[CLS]` over the windows. Defaults to `None`, which means that each
            question has an answer.
        batch_size: int or `None`. Number of windows in a batch. Defaults to `None`, which means 32.

    Returns:
        For one question, a dictionary. `"text"` is the answer, `"start"` and `"end"` are its
        characters in the context, so `context[start:end]` is the text, `"score"` is its score, and
        `"null_score"` the score of no answer. No answer is the text `""` with start and end -1.
        With `top_k`, a list of such dictionaries, the best one first. For several questions, a list
        with the result of each.

    Raises:
        ValueError: If the model has no preprocessor, if there are not as many contexts as
            questions, if an argument is out of its range, if logits are not finite, or as in
            `predict`.

    Example:

    ```python
    best = question_answerer.answer("the fox ?", "the quick fox")
    best["text"], best["score"], best["start"], best["end"]
    ```
    """
    _check_arguments(top_k, n_best, max_answer_length, null_threshold)
    preprocessor = checked_preprocessor(task, "answer")
    is_one = is_one_text((questions, contexts))
    questions, contexts = _checked_texts(questions, contexts)
    windows = preprocessor.windows(questions, contexts)
    logits = _logits(task, windows, validation.optional_positive_int("batch_size", batch_size))
    candidates = find_candidates(windows, logits, n_best, max_answer_length)
    results = [
        _answers(context, found, top_k or 1, null_threshold)
        for context, found in zip(contexts, candidates, strict=True)
    ]
    returned = [found[0] if top_k is None else found for found in results]
    return returned[0] if is_one else returned


def _checked_texts(questions, contexts):
    """Return questions and contexts as lists of strings, of which there are as many."""
    if is_one_text(questions) != is_one_text(contexts):
        raise ValueError(
            "`questions` and `contexts` must both be strings, or both be lists of strings. "
            f"Received: {type(questions).__name__} and {type(contexts).__name__}. Put each single "
            "string into a list."
        )
    lists = {"questions": questions, "contexts": contexts}
    for name, texts in lists.items():
        lists[name] = as_strings(texts, name)
        check_texts_are_not_blank(lists[name], name)
    if len(lists["questions"]) != len(lists["contexts"]):
        received = " and ".join(f"{len(texts)} {name}" for name, texts in lists.items())
        raise ValueError(
            "`contexts` must hold one context for each of the `questions`. Received: "
            f"{received}. Repeat a context for each of its questions."
        )
    return lists.values()


def _check_arguments(top_k, n_best, max_answer_length, null_threshold):
    validation.positive_int("n_best", n_best)
    validation.positive_int("max_answer_length", max_answer_length)
    if top_k is not None and validation.positive_int("top_k", top_k) > n_best:
        raise ValueError(
            f"`top_k` must be at most `n_best`, {n_best}. Received: top_k={top_k}. Choose a larger "
            "`n_best`."
        )
    is_number = isinstance(null_threshold, numbers.Real) and not isinstance(null_threshold, bool)
    if null_threshold is not None and (not is_number or math.isnan(null_threshold)):
        raise ValueError(
            "`null_threshold` must be a number, or `None` if each question has an answer. "
            f"Received: null_threshold={null_threshold!r}"
        )


def _logits(
    task: keras.Model, windows: QuestionWindows, batch_size: int | None
) -> dict[str, np.ndarray]:
    """Return the logits of all windows. Windows of one bucket have batches of their own."""
    shape = windows.inputs["token_ids"].shape
    lengths = np.array(task.preprocessor.lengths)
    buckets = lengths[np.searchsorted(lengths, windows.inputs["padding_mask"].sum(-1))]
    logits = {name: np.zeros(shape, "float32") for name in ("start", "end")}
    for length in np.unique(buckets):
        rows = np.flatnonzero(buckets == length)
        x = {name: array[rows, :length] for name, array in windows.inputs.items()}
        batches = preprocessed(ArrayBatches((x,), batch_size), lambda batch: batch)
        with variables_restored(task):
            found = keras.Model.predict(task, batches, verbose=0)
        for name, array in logits.items():
            array[rows, :length] = found[name]
    check_finite("answer", "logits", logits.values())
    return logits


def _answers(
    context: str, found: Candidates, number: int, null_threshold: float | None
) -> list[dict[str, Any]]:
    """Return the best answers of one question."""
    null_score = found.null_score
    best = found.best(number)
    answers = [
        {
            "text": context[start:end],
            "score": score,
            "start": start,
            "end": end,
            "null_score": null_score,
        }
        for score, (start, end) in best
    ]
    if null_threshold is not None and null_score - best[0][0] > null_threshold:
        place = {"start": NO_START, "end": NO_START}
        answers.insert(0, {"text": "", "score": null_score, **place, "null_score": null_score})
    return answers[:number]
