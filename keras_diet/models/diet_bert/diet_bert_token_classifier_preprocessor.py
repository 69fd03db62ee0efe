"""From sentences and labels of words to the inputs of `DietBertTokenClassifier`."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_diet._compat import convert_preprocessing_outputs_python
from keras_diet.models.diet_bert.diet_bert_preprocessor import DietBertPreprocessor
from keras_diet.models.diet_bert.diet_bert_tokenizer import DietBertTokenizer
from keras_diet.models.hub.graph_checks import is_in_graph
from keras_diet.models.hub.pack_words import Pieces, at_places, pack_words
from keras_diet.models.hub.python_in_graph import python_in_graph
from keras_diet.models.hub.sentences import (
    as_rows,
    check_one_per_word,
    check_sentences,
    is_one_sentence,
    weights_of_words,
)
from keras_diet.models.hub.token_preprocessor import TokenPreprocessor

_INPUTS = {"token_ids": "int32", "segment_ids": "int32", "padding_mask": "bool"}
_TARGETS = {"y": "int32", "sample_weight": "float32"}


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenClassifierPreprocessor(DietBertPreprocessor, TokenPreprocessor):
    """Tokenize and pack sentences, and give the label of each word to its first token.

    A sentence is a list of words. The packed input is `[CLS]`, then the tokens of each word, then
    `[SEP]` and padding. As in BERT, the label of a word belongs to its first token. All other
    tokens have the weight 0, so the loss and the metrics ignore them:

        tokens   [CLS]  fox  ##es  sleep  [SEP]  [PAD]
        y          0     3    0      1      0      0
        weights    0     1    0      1      0      0

    A word without tokens, such as a control character, becomes the unknown token. The words of a
    sentence that do not fit into `sequence_length` are cut off, with a warning.

    In `tf.data`, the preprocessor runs as Python code, so it does not need tensorflow-text.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch may be padded, if
            they hold its longest sentence. Defaults to `None`: all batches have `sequence_length`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        x: Sentences: a list of lists of words, or a ragged tensor. One sentence, without a batch
            axis, is an element of a dataset that is batched later.
        y: Labels of the words: a list of integers for each sentence. Defaults to `None`.
        sample_weight: A number for each sentence, or a list of numbers for the words of each
            sentence. Defaults to `None`, which means 1 for each word. Used with `y` only.

    Returns:
        A dictionary of `"token_ids"`, `"segment_ids"` and `"padding_mask"` of shape
        `(B, sequence_length)`. With `y`, a tuple `(x, y, sample_weight)` of the dictionary, and
        labels and weights of the same shape.

    Raises:
        ValueError: For an empty batch or sentence, for a string in the place of a list of words,
            for words that are not nonempty strings, and for another number of labels or weights
            than words.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    preprocessor = keras_diet.models.DietBertTokenClassifierPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8
    )
    x, y, sample_weight = preprocessor([["the", "quick", "fox"], ["foxes"]], [[0, 2, 1], [1]])
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3
    """

    labels_per_token = True
    takes_tuples = False

    def __init__(
        self,
        tokenizer: DietBertTokenizer,
        sequence_length: int = 512,
        length_buckets: tuple[int, ...] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            tokenizer, sequence_length=sequence_length, length_buckets=length_buckets, **kwargs
        )

    def check_arguments(self) -> None:
        """Raise a `ValueError` if no word fits, or if the tokenizer pads each word."""
        super().check_arguments()
        length = getattr(self.tokenizer, "sequence_length", None)
        if length is not None:
            raise ValueError(
                "`tokenizer` must not pad, because the preprocessor does. Received: "
                f"tokenizer.sequence_length={length}. Make a tokenizer without it."
            )

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        if y is None and sample_weight is None and isinstance(x, tuple):
            # An element of a dataset.
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(x)
        if not is_one_sentence(x):
            return super().__call__(x, y, as_rows(sample_weight))
        batch = (None if part is None else _batch_of_one(part) for part in (x, y, sample_weight))
        return keras.tree.map_structure(lambda array: array[0], super().__call__(*batch))

    def joined(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return sentences and labels as lists of lists."""
        return as_rows(x), as_rows(y)

    def check_texts(self, x: Any) -> None:
        """Raise a `ValueError` if `x` cannot be a batch of sentences."""
        check_sentences(x)

    def preprocess(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        check: Callable[..., tuple[Any, Any, Any]] | None = None,
    ) -> Any:
        """Return what calling the preprocessor returns, for data that was checked before.

        Args:
            x: Sentences.
            y: Labels, or `None`.
            sample_weight: Weights, or `None`.
            check: Function `(x, y, sample_weight)` that checks a batch in a graph of TensorFlow
                when the graph runs, and returns it. Defaults to `None`, which means the checks of
                the preprocessor.
        """
        if not self.built:
            self.build(None)
        if is_in_graph(x):
            return self._in_graph(x, y, sample_weight, check)
        # A call of the layer would handle every word as an input.
        return convert_preprocessing_outputs_python(self.call(x, y, sample_weight))

    def _in_graph(self, x, y, sample_weight, check):
        def preprocess(*batch):
            x, y, sample_weight = map(as_rows, batch)
            self.check_texts(x)
            if check is not None:
                x, y, sample_weight = check(x, y, sample_weight)
            outputs = self.call(x, y, sample_weight)
            inputs, *targets = outputs if isinstance(outputs, tuple) else (outputs,)
            return [*(inputs[name] for name in _INPUTS), *targets]

        dtypes = _INPUTS if y is None else {**_INPUTS, **_TARGETS}
        # The length of each batch is different with buckets.
        length = None if self.length_buckets else self.sequence_length
        results = python_in_graph(
            preprocess, (x, y, sample_weight), tuple(dtypes.values()), (x.shape[0], length)
        )
        inputs = dict(zip(_INPUTS, results, strict=False))
        return inputs if y is None else (inputs, *results[len(_INPUTS) :])

    # === Tokens ===

    def word_pieces(self, sentences: list[list[str]]) -> list[list[Pieces]]:
        """Return the token ids of each word of each sentence, at least one for a word."""
        words = [word for sentence in sentences for word in sentence]
        # Without `split`, a tokenizer takes lists of words for texts.
        is_splitter = getattr(self.tokenizer, "split", True)
        pieces = self.tokenizer.tokenize(words if is_splitter else [[word] for word in words])
        unknown = [self.tokenizer.token_to_id(getattr(self.tokenizer, "oov_token", "<unk>"))]
        remaining = (of_word or unknown for of_word in pieces)
        return [[next(remaining) for _ in sentence] for sentence in sentences]

    def packed_pieces(
        self, pieces: list[list[Pieces]]
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Return the inputs of a model, and the index of the first token of each word that fits."""
        tokenizer = self.tokenizer
        token_ids, padding_mask, places = pack_words(
            pieces,
            self.sequence_length,
            tokenizer.start_token_id,
            tokenizer.end_token_id,
            tokenizer.pad_token_id,
        )
        inputs = (token_ids, np.zeros_like(token_ids), padding_mask)
        return dict(zip(_INPUTS, inputs, strict=True)), places

    def packed(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """Return inputs, labels and weights of full length."""
        x, y = self.joined(x, y)
        inputs, places = self.packed_pieces(self.word_pieces(x))
        if any(len(at) < len(words) for at, words in zip(places, x, strict=True)):
            self._warn_about_cut_words()
        if y is None:
            return inputs
        check_one_per_word("y", y, x)
        weights = weights_of_words(sample_weight, x)
        return inputs, *(
            at_places(values, places, self.sequence_length, dtype)
            for values, dtype in zip((y, weights), _TARGETS.values(), strict=True)
        )

    def _warn_about_cut_words(self):
        # Without numbers of the batch, Python shows it once.
        warnings.warn(
            f"Some sentences have more than sequence_length={self.sequence_length} tokens with "
            "`[CLS]` and `[SEP]`. Their last words are cut off, so the loss and the metrics do not "
            "count them. Choose a larger `sequence_length`, or split these sentences. The method "
            "`tag` of the classifier splits them by itself.",
            stacklevel=2,
        )


def _batch_of_one(part):
    return part[None] if is_in_graph(part) else [part]
