"""Classification and regression of texts and pairs of texts with a DietBert backbone."""

import keras
from keras_hub.models import TextClassifier

from keras_diet import validation
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.batches import check_labels_are_not_one_hot
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_task import DietBertTask
from keras_diet.models.diet_bert.diet_bert_text_classifier_preprocessor import (
    DietBertTextClassifierPreprocessor,
)


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTextClassifier(DietBertTask, TextClassifier):
    """A DietBert backbone with a head that classifies a text or a pair of texts.

    Conventions are those of `keras_hub.models.BertTextClassifier`:

        logits = W Dropout(pooled_output) + b

    With a `preprocessor`, `fit`, `evaluate` and `predict` take raw strings, and tuples `(a, b)`
    of them for pairs. With `num_classes=1` it is a regression, such as the similarity of two
    sentences: the default loss is then the mean squared error, and labels are numbers.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        num_classes: int. Number of classes; `1` for regression.
        preprocessor: A `keras_diet.models.DietBertTextClassifierPreprocessor`, or `None` for
            inputs that are preprocessed already. Defaults to `None`.
        activation: A Keras activation of the outputs, such as `"softmax"`. Defaults to `None`,
            for logits.
        dropout: float. Rate of the dropout before the head. Defaults to `0.1`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves what is frozen frozen.

    Call arguments:
        inputs: The backbone's dictionary.

    Returns:
        Logits of shape `(B, num_classes)`, or what `activation` makes of them.

    Raises:
        ValueError: If `num_classes` is no positive integer; if the preprocessor's tokenizer
            knows more tokens, or its sequences are longer, than the backbone's; in `fit`,
            `evaluate` and `predict` for an empty batch and for more texts than segments, and under
            a sparse loss for labels that are no integers in `[0, num_classes)`.
        TypeError: For unknown arguments.

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
        backbone,
        num_classes,
        preprocessor=None,
        activation=None,
        dropout=0.1,
        compile=True,
        name=None,
        trainable=None,
    ):
        # === Config ===
        # Before the model is built, since the default loss depends on it.
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

    def compile(self, optimizer="auto", loss="auto", *, metrics="auto", **kwargs):
        """Configure training, as `keras_hub.models.TextClassifier.compile` but for regression.

        Args:
            optimizer: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`.
            loss: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`: the
                cross-entropy of integer labels or, with one class, the mean squared error.
            metrics: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`: the
                accuracy or, with one class, the root of the mean squared error if that is the
                loss, and none under another loss.
            **kwargs: Keyword arguments of `keras.Model.compile`.
        """
        if self.num_classes == 1:
            if isinstance(loss, str) and loss == "auto":
                loss = keras.losses.MeanSquaredError()
            if isinstance(metrics, str) and metrics == "auto":
                metrics = [keras.metrics.RootMeanSquaredError()] if _is_squared_error(loss) else []
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    @property
    def classes(self):
        """What the labels of a sparse loss are."""
        return "num_classes", self.num_classes

    def check_labels(self, y):
        """Raise a `ValueError` if `y` cannot be the labels of the loss."""
        is_sparse, _ = self._sparse_loss()
        if is_sparse:
            check_labels_are_not_one_hot(y)
        super().check_labels(y)

    def get_config(self):
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


def _is_squared_error(loss):
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    is_instance = isinstance(loss, keras.losses.MeanSquaredError)
    return is_instance or loss is keras.losses.mean_squared_error
