"""Classification and regression of texts and pairs of texts with a DietBert backbone."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras_hub.models import TextClassifier

from keras_diet import validation
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_task import DietBertTask
from keras_diet.models.diet_bert.diet_bert_text_classifier_preprocessor import (
    DietBertTextClassifierPreprocessor,
)
from keras_diet.models.diet_bert.from_bert.tasks import convert_classifier
from keras_diet.models.hub.classifier_task import ClassifierTask
from keras_diet.models.hub.columns import is_one_text
from keras_diet.models.hub.losses import is_of_keras, sparse_loss, warn_if_loss_does_not_fit
from keras_diet.types import Activation, Config


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextClassifier(ClassifierTask, DietBertTask, TextClassifier):
    """A DietBert backbone with a head that classifies a text or a pair of texts.

    Its conventions are the same as in `keras_hub.models.BertTextClassifier`:

        logits = W Dropout(pooled_output) + b

    With a `preprocessor`, `fit`, `evaluate` and `predict` take raw strings, and tuples `(a, b)`
    of them for pairs. With `num_classes=1` the model is a regression, such as the similarity of two
    sentences. Labels are then numbers, and the default loss is the mean squared error.

    With `class_names`, labels may be names. `classify(texts)` returns names and probabilities.

    With `multi_label`, a text may have several classes, or none. The probability of a class is
    `sigmoid(logit)`, which does not depend on the other classes. Labels are arrays of 0 and 1 of
    shape `(B, num_classes)`, or a list of names for each text.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        num_classes: int or `None`. Number of classes; `1` for regression. Defaults to `None`, which
            means one class for each of the `class_names`.
        preprocessor: A `keras_diet.models.DietBertTextClassifierPreprocessor`, or `None` for
            inputs that are already preprocessed. Defaults to `None`.
        activation: A Keras activation of the outputs, such as `"softmax"`. Defaults to `None`,
            which means logits.
        dropout: float. Rate of the dropout before the head. Defaults to `0.1`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
        class_names: list of strings or `None`. The name of each class, in the order of the outputs.
            Defaults to `None`, which means that labels are numbers.
        multi_label: bool. Whether a text may have several classes. Defaults to `False`.

    Call arguments:
        inputs: The backbone's dictionary.

    Returns:
        Logits of shape `(B, num_classes)`, after the `activation`.

    Raises:
        ValueError: If `num_classes` is not a positive integer, or if `class_names` are not
            different, nonempty strings, one for each class. If `multi_label` is used with one class
            or with an `activation` other than `"sigmoid"`. If the preprocessor has more tokens or
            longer sequences than the backbone. `fit`, `evaluate` and `predict` raise it for an
            empty batch, for more texts than segments, and for labels that are text but none of the
            names. Under a sparse loss, they raise it for other labels that are not integers in
            `[0, num_classes)`. With `multi_label`, they raise it for labels of another shape or
            outside `[0, 1]`.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    classifier = keras_diet.models.DietBertTextClassifier(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        class_names=["same", "similar", "different"],
        preprocessor=keras_diet.models.DietBertTextClassifierPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
        ),
    )
    first, second = ["the quick fox", "the foxes"], ["the fox", "the quick"]
    classifier.fit((first, second), ["different", "same"], batch_size=2, verbose=0)
    logits = classifier.predict((first, second), verbose=0)
    classifier.classify(("the fox", "the foxes"), top_k=1)  # [{"label": ..., "probability": ...}]
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    backbone_cls = DietBertBackbone
    preprocessor_cls = DietBertTextClassifierPreprocessor
    from_bert = classmethod(convert_classifier)

    def __init__(
        self,
        backbone: DietBertBackbone,
        num_classes: int | None = None,
        preprocessor: keras.layers.Layer | None = None,
        activation: Activation = None,
        dropout: float = 0.1,
        compile: bool = True,
        name: str | None = None,
        trainable: bool | None = None,
        class_names: Sequence[str] | None = None,
        multi_label: bool = False,
    ) -> None:
        # === Config ===
        # The default loss depends on the number of classes.
        self.set_classes(num_classes, class_names, activation, dropout)
        self.multi_label = validation.boolean("multi_label", multi_label)
        linear, sigmoid = keras.activations.linear, keras.activations.sigmoid
        is_wrong = self.num_classes == 1 or self.activation not in (linear, sigmoid)
        if multi_label and is_wrong:
            raise ValueError(
                "`multi_label=True` needs at least two classes, and activation=None or 'sigmoid', "
                "because each class has its own probability. Received: "
                f"num_classes={self.num_classes}, activation={activation!r}. For a single yes or "
                "no, use two classes and multi_label=False."
            )
        if self.num_classes == 1 and self.activation is keras.activations.softmax:
            raise ValueError(
                "`activation` must not be 'softmax' with a single output, which would always be 1. "
                "Received: num_classes=1. Use two classes, or leave the activation out for a "
                "regression."
            )

        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.make_head(backbone.dtype_policy)

        # === Functional Model ===
        pooled = backbone(backbone.input)["pooled_output"]
        super().__init__(
            inputs=backbone.input,
            outputs=self.output_dense(self.output_dropout(pooled)),
            compile=compile,
            name=name,
            trainable=trainable,
        )

    def compile(
        self, optimizer: Any = "auto", loss: Any = "auto", *, metrics: Any = "auto", **kwargs: Any
    ) -> None:
        """Configure training, as `keras_hub.models.TextClassifier.compile`, also for regression.

        A loss that takes probabilities where the model returns logits, or the reverse, gives a
        warning.

        Args:
            optimizer: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`.
            loss: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`, which means
                the cross-entropy of integer labels, the binary cross-entropy of each class in
                multi-label classification, and the mean squared error with one class.
            metrics: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`, which
                means the accuracy. In multi-label classification, this is the fraction of classes
                on the right side of probability 0.5. With one class, `"auto"` means the root mean
                squared error if the loss is the mean squared error, and no metrics otherwise.
            **kwargs: Keyword arguments of `keras.Model.compile`.

        Raises:
            ValueError: If the loss takes one class for each text, but texts have several.
        """
        is_regression = self.num_classes == 1
        is_logits, from_logits = self.output_kind == "logits", self.output_kind != "probabilities"
        if isinstance(loss, str) and loss == "auto":
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
            if is_regression:
                loss = keras.losses.MeanSquaredError()
            elif self.multi_label:
                loss = keras.losses.BinaryCrossentropy(from_logits=from_logits)
        is_sparse, _ = sparse_loss(loss)
        if self.multi_label and is_sparse:
            raise ValueError(
                "The loss of a multi-label classifier must take 0 or 1 for each class. Received: a "
                "sparse loss, which takes one class for each text. Leave `loss` out, or pass "
                "`keras.losses.BinaryCrossentropy(from_logits=True)`."
            )
        if isinstance(metrics, str) and metrics == "auto":
            metrics = [keras.metrics.SparseCategoricalAccuracy()]
            if is_regression:
                metrics = [keras.metrics.RootMeanSquaredError()] if _is_squared_error(loss) else []
            elif self.multi_label:
                # A probability of 0.5 is a logit of 0.
                metrics = [keras.metrics.BinaryAccuracy(threshold=0.0 if is_logits else 0.5)]
            elif is_of_keras(loss) and not is_sparse:
                metrics = [keras.metrics.CategoricalAccuracy()]
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)
        warn_if_loss_does_not_fit(self, self.output_kind)

    def classify(
        self,
        texts: Any,
        top_k: int | None = None,
        threshold: float | None = None,
        batch_size: int | None = None,
    ) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """Return the classes of each text with their probabilities, the most probable class first.

        Args:
            texts: A string, a list of strings, or anything else that `predict` takes. A pair of
                texts is a tuple `(a, b)`, where `a` and `b` are two strings or two lists.
            top_k: int or `None`. Number of classes for each text. Defaults to `None`, which means
                all classes.
            threshold: float or `None`. Only classes with at least this probability are returned,
                for example those above 0.5 of a multi-label classifier. Defaults to `None`, which
                means all classes.
            batch_size: int or `None`. As in `predict`. Defaults to `None`.

        The probabilities of a text add up to 1. In multi-label classification, each class has its
        own probability, so their sum may be anything between 0 and the number of classes.

        Returns:
            For one text, a list of dictionaries: `"label"` is a name of `class_names`, or the index
            of the class without names, and `"probability"` is a float. For several texts, a list
            with such a list for each text.

        Raises:
            ValueError: If the model is a regression, or has an activation that does not return
                probabilities; if `top_k` is not a positive integer up to the number of classes, or
                `threshold` not in `[0, 1]`; or as in `predict`.

        Example:

        ```python
        best = classifier.classify("the quick fox", top_k=1)[0]
        best["label"], best["probability"]
        ```
        """
        number = self.num_classes
        if number == 1 or (top_k is not None and validation.positive_int("top_k", top_k) > number):
            raise ValueError(
                "`classify` needs a classifier of at least two classes, and `top_k` up to their "
                f"number. Received: num_classes={number}, top_k={top_k}. For the outputs of a "
                "regression, call `predict`."
            )
        threshold = 0.0 if threshold is None else validation.rate("threshold", threshold)
        to_probabilities = self.probability_function("classify")
        outputs = self.predict(texts, batch_size=batch_size, verbose=0)
        results = []
        for probabilities in to_probabilities(outputs):
            best = np.argsort(-probabilities, kind="stable")[:top_k]
            results.append(
                [
                    {"label": self.labels[i], "probability": float(probabilities[i])}
                    for i in best
                    if probabilities[i] >= threshold
                ]
            )
        return results[0] if self.takes_texts and is_one_text(texts) else results

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        return {**super().get_config(), "multi_label": self.multi_label}


def _is_squared_error(loss):
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    is_instance = isinstance(loss, keras.losses.MeanSquaredError)
    return is_instance or loss is keras.losses.mean_squared_error
