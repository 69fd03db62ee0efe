"""From questions and contexts to windows and the places of answers, for any model family."""

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_diet import validation
from keras_diet.data.columns import host_column, number_of_rows
from keras_diet.models.hub.classes import checked_weights
from keras_diet.models.hub.preprocessor import HubPreprocessor, TokenPreprocessor
from keras_diet.models.hub.texts import texts_of
from keras_diet.models.hub.token_rows import buckets_of
from keras_diet.models.question_answering.spans import NO_START, token_spans
from keras_diet.models.question_answering.windows import QuestionWindows, make_windows

# BERT's windows of 384 tokens begin 128 tokens apart.
_DOC_STRIDE, _WINDOWS_PER_LENGTH = 128, 3


class QuestionAnswererPreprocessor(HubPreprocessor, TokenPreprocessor):
    """A preprocessor that cuts contexts into windows, each after its question.

    KerasHub has no such preprocessor. Put this class after the mixin of a family. The tokenizer of
    the family needs `tokenize_with_offsets`.

    Args:
        tokenizer: The tokenizer.
        sequence_length: int. The length of a window with its question. Defaults to `384`.
        doc_stride: int or `None`. The distance in tokens between the beginnings of two windows of a
            context. Defaults to `None`, which means a third of `sequence_length`, at most 128.
        **kwargs: Keyword arguments of `HubPreprocessor`.
    """

    # Answers are texts.
    converts_labels = True

    def __init__(
        self,
        tokenizer: Any,
        sequence_length: int = 384,
        doc_stride: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length=sequence_length, **kwargs)
        if doc_stride is None:
            doc_stride = min(_DOC_STRIDE, max(1, sequence_length // _WINDOWS_PER_LENGTH))
        self.doc_stride = validation.positive_int("doc_stride", doc_stride)

    def is_one(self, x: Any) -> bool:
        """Return `False`, because one example may become several windows."""
        return False

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return the windows of all examples, with the places of answers and with weights.

        A weight of an example becomes the weight of all of its windows.

        Raises:
            ValueError: For texts that are missing or empty, for parts of different lengths, for a
                question that leaves no room, for a `doc_stride` that would skip tokens, and for an
                answer that is not in its context at its start.
        """
        if not isinstance(x, tuple) or len(x) != 2:
            raise ValueError(
                "`x` must be a tuple (questions, contexts) of strings, or of lists of strings. "
                f"Received: {type(x).__name__}"
            )
        questions, contexts = texts_of(x[0], "x[0]"), texts_of(x[1], "x[1]")
        if y is not None:
            texts, starts = _texts_and_starts(y)
            number_of_rows(questions=questions, contexts=contexts, y=(texts, starts))
            _check_answers(contexts, texts, starts)
        if sample_weight is not None:
            is_one = np.ndim(sample_weight) == 0
            sample_weight = checked_weights([sample_weight] if is_one else sample_weight, (None, 1))
            number_of_rows(questions=questions, sample_weight=sample_weight)
        windows = self.windows(questions, contexts)
        if y is not None:
            y = windows.positions(token_spans(texts, starts, windows.offsets))
        if sample_weight is not None:
            sample_weight = sample_weight[windows.examples]
        return windows.inputs, y, sample_weight

    def windows(self, questions: list[str], contexts: list[str]) -> QuestionWindows:
        """Return the windows of questions and contexts, example after example.

        Args:
            questions: A list of strings.
            contexts: As many strings.
        """
        number_of_rows(questions=questions, contexts=contexts)
        # Several questions have the same context.
        texts = list(dict.fromkeys([*questions, *contexts]))
        tokens = dict(zip(texts, self.tokenizer.tokenize_with_offsets(texts), strict=True))
        return make_windows(
            [tokens[text] for text in questions],
            [tokens[text] for text in contexts],
            self.tokenizer,
            self.sequence_length,
            self.doc_stride,
        )

    def make_batch(
        self, x: Any, y: Any, sample_weight: Any, generator: np.random.Generator | None = None
    ) -> tuple[Any, Any, Any]:
        """Return some of the rows of `columns`, with labels at one of the lengths."""
        if y is not None:
            # Predictions of several batches become one array, so they have the same length.
            length = buckets_of(x["padding_mask"], self.lengths).max()
            x = {name: array[:, :length] for name, array in x.items()}
        return x, y, sample_weight


def _texts_and_starts(y: Any) -> tuple[list[str], np.ndarray]:
    """Return the columns of texts and starts, also for a list with a dictionary for each row."""
    if not isinstance(y, Mapping):
        rows = [(row["text"], row["answer_start"]) for row in host_column(y)]
        # Rows of Hugging Face's SQuAD hold lists, which are empty without an answer.
        first = [
            row if isinstance(row[0], str) else next(zip(*row, strict=True), ("", NO_START))
            for row in rows
        ]
        y = {"text": [text for text, _ in first], "answer_start": [start for _, start in first]}
    return texts_of(y["text"], "y['text']"), np.atleast_1d(y["answer_start"])


def _check_answers(contexts: list[str], texts: list[str], starts: np.ndarray) -> None:
    for row, (context, text, value) in enumerate(zip(contexts, texts, starts, strict=True)):
        start = operator.index(value)
        found = context[start : start + len(text)] if start >= 0 else ""
        if found != text or (start == NO_START) != (text == ""):
            raise ValueError(
                "`y['text']` must be in the context at the character `y['answer_start']`. "
                f"Received: {text!r} with the start {start} in row {row}, where the context has "
                f"{found!r}. For a question without answer, pass '' and {NO_START}."
            )
