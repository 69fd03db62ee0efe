"""Answers to questions, as parts of texts, with a DietBert backbone."""

import operator
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras_hub.models import Task

from keras_diet import validation
from keras_diet.data.columns import as_rows, host_column, number_of_rows, texts_of
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.diet_bert_task import DietBertPreprocessor, DietBertTask
from keras_diet.models.diet_bert.hugging_face.heads import QUESTION_ANSWERER
from keras_diet.models.diet_bert.question_windows import (
    NO_START,
    QuestionWindows,
    find_candidates,
    make_windows,
    mask_answer_logits,
    token_spans,
)
from keras_diet.models.hub.labels import Classes, checked_weights
from keras_diet.models.hub.preprocessor import TokenPreprocessor, checked_preprocessor
from keras_diet.models.hub.token_rows import buckets_of
from keras_diet.types import Columns, Config, Tensor

# BERT's windows of 384 tokens begin 128 tokens apart.
_DOC_STRIDE, _WINDOWS_PER_LENGTH = 128, 3
_OUTPUTS = ("start", "end")


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertQuestionAnswererPreprocessor(DietBertPreprocessor, TokenPreprocessor):
    """Cut contexts into windows, and find the answers in them.

    A window is `[CLS]`, the question, `[SEP]`, a part of the context, `[SEP]`, then padding. A
    context that is longer than the window becomes several windows, which overlap. So an example
    becomes one or several rows. A window that does not hold the whole answer has the positions 0,
    `[CLS]`, as in BERT.

    Nothing is cut off: a question that leaves no room for its context raises a `ValueError`.

    Args:
        tokenizer: A tokenizer with `tokenize_with_offsets`, such as
            `keras_diet.models.DietBertTokenizer`.
        sequence_length: int. Length of a window with its question, in tokens. Defaults to `384`.
        doc_stride: int or `None`. The distance in tokens between the beginnings of two windows of a
            context. It must be less than the room for the context in a window. Defaults to `None`,
            which means a third of `sequence_length`, at most 128.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch with labels may be
            padded, if they hold its longest window. `answer` uses them too. Defaults to `None`: all
            batches have `sequence_length`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: A tuple `(questions, contexts)` of two strings, or of two batches of strings.
        y: Answers, or `None`. A dictionary with their `"text"` and `"answer_start"`, the character
            of the context where the text starts. The text `""` with the start -1 means that the
            question has no answer. Or a list with such a dictionary for each question, as in
            Hugging Face's SQuAD, where the first of several answers is taken.
        sample_weight: Weights of the examples, or `None`. All windows of an example get its weight.

    Returns:
        A dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(num_windows, sequence_length)`. With answers, a tuple of the dictionary, a dictionary of
        the positions `"start"` and `"end"` of shape `(num_windows,)` and, if given,
        `sample_weight` of shape `(num_windows,)`. All are NumPy arrays.

    Raises:
        ValueError: For texts that are missing or empty, and for lists of different lengths. For a
            question that fills a window, and for a `doc_stride` that would skip tokens. For an
            answer that is not in its context at its start.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es", "?"]
    preprocessor = keras_diet.models.DietBertQuestionAnswererPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8, doc_stride=2
    )
    questions, contexts = ["fox ?"], ["the quick the foxes"]
    answers = {"text": ["the foxes"], "answer_start": [10]}
    x, y = preprocessor((questions, contexts), answers)
    x["token_ids"].shape  # (2, 8)
    y["start"], y["end"]  # [0, 4], [0, 6]
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
     - [Rajpurkar et al., 2018](https://arxiv.org/abs/1806.03822)
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

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
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
        answers = None if y is None else _texts_and_starts(y)
        if sample_weight is not None:
            sample_weight = checked_weights(as_rows(sample_weight), (None, 1))
        rows = {"questions": questions, "contexts": contexts}
        number_of_rows(**rows, y=answers, sample_weight=sample_weight)
        if answers is not None:
            _check_answers(contexts, *answers)
        windows = self.windows(questions, contexts)
        if answers is not None:
            y = windows.positions(token_spans(*answers, windows.offsets))
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

    def make_batch(self, rows: Columns, generator: np.random.Generator | None = None) -> Columns:
        """Return some of the rows of `columns`, with labels at one of the lengths."""
        x, y, sample_weight = rows
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


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertQuestionAnswerer(DietBertTask, Task):
    """A DietBert backbone with a head that finds the answer to a question in a context.

    For each token, the head computes two logits from its hidden state `h_t`, as in BERT:

        start_t = u . h_t + b,    end_t = v . h_t + c

    An answer may begin and end at the tokens of the context, and at `[CLS]`, which stands for no
    answer. All other positions have the logit -1e9, so that they cannot win. These are the
    question, `[SEP]` and padding.

    With a `preprocessor`, `fit`, `evaluate` and `predict` take tuples `(questions, contexts)` of
    strings, and answers as a dictionary of `"text"` and `"answer_start"`. A context that is longer
    than the model becomes several windows, so an example may become several rows. `fit` and
    `evaluate` make the windows of lists and arrays once, before the first step. `batch_size` counts
    windows, and windows are shuffled. `validation_split` separates examples, before they become
    windows. A weight of an example holds for all of its windows. `answer(questions, contexts)`
    returns the answers as texts.

    The default loss is the mean of the cross-entropies of the start and the end. The default
    metrics are the accuracies of both. Another loss is the sum of its values for the start and the
    end without `loss_weights`, and has no default metrics.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        preprocessor: A `keras_diet.models.DietBertQuestionAnswererPreprocessor`, or `None` for
            inputs that are already preprocessed. Labels are then a dictionary of the positions
            `"start"` and `"end"`. Defaults to `None`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.

    Call arguments:
        inputs: The backbone's dictionary. Segment 1 holds the context and its `[SEP]`. If all
            segments are 0, as for RoBERTa, answers may also begin and end in the question.

    Returns:
        A dictionary of the logits `"start"` and `"end"` in float32, each of shape `(B, T)`.

    Raises:
        ValueError: If the preprocessor has more tokens than the backbone.
            `fit`, `evaluate` and `predict` raise it as the preprocessor does, and for positions
            that are not integers in `[0, max_sequence_length)`.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es", "?"]
    question_answerer = keras_diet.models.DietBertQuestionAnswerer(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        keras_diet.models.DietBertQuestionAnswererPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8, doc_stride=2
        ),
    )
    questions, contexts = ["fox ?", "quick ?"], ["the quick the foxes", "the fox"]
    answers = {"text": ["the foxes", ""], "answer_start": [10, -1]}
    question_answerer.fit((questions, contexts), answers, batch_size=2, verbose=0)
    best = question_answerer.answer("fox ?", "the quick the foxes")
    best["text"], best["score"], best["start"], best["end"]
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
     - [Rajpurkar et al., 2016](https://arxiv.org/abs/1606.05250)
    """

    preprocessor_cls = DietBertQuestionAnswererPreprocessor
    output_kind = "logits"
    trained_head = QUESTION_ANSWERER

    def make_head(self) -> None:
        """Create the layers of the head."""
        self.output_dense = keras.layers.Dense(
            len(_OUTPUTS),
            kernel_initializer=bert_initializer(),
            dtype=self.backbone.dtype_policy,
            name="logits",
        )

    def outputs_of(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Return the logits for the inputs of the backbone."""
        logits = self.output_dense(self.backbone(inputs)["sequence_output"])
        masks = inputs["segment_ids"], inputs["padding_mask"]
        return {name: mask_answer_logits(logits[..., i], *masks) for i, name in enumerate(_OUTPUTS)}

    @property
    def classes(self) -> dict[str, Classes]:
        """The positions that a sparse loss expects."""
        length = self.backbone.max_sequence_length
        return {name: Classes("max_sequence_length", length, True) for name in _OUTPUTS}

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile` with the defaults of the task."""
        # Without any, Keras keeps those of an earlier call.
        defaults: Config = {"metrics": {}}
        if "loss" not in given:
            loss = keras.losses.SparseCategoricalCrossentropy
            accuracy = keras.metrics.SparseCategoricalAccuracy
            defaults = {
                "loss": {name: loss(from_logits=True) for name in _OUTPUTS},
                "loss_weights": dict.fromkeys(_OUTPUTS, 0.5),
                "metrics": {name: [accuracy(name="accuracy")] for name in _OUTPUTS},
            }
        return super().compile_arguments({**defaults, **given})

    def answer(
        self,
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
        start logit plus its end logit. Each window contributes its `n_best` parts, and the best
        part of all windows is the answer.

        Args:
            questions: A string, or a list of strings.
            contexts: A string for one question, or as many strings as there are questions.
            top_k: int or `None`. Number of answers for each question. A short context may have
                fewer. Defaults to `None`, which means the best answer itself, not in a list.
            n_best: int. Number of parts that each window contributes, if `top_k` is not larger.
                Defaults to `20`.
            max_answer_length: int. The longest answer, in tokens. Defaults to `30`.
            null_threshold: float or `None`. With SQuAD 2.0, questions may have no answer. A
                question has none if `null_score` exceeds the best score by more than this.
                `null_score` is the lowest score of `[CLS]` over the windows. Defaults to `None`,
                which means that each question has an answer.
            batch_size: int or `None`. Number of windows in a batch. Defaults to `None`, which means
                32.

        Returns:
            For one question, a dictionary. `"text"` is the answer, `"start"` and `"end"` are its
            characters in the context, so `context[start:end]` is the text, `"score"` is its score,
            and `"null_score"` the score of no answer. No answer is the text `""` with start and end
            -1. With `top_k`, a list of such dictionaries, the best one first. For several
            questions, a list with the result of each.

        Raises:
            ValueError: If the model has no preprocessor, if there are not as many contexts as
                questions, if `top_k` or `max_answer_length` is not positive, or as in `predict`.

        Example:

        ```python
        best = question_answerer.answer("the fox ?", "the quick fox")
        best["text"], best["score"], best["start"], best["end"]
        ```
        """
        number = 1 if top_k is None else validation.positive_int("top_k", top_k)
        validation.positive_int("max_answer_length", max_answer_length)
        preprocessor = checked_preprocessor(self, "answer")
        is_one = isinstance(questions, str)
        questions, contexts = texts_of(questions, "questions"), texts_of(contexts, "contexts")
        windows = preprocessor.windows(questions, contexts)
        logits = self.predict_by_length(windows.inputs, batch_size)
        candidates = find_candidates(windows, logits, max(n_best, number), max_answer_length)
        results = []
        for context, found in zip(contexts, candidates, strict=True):
            null_score = found.null_score
            best = found.best(number)
            # `best` begins with the best score.
            if null_threshold is not None and null_score - best[0][0] > null_threshold:
                best.insert(0, (null_score, (NO_START, NO_START)))
            answers = [
                {"text": context[start:end], "score": score, "start": start, "end": end}
                for score, (start, end) in best
            ]
            for answer in answers:
                answer["null_score"] = null_score
            results.append(answers[0] if top_k is None else answers[:number])
        return results[0] if is_one else results
