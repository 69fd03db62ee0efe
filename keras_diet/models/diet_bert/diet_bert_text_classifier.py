"""Classification and regression of texts and pairs of texts with a DietBert backbone."""

from typing import Any

import keras
from keras_hub.models import TextClassifier

from keras_diet import validation
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_task import DietBertTask
from keras_diet.models.diet_bert.diet_bert_text_classifier_preprocessor import (
    DietBertTextClassifierPreprocessor,
)
from keras_diet.models.hub.labels import Classes
from keras_diet.types import Activation, Config


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextClassifier(DietBertTask, TextClassifier):
    """A DietBert backbone with a head that classifies a text or a pair of texts.

    Its conventions are the same as in `keras_hub.models.BertTextClassifier`:

        logits = W Dropout(pooled_output) + b

    With a `preprocessor`, `fit`, `evaluate` and `predict` take raw strings, and tuples `(a, b)`
    of them for pairs. With `num_classes=1` the model is a regression, such as the similarity of two
    sentences. Labels are then numbers, and the default loss is the mean squared error.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        num_classes: int. Number of classes; `1` for regression.
        preprocessor: A `keras_diet.models.DietBertTextClassifierPreprocessor`, or `None` for
            inputs that are already preprocessed. Defaults to `None`.
        activation: A Keras activation of the outputs, such as `"softmax"`. Defaults to `None`,
            which means logits.
        dropout: float. Rate of the dropout before the head. Defaults to `0.1`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.

    Call arguments:
        inputs: The backbone's dictionary.

    Returns:
        Logits of shape `(B, num_classes)`, after the `activation`.

    Raises:
        ValueError: If `num_classes` is not a positive integer, or if the preprocessor has more
            tokens or longer sequences than the backbone. `fit`, `evaluate` and `predict` raise it
            for an empty batch, for more texts than segments and, under a sparse loss, for labels
            that are not integers in `[0, num_classes)`.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    classifier = keras_diet.models.DietBertTextClassifier(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        num_classes=3,
        preprocessor=keras_diet.models.DietBertTextClassifierPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
        ),
    )
    first, second = ["the quick fox", "the foxes"], ["the fox", "the quick"]
    classifier.fit((first, second), [2, 0], batch_size=2, verbose=0)
    logits = classifier.predict((first, second), verbose=0)
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    backbone_cls = DietBertBackbone
    preprocessor_cls = DietBertTextClassifierPreprocessor

    def __init__(
        self,
        backbone: DietBertBackbone,
        num_classes: int,
        preprocessor: keras.layers.Layer | None = None,
        activation: Activation = None,
        dropout: float = 0.1,
        compile: bool = True,
        name: str | None = None,
        trainable: bool | None = None,
    ) -> None:
        # === Config ===
        # The default loss depends on the number of classes.
        self.num_classes = validation.positive_int("num_classes", num_classes)
        self.activation = keras.activations.get(activation)
        self.dropout = dropout

        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.output_dropout = keras.layers.Dropout(
            dropout, dtype=backbone.dtype_policy, name="classifier_dropout"
        )
        self.output_dense = keras.layers.Dense(
            num_classes,
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

        Args:
            optimizer: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`.
            loss: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`, which means
                the cross-entropy of integer labels. With one class, it means the mean squared
                error.
            metrics: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`, which
                means the accuracy. With one class, it means the root mean squared error if the loss
                is the mean squared error, and no metrics under another loss.
            **kwargs: Keyword arguments of `keras.Model.compile`.
        """
        if self.num_classes == 1:
            if isinstance(loss, str) and loss == "auto":
                loss = keras.losses.MeanSquaredError()
            if isinstance(metrics, str) and metrics == "auto":
                metrics = [keras.metrics.RootMeanSquaredError()] if _is_squared_error(loss) else []
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    @property
    def classes(self) -> Classes:
        """The labels that a sparse loss expects."""
        return Classes("num_classes", self.num_classes, one_per_example=True)

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update(
            {
                "num_classes": self.num_classes,
                "activation": keras.activations.serialize(self.activation),
                "dropout": self.dropout,
            }
        )
        return config


def _is_squared_error(loss: Any) -> bool:
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    is_instance = isinstance(loss, keras.losses.MeanSquaredError)
    return is_instance or loss is keras.losses.mean_squared_error
