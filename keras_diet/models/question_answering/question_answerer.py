"""The base class of question answerers, for any model family."""

from typing import Any

import keras

from keras_diet import validation
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.classes import Classes
from keras_diet.models.hub.losses import warn_if_loss_does_not_fit
from keras_diet.models.hub.preprocessor import checked_preprocessor
from keras_diet.models.hub.task import HubTask, checked_backbone
from keras_diet.models.hub.texts import texts_of
from keras_diet.models.question_answering.spans import (
    NO_START,
    find_candidates,
    mask_answer_logits,
)

_OUTPUTS = ("start", "end")


class QuestionAnswerer(HubTask):
    """A mixin for a `keras_hub.models.Task` with a head that finds answers in contexts.

    Put it before the mixin of a family and KerasHub's class of tasks. The outputs of the backbone
    are a dictionary with `"sequence_output"`. Segment 1 of its inputs is the context.

    Args:
        backbone: A backbone.
        preprocessor: A `QuestionAnswererPreprocessor`, or `None`. Defaults to `None`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
    """

    def __init__(
        self,
        backbone: HubBackbone,
        preprocessor: keras.layers.Layer | None = None,
        compile: bool = True,
        name: str | None = None,
        trainable: bool | None = None,
    ) -> None:
        # === Layers ===
        self.backbone = checked_backbone(backbone)
        self.preprocessor = preprocessor
        self.output_dense = keras.layers.Dense(
            len(_OUTPUTS),
            kernel_initializer=bert_initializer(),
            dtype=backbone.dtype_policy,
            name="logits",
        )

        # === Functional Model ===
        inputs = backbone.input
        logits = self.output_dense(backbone(inputs)["sequence_output"])
        masks = inputs["segment_ids"], inputs["padding_mask"]
        outputs = {
            name: mask_answer_logits(logits[..., i], *masks) for i, name in enumerate(_OUTPUTS)
        }
        super().__init__(
            inputs=inputs, outputs=outputs, compile=compile, name=name, trainable=trainable
        )

    @property
    def classes(self) -> dict[str, Classes]:
        """The positions that a sparse loss expects."""
        length = self.backbone.max_sequence_length
        return {name: Classes("max_sequence_length", length, True) for name in _OUTPUTS}

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        loss_weights: Any = "auto",
        metrics: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Configure training, as `keras.Model.compile`, with defaults for this task.

        A loss that takes probabilities gives a warning, because the model returns logits.

        Args:
            optimizer: As in `keras.Model.compile`. Defaults to `"auto"`, which means Adam with a
                learning rate of 5e-5, as in KerasHub's tasks.
            loss: As in `keras.Model.compile`. Defaults to `"auto"`, which means the cross-entropies
                of the start and the end.
            loss_weights: As in `keras.Model.compile`. Defaults to `"auto"`: with the default loss,
                the mean of both losses, otherwise their sum.
            metrics: As in `keras.Model.compile`. Defaults to `"auto"`: with the default loss, the
                accuracies of the start and the end, otherwise no metrics.
            **kwargs: Keyword arguments of `keras.Model.compile`.
        """
        is_default = isinstance(loss, str) and loss == "auto"
        if isinstance(optimizer, str) and optimizer == "auto":
            optimizer = keras.optimizers.Adam(5e-5)
        if is_default:
            loss = {
                name: keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                for name in _OUTPUTS
            }
        if isinstance(loss_weights, str) and loss_weights == "auto":
            loss_weights = dict.fromkeys(_OUTPUTS, 0.5) if is_default else None
        if isinstance(metrics, str) and metrics == "auto":
            metrics = {
                name: [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
                for name in _OUTPUTS * is_default
            }
        super().compile(
            optimizer=optimizer, loss=loss, loss_weights=loss_weights, metrics=metrics, **kwargs
        )
        warn_if_loss_does_not_fit(self, "logits")

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
