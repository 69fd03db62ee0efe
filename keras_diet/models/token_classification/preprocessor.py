"""From sentences and labels of words to the inputs of a token classifier, for any model family."""

import warnings
from typing import Any

import numpy as np

from keras_diet.data.columns import number_of_rows
from keras_diet.models.hub.preprocessor import PackingPreprocessor, TokenPreprocessor
from keras_diet.models.hub.token_rows import buckets_of, template_of
from keras_diet.models.token_classification.words import (
    Pieces,
    as_lists,
    at_places,
    check_one_per_word,
    check_sentences,
    pack_words,
)


class TokenClassifierPreprocessor(PackingPreprocessor, TokenPreprocessor):
    """A preprocessor that packs the words of sentences, with a label for the first token of each.

    KerasHub has no such preprocessor. Put this class after the mixin of a family.

    Args:
        tokenizer: The tokenizer.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        **kwargs: Keyword arguments of `PackingPreprocessor`.
    """

    # Labels are lists, one for each sentence.
    converts_labels = True
    # A tuple of sentences is an element of a dataset.
    takes_tuples = False

    def is_one(self, x: Any) -> bool:
        """Return whether `x` is the words of a single sentence, without a batch axis."""
        words = as_lists(x)
        return isinstance(words, list) and all(isinstance(word, str) for word in words)

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, Any, Any]:
        """Return sentences, and a label and a weight for each word, as lists of lists.

        Raises:
            ValueError: For a sentence that is not a list of words, for an empty sentence or word,
                and for another number of labels or weights than words, with the row.
        """
        x, y, sample_weight = as_lists(x), as_lists(y), as_lists(sample_weight)
        check_sentences(x, "x")
        self.check_length(1)
        number_of_rows(x=x, y=y, sample_weight=sample_weight)
        if y is not None:
            check_one_per_word("y", y, x)
        if sample_weight is not None:
            if not any(isinstance(weights, list) for weights in sample_weight):
                # A weight for each sentence.
                pairs = zip(sample_weight, x, strict=True)
                sample_weight = [[weight] * len(words) for weight, words in pairs]
            check_one_per_word("sample_weight", sample_weight, x)
        return x, y, sample_weight

    def make_batch(
        self, x: Any, y: Any, sample_weight: Any, generator: np.random.Generator | None = None
    ) -> tuple[Any, Any, Any]:
        """Return token ids, and labels and weights with a row for each sentence."""
        length = self.sequence_length
        inputs, places = self.pack_pieces(self.word_pieces(x))
        if any(len(at) < len(words) for at, words in zip(places, x, strict=True)):
            # Without numbers of the batch, Python shows it once.
            warnings.warn(
                f"Some sentences have more than sequence_length={length} tokens with `[CLS]` and "
                "`[SEP]`. Their last words are cut off. Choose a larger `sequence_length`, or "
                "split these sentences, as `tag` does by itself.",
                stacklevel=2,
            )
        if y is None:
            # Predictions of several batches become one array, so they have the same length.
            return self.pack(inputs), None, None
        if sample_weight is None:
            sample_weight = [[1.0] * len(words) for words in x]
        labels = at_places(y, places, length, "int32")
        weights = at_places(sample_weight, places, length, "float32")
        length = buckets_of(inputs["padding_mask"], self.lengths).max()
        inputs = {name: array[:, :length] for name, array in inputs.items()}
        return self.pack(inputs), labels[:, :length], weights[:, :length]

    def word_pieces(self, sentences: list[list[str]]) -> list[list[Pieces]]:
        """Return the token ids of each word of each sentence, at least one for a word."""
        before = getattr(self.tokenizer, "before_word", "")
        words = [before + word for sentence in sentences for word in sentence]
        # Without `split`, a tokenizer takes lists of words for texts.
        is_splitter = getattr(self.tokenizer, "split", True)
        pieces = self.tokenizer.tokenize(words if is_splitter else [[word] for word in words])
        unknown = [self.tokenizer.token_to_id(getattr(self.tokenizer, "oov_token", "<unk>"))]
        remaining = (of_word or unknown for of_word in pieces)
        return [[next(remaining) for _ in sentence] for sentence in sentences]

    def pack_pieces(
        self, pieces: list[list[Pieces]]
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Return the inputs of a model, and the index of the first token of each word that fits."""
        tokenizer = self.tokenizer
        return pack_words(
            pieces,
            self.sequence_length,
            template_of(tokenizer),
            tokenizer.pad_token_id,
        )
