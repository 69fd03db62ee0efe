"""The base class of classifiers of words, for any model family."""

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.classes import index_of_name
from keras_diet.models.hub.classifier_task import ClassifierTask
from keras_diet.models.hub.columns import holds_text
from keras_diet.models.hub.losses import TokenAccuracy, token_loss, warn_if_loss_does_not_fit
from keras_diet.models.hub.preprocessor import checked_preprocessor
from keras_diet.models.token_classification.words import as_lists, split_words
from keras_diet.types import Activation


class TokenClassifier(ClassifierTask):
    """A mixin for a `keras_hub.models.Task` with a head that classifies words.

    Put it before the mixin of a family and KerasHub's class of tasks. The outputs of the backbone
    are a dictionary with `"sequence_output"`.

    Args:
        backbone: A backbone.
        num_classes: int or `None`. Number of classes, at least 2. Defaults to `None`, which means
            one class for each of the `class_names`.
        preprocessor: A `TokenClassifierPreprocessor`, or `None`. Defaults to `None`.
        activation: A Keras activation of the outputs, such as `"softmax"`. Defaults to `None`,
            which means logits.
        dropout: float. Rate of the dropout before the head. Defaults to `0.1`.
        compile: bool. Whether to compile the model with its defaults. Defaults to `True`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
        class_names: list of strings or `None`. The name of each class, in the order of the outputs.
            Defaults to `None`, which means that labels are numbers.
    """

    one_class_per_example = False

    def __init__(
        self,
        backbone: HubBackbone,
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
        self.set_classes(num_classes, class_names, activation, dropout)
        if self.num_classes < 2:
            raise ValueError(
                f"`num_classes` must be at least 2. Received: num_classes={num_classes}. For yes "
                "or no, use two classes."
            )

        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.make_head(backbone.dtype_policy)

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
        if isinstance(optimizer, str) and optimizer == "auto":
            # The learning rate of KerasHub.
            optimizer = keras.optimizers.Adam(5e-5)
        if isinstance(weighted_metrics, str) and weighted_metrics == "auto":
            weighted_metrics = [TokenAccuracy()]
        loss = token_loss(loss, from_logits=self.output_kind != "probabilities")
        super().compile(optimizer=optimizer, loss=loss, weighted_metrics=weighted_metrics, **kwargs)
        warn_if_loss_does_not_fit(self, self.output_kind)

    # === Data ===

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return sentences, labels and weights for the preprocessor, after checking them.

        Names of classes become numbers here.
        """
        x, y, sample_weight = self.preprocessor.columns(x, y, sample_weight)
        if y is not None:
            y = self._ids_of(y)
            super().checked_targets(list(itertools.chain.from_iterable(y)))
        return x, y, sample_weight

    def checked_targets(self, y: Any, sample_weight: Any = None) -> tuple[Any, Any]:
        """Return the labels and weights of tokens as numbers, after checking them."""
        if self.class_names and holds_text(y):
            y = np.array(self._ids_of(as_lists(y)))
        return super().checked_targets(y, sample_weight)

    def _ids_of(self, labels):
        """Return the labels of sentences with names replaced by their index."""
        index = {name: i for i, name in enumerate(self.class_names or ())}
        return [
            [
                index_of_name(label, row, index) if index and isinstance(label, str) else label
                for label in of_words
            ]
            for row, of_words in enumerate(labels)
        ]

    def tag(self, sentences: Any, batch_size: int | None = None) -> list[list[dict[str, Any]]]:
        """Return the most probable class of each word, with its probability.

        The probability of a class is the softmax of the logits at the first token of the word. A
        sentence with more tokens than `sequence_length` is split into parts of whole words. Each
        part is classified by itself, so every word gets a class, but it only sees the words of its
        part.

        Args:
            sentences: A list of sentences. A sentence is a list of words.
            batch_size: int or `None`. Number of sentences, or parts, in a batch. Defaults to
                `None`, which means 32.

        Returns:
            For each sentence, a list with a dictionary for each word: `"word"`, `"label"`, which is
            a name of `class_names`, or the index of the class without names, and `"probability"`,
            a float.

        Raises:
            ValueError: If the model has no preprocessor, or an activation that does not return
                probabilities, or if `sentences` is not a list of lists of words.

        Example:

        ```python
        for word in classifier.tag([["the", "quick", "fox"]])[0]:
            word["word"], word["label"], word["probability"]
        ```
        """
        preprocessor = checked_preprocessor(self, "tag")
        to_probabilities = self.probability_function("tag")
        sentences, _, _ = preprocessor.columns(sentences)
        room = preprocessor.sequence_length - 2
        pieces = preprocessor.word_pieces(sentences)
        parts = [part for words in pieces for part in split_words(words, room)]
        inputs, places = preprocessor.packed(parts)
        outputs = self.predict_by_length(inputs, batch_size)
        of_words = np.concatenate([row[at] for row, at in zip(outputs, places, strict=True)])
        probabilities = iter(to_probabilities(of_words))
        return [
            [{"word": word, **self.best_classes(next(probabilities), 1)[0]} for word in words]
            for words in sentences
        ]
