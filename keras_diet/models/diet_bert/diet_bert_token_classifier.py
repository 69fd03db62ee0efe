"""Classification of the words of sentences with a DietBert backbone."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras_hub.models import Task

from keras_diet import validation
from keras_diet.layers.initializers import bert_initializer
from keras_diet.models.diet_bert.classifier_losses import output_kind
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_task import DietBertTask
from keras_diet.models.diet_bert.diet_bert_token_classifier_preprocessor import (
    DietBertTokenClassifierPreprocessor,
)
from keras_diet.models.diet_bert.from_bert.tasks import convert_token_classifier
from keras_diet.models.diet_bert.tag import tag
from keras_diet.models.hub.class_names import checked_classes
from keras_diet.models.hub.gate import checked_data, checked_labels
from keras_diet.models.hub.graph_checks import is_in_graph
from keras_diet.models.hub.labels import Classes
from keras_diet.models.hub.loss_inputs import warn_if_loss_does_not_fit
from keras_diet.models.hub.named_classes import NamedClasses
from keras_diet.models.hub.sentences import check_one_per_word, ids_of_words, weights_of_words
from keras_diet.models.hub.token_accuracy import TokenAccuracy
from keras_diet.models.hub.token_inputs import TokenInput
from keras_diet.models.hub.token_loss import token_loss
from keras_diet.types import Activation, Config


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenClassifier(NamedClasses, DietBertTask, Task):
    """A DietBert backbone with a head that classifies each word, for example for named entities.

    The head computes logits for each token `i`, as in BERT:

        logits_i = W Dropout(h_i) + b

    where `h_i` is the last hidden state. With a `preprocessor`, `fit`, `evaluate` and `predict`
    take sentences as lists of words, and a list of labels for each sentence. The label of a word
    belongs to its first token. The default loss is the mean over the words of a batch,
    `sum(w * loss) / sum(w)`, and the default metric is the accuracy of these words. Other tokens
    and padding have the weight 0.

    With `class_names`, labels may be names. `tag(sentences)` returns the name and the probability
    for each word.

    Args:
        backbone: A `keras_diet.models.DietBertBackbone`.
        num_classes: int or `None`. Number of classes, at least 2. Defaults to `None`, which means
            one class for each of the `class_names`.
        preprocessor: A `keras_diet.models.DietBertTokenClassifierPreprocessor`, or `None` for
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

    Call arguments:
        inputs: The backbone's dictionary.

    Returns:
        Logits of shape `(B, T, num_classes)`, after the `activation`.

    Raises:
        ValueError: If there are fewer than two classes, or if `class_names` are not different,
            nonempty strings, one for each class. If the preprocessor has more tokens or longer
            sequences than the backbone. `fit`, `evaluate` and `predict` raise it for a string in
            the place of a list of words, for an empty sentence, and for another number of labels
            than words. They also raise it for labels that are text but none of the names, and under
            a sparse loss for other labels that are not integers in `[0, num_classes)`.
        TypeError: If an argument is unknown.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    classifier = keras_diet.models.DietBertTokenClassifier(
        keras_diet.models.DietBertBackbone(
            vocabulary_size=len(vocabulary), num_layers=2, num_heads=2, hidden_dim=8,
            intermediate_dim=16, max_sequence_length=8,
        ),
        class_names=["DET", "ADJ", "NOUN"],
        preprocessor=keras_diet.models.DietBertTokenClassifierPreprocessor(
            keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
        ),
    )
    sentences = [["the", "quick", "fox"], ["foxes"]]
    classifier.fit(sentences, [["DET", "ADJ", "NOUN"], ["NOUN"]], verbose=0)
    classifier.tag([["the", "foxes"]])  # [[{"word": "the", "label": ..., "probability": ...}, ...]]
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3
    """

    backbone_cls = DietBertBackbone
    preprocessor_cls = DietBertTokenClassifierPreprocessor
    tag = tag
    from_bert = classmethod(convert_token_classifier)

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
    ) -> None:
        # === Config ===
        # The default loss depends on the activation.
        self.num_classes, self.class_names = checked_classes(num_classes, class_names)
        if self.num_classes < 2:
            raise ValueError(
                f"`num_classes` must be at least 2. Received: num_classes={num_classes}. For yes "
                "or no, use two classes."
            )
        self.activation = keras.activations.get(activation)
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
        hidden_states = backbone(backbone.input)["sequence_output"]
        super().__init__(
            inputs=backbone.input,
            outputs=self.output_dense(self.output_dropout(hidden_states)),
            compile=compile,
            name=name,
            trainable=trainable,
        )

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        weighted_metrics: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Configure training, as `keras_hub.models.TextClassifier.compile`.

        A loss that takes probabilities where the model returns logits, or the reverse, gives a
        warning.

        Args:
            optimizer: As in `keras_hub.models.TextClassifier.compile`. Defaults to `"auto"`.
            loss: As in `keras.Model.compile`. Defaults to `"auto"`, which means the cross-entropy
                averaged over the words of a batch.
            weighted_metrics: As in `keras.Model.compile`. Defaults to `"auto"`, which means the
                accuracy over the words.
            **kwargs: Keyword arguments of `keras.Model.compile`. `metrics` count all tokens, also
                padding. So pass metrics as `weighted_metrics`.
        """
        kind = output_kind(self.activation)
        if isinstance(optimizer, str) and optimizer == "auto":
            # The learning rate of KerasHub.
            optimizer = keras.optimizers.Adam(5e-5)
        if isinstance(weighted_metrics, str) and weighted_metrics == "auto":
            weighted_metrics = [TokenAccuracy()]
        loss = token_loss(loss, from_logits=kind != "probabilities")
        super().compile(optimizer=optimizer, loss=loss, weighted_metrics=weighted_metrics, **kwargs)
        warn_if_loss_does_not_fit(self, kind)

    # === Data ===

    @property
    def classes(self) -> Classes:
        """The labels that a sparse loss expects."""
        names = None if self.class_names is None else tuple(self.class_names)
        return Classes("num_classes", self.num_classes, names=names)

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds after preprocessing."""
        inputs = super().token_inputs
        return {**inputs, "token_ids": dataclasses.replace(inputs["token_ids"], has_labels=True)}

    def checked_targets(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
        """Return labels and weights of words after checking them. Names become numbers."""
        if not self._takes_words:
            return super().checked_targets(x, y, sample_weight)
        if is_in_graph(x):
            # They are checked when the graph runs.
            return y, sample_weight
        if y is not None:
            check_one_per_word("y", y, x)
            ids = checked_labels(self, x, ids_of_words(y, self.class_names))
            ends = np.cumsum([len(words) for words in x])
            y = [part.tolist() for part in np.split(np.asarray(ids), ends[:-1])]
        return y, None if sample_weight is None else weights_of_words(sample_weight, x)

    def preprocess_samples(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Preprocess one batch, which was checked before. Without a preprocessor, return it."""
        if not self._takes_words or not is_in_graph(x):
            return super().preprocess_samples(x, y, sample_weight)

        def check(*batch):
            return checked_data(self, *batch, needs_labels=y is not None)

        return self.preprocessor.preprocess(x, y, sample_weight, check)

    def predict(self, x: Any = None, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Return the outputs for all tokens, as `keras.Model.predict`. For words, call `tag`.

        All batches have the full `sequence_length`, because Keras joins their outputs.
        """
        with self._one_length():
            return super().predict(x, batch_size, **kwargs)

    @property
    def _takes_words(self) -> bool:
        return isinstance(self.preprocessor, DietBertTokenClassifierPreprocessor)

    @contextlib.contextmanager
    def _one_length(self) -> Iterator[None]:
        preprocessor = self.preprocessor if self._takes_words else None
        buckets = getattr(preprocessor, "length_buckets", None)
        if buckets is None:
            yield
            return
        preprocessor.length_buckets = None
        try:
            yield
        finally:
            preprocessor.length_buckets = buckets

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update(
            {
                "activation": keras.activations.serialize(self.activation),
                "dropout": self.dropout,
            }
        )
        return config
