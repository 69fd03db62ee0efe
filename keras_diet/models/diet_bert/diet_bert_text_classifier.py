"""Classification and regression of texts and pairs of texts with a DietBert backbone."""

from collections.abc import Sequence
from typing import Any

import keras
from keras_hub.models import TextClassifier

from keras_diet import validation
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.classifier_losses import (
    check_activation,
    check_loss,
    check_multi_label,
    default_loss,
    default_metrics,
    output_kind,
)
from keras_diet.models.diet_bert.classify import classify
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_task import DietBertTask
from keras_diet.models.diet_bert.diet_bert_text_classifier_preprocessor import (
    DietBertTextClassifierPreprocessor,
)
from keras_diet.models.diet_bert.from_bert.tasks import convert_classifier
from keras_diet.models.hub.class_names import checked_classes
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.loss_inputs import warn_if_loss_does_not_fit
from keras_diet.models.hub.named_classes import NamedClasses
from keras_diet.types import Activation, Config


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextClassifier(NamedClasses, DietBertTask, TextClassifier):
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
    classify = classify
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
        self.num_classes, self.class_names = checked_classes(num_classes, class_names)
        self.multi_label = validation.boolean("multi_label", multi_label)
        self.activation = keras.activations.get(activation)
        if multi_label:
            check_multi_label(self.num_classes, self.activation)
        check_activation(self.num_classes, self.activation)
        self.dropout = validation.rate("dropout", dropout)

        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.output_dropout = keras.layers.Dropout(
            dropout, dtype=backbone.dtype_policy, name="classifier_dropout"
        )
        self.output_dense = keras.layers.Dense(
            self.num_classes,
            activation=activation,
            kernel_initializer=bert_initializer(),
            dtype=backbone.dtype_policy,
            name="logits",
        )

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
        head = (self.num_classes, self.activation, self.multi_label)
        if isinstance(loss, str) and loss == "auto":
            loss = default_loss(*head)
        if isinstance(metrics, str) and metrics == "auto":
            metrics = default_metrics(*head, loss)
        check_loss(self.multi_label, loss)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)
        warn_if_loss_does_not_fit(self, output_kind(self.activation))

    @property
    def classes(self) -> Classes:
        """The labels that the losses of Keras expect."""
        return Classes(
            "num_classes",
            self.num_classes,
            one_per_example=not self.multi_label,
            names=None if self.class_names is None else tuple(self.class_names),
            is_multi_label=self.multi_label,
        )

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update(
            {
                "multi_label": self.multi_label,
                "activation": keras.activations.serialize(self.activation),
                "dropout": self.dropout,
            }
        )
        return config
