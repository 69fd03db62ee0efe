"""Answers to questions, as parts of texts, with a DietBert backbone."""

from typing import Any

import keras
from keras_hub.models import Task

from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_question_answerer_preprocessor import (
    DietBertQuestionAnswererPreprocessor,
)
from keras_diet.models.diet_bert.diet_bert_task import DietBertTask
from keras_diet.models.diet_bert.from_bert.tasks import convert_question_answerer
from keras_diet.models.hub.answer_logits import mask_answer_logits
from keras_diet.models.hub.answer_questions import answer
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.loss_inputs import warn_if_loss_does_not_fit

_OUTPUTS = ("start", "end")


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
    metrics are the accuracies of both.

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
        inputs: The backbone's dictionary. Segment 1 holds the context and its `[SEP]`.

    Returns:
        A dictionary of the logits `"start"` and `"end"` in float32, each of shape `(B, T)`.

    Raises:
        ValueError: If the preprocessor has more tokens or longer sequences than the backbone.
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

    backbone_cls = DietBertBackbone
    preprocessor_cls = DietBertQuestionAnswererPreprocessor
    answer = answer
    from_bert = classmethod(convert_question_answerer)

    def __init__(
        self,
        backbone: DietBertBackbone,
        preprocessor: keras.layers.Layer | None = None,
        compile: bool = True,
        name: str | None = None,
        trainable: bool | None = None,
    ) -> None:
        # === Layers ===
        self.backbone = backbone
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
