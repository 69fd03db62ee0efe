"""The base class of classifiers of words, for any model family."""

import itertools
from typing import Any

import keras
import numpy as np

from keras_diet.models.hub.classifier_task import ClassifierTask
from keras_diet.models.hub.losses import token_loss, warn_if_loss_does_not_fit
from keras_diet.models.hub.preprocessor import checked_preprocessor
from keras_diet.models.hub.token_rows import template_of
from keras_diet.models.token_classification.words import split_words


class TokenClassifier(ClassifierTask):
    """A mixin for a `keras_hub.models.Task` with a head that classifies words.

    The outputs of the backbone are a dictionary with `"sequence_output"`. The preprocessor is a
    `TokenClassifierPreprocessor`. The arguments come from `ClassifierTask`.
    """

    backbone_output = "sequence_output"
    one_class_per_example = False

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
        loss = token_loss(loss, from_logits=self.output_kind != "probabilities")
        if isinstance(weighted_metrics, str) and weighted_metrics == "auto":
            weighted_metrics = [keras.metrics.SparseCategoricalAccuracy()]
        super().compile(optimizer=optimizer, loss=loss, weighted_metrics=weighted_metrics, **kwargs)
        warn_if_loss_does_not_fit(self, self.output_kind)

    # === Data ===

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return sentences, labels and weights for the preprocessor, after checking them.

        Names of classes become numbers here.
        """
        x, y, sample_weight = super().columns(x, y, sample_weight)
        if y is not None:
            labels, _ = self.checked_targets(list(itertools.chain.from_iterable(y)))
            labels = iter(labels.tolist())
            y = [list(itertools.islice(labels, len(words))) for words in x]
        return x, y, sample_weight

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
        special = template_of(preprocessor.tokenizer).num_special_tokens(1)
        room = preprocessor.sequence_length - special
        pieces = preprocessor.word_pieces(sentences)
        parts = [part for words in pieces for part in split_words(words, room)]
        inputs, places = preprocessor.pack_pieces(parts)
        outputs = self.predict_by_length(inputs, batch_size)
        of_words = np.concatenate([row[at] for row, at in zip(outputs, places, strict=True)])
        probabilities = iter(to_probabilities(of_words))
        return [
            [{"word": word, **self.best_classes(next(probabilities), 1)[0]} for word in words]
            for words in sentences
        ]
