"""Classification of the words of sentences with a DietBert backbone."""

import itertools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras_hub.models import Task

from keras_diet.data.columns import host_column, is_unicode, number_of_rows
from keras_diet.models.diet_bert.diet_bert_task import DietBertPreprocessor, DietBertTask
from keras_diet.models.diet_bert.hugging_face.heads import TOKEN_CLASSIFIER
from keras_diet.models.hub.classifier_task import ClassifierTask
from keras_diet.models.hub.labels import token_loss
from keras_diet.models.hub.model_inputs import rows_of_documents
from keras_diet.models.hub.preprocessor import (
    PackingPreprocessor,
    TokenPreprocessor,
    checked_preprocessor,
)
from keras_diet.models.hub.token_rows import inputs_of, template_of
from keras_diet.types import Columns, Config, Tensor

# The tokens of a word.
Pieces = Sequence[int]


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenClassifierPreprocessor(
    PackingPreprocessor, DietBertPreprocessor, TokenPreprocessor
):
    """Tokenize and pack sentences, and give the label of each word to its first token.

    A sentence is a list of words. The input is `[CLS]`, then the tokens of each word, then
    `[SEP]` and padding. As in BERT, the label of a word belongs to its first token. All other
    tokens have the weight 0, so the loss and the metrics ignore them:

        tokens   [CLS]  fox  ##es  sleep  [SEP]  [PAD]
        y          0     3    0      1      0      0
        weights    0     1    0      1      0      0

    A word without tokens, such as a control character, becomes the unknown token. The words of a
    sentence that do not fit into `sequence_length` are cut off, with a warning.

    Args:
        tokenizer: A `keras_diet.models.DietBertTokenizer`.
        sequence_length: int. Length of the packed inputs, in tokens. Defaults to `512`.
        length_buckets: tuple of int or `None`. Shorter lengths to which a batch with labels may be
            padded, if they hold its longest sentence. `tag` uses them too. Defaults to `None`: all
            batches have `sequence_length`.
        packed: bool. Whether the sentences of a batch share sequences. A sentence sees no other
            one, so the outputs are the same. Defaults to `False`.
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
        labels and weights of the same shape. All are NumPy arrays. With `packed`, the dictionary
        has fewer rows, `"document_ids"` that number the sentences from 1 on, and
        `"document_first_tokens"` `(B,)`, the flat indices of `[CLS]`.

    Raises:
        ValueError: For an empty batch or sentence, for a string in the place of a list of words,
            for words that are not nonempty strings, and for another number of labels or weights
            than words. With `packed`, for `length_buckets` and for a single sentence.

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

    # Labels are lists, one for each sentence.
    converts_labels = True
    # A tuple of sentences is an element of a dataset.
    takes_tuples = False

    def is_one(self, x: Any) -> bool:
        """Return whether `x` is the words of a single sentence, without a batch axis."""
        words = as_lists(x)
        return isinstance(words, list) and all(isinstance(word, str) for word in words)

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
        """Return sentences, and a label and a weight for each word, as lists of lists.

        Raises:
            ValueError: For a sentence that is not a list of words, for an empty sentence or word,
                and for another number of labels or weights than words, with the row.
        """
        x, y, sample_weight = as_lists(x), as_lists(y), as_lists(sample_weight)
        check_sentences(x, "x")
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

    def make_batch(self, rows: Columns, generator: np.random.Generator | None = None) -> Columns:
        """Return token ids, and labels and weights with a row for each sentence."""
        x, y, sample_weight = rows
        # Predictions of several batches become one array, so they have the same length.
        lengths = self.lengths[-1:] if y is None else self.lengths
        inputs, places = pack_words(self.word_pieces(x), self.tokenizer, lengths)
        if any(len(at) < len(words) for at, words in zip(places, x, strict=True)):
            # Without numbers of the batch, Python shows it once.
            warnings.warn(
                f"Some sentences have more than sequence_length={lengths[-1]} tokens with `[CLS]` "
                "and `[SEP]`. Their last words are cut off. Choose a larger `sequence_length`, or "
                "split these sentences, as `tag` does by itself.",
                stacklevel=2,
            )
        if y is None:
            return self.pack(inputs), None, None
        if sample_weight is None:
            sample_weight = [[1.0] * len(words) for words in x]
        length = inputs["token_ids"].shape[1]
        labels = at_places(y, places, length, "int32")
        return self.pack(inputs), labels, at_places(sample_weight, places, length, "float32")

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


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenClassifier(ClassifierTask, DietBertTask, Task):
    """A DietBert backbone with a head that classifies each word, for example for named entities.

    The head computes logits for each token `i`, as in BERT:

        logits_i = W Dropout(h_i) + b

    where `h_i` is the last hidden state. With a `preprocessor`, `fit`, `evaluate` and `predict`
    take sentences as lists of words, and a list of labels for each sentence. The label of a word
    belongs to its first token. The default loss is the mean over the words of a batch,
    `sum(w * loss) / sum(w)`, and the default metric is the accuracy of these words. Other tokens
    and padding have the weight 0. `metrics` of `compile` count all tokens, also padding, so pass
    metrics as `weighted_metrics`.

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
        inputs: The backbone's dictionary, also with `"document_ids"`.

    Returns:
        Logits of shape `(B, T, num_classes)`, after the `activation`.

    Raises:
        ValueError: If there are fewer than two classes, or if `class_names` are not different,
            nonempty strings, one for each class. If the preprocessor has more tokens than the
            backbone. `fit`, `evaluate` and `predict` raise it for a string in
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

    preprocessor_cls = DietBertTokenClassifierPreprocessor
    trained_head = TOKEN_CLASSIFIER
    takes_documents = True
    backbone_output = "sequence_output"
    one_class_per_example = False

    def outputs_of(self, document_first_tokens: Tensor | None = None, **inputs: Tensor) -> Tensor:
        """Return the outputs for all tokens of each sequence, or of each document."""
        outputs = super().outputs_of(**inputs)
        if document_first_tokens is None:
            return outputs
        return rows_of_documents(outputs, inputs["document_ids"], document_first_tokens)

    def compile_arguments(self, given: Config) -> Config:
        """Return the arguments of `compile` with the defaults of the task."""
        defaults = {
            "loss": token_loss(from_logits=self.output_kind != "probabilities"),
            "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy()],
        }
        return super().compile_arguments({**defaults, **given})

    # === Data ===

    def columns(self, x: Any, y: Any = None, sample_weight: Any = None) -> Columns:
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
        room = template_of(preprocessor.tokenizer).room(preprocessor.sequence_length)
        pieces = preprocessor.word_pieces(sentences)
        parts = [part for words in pieces for part in split_words(words, room)]
        inputs, places = pack_words(parts, preprocessor.tokenizer, preprocessor.lengths[-1:])
        outputs = self.predict_by_length(inputs, batch_size)
        of_words = np.concatenate([row[at] for row, at in zip(outputs, places, strict=True)])
        probabilities = iter(to_probabilities(of_words))
        return [
            [{"word": word, **self.best_classes(next(probabilities), 1)[0]} for word in words]
            for words in sentences
        ]


# === The words of sentences: their tokens, and the places of their labels ===


def as_lists(values: Any) -> Any:
    """Return sentences, or one value for each of their words, as a list of lists.

    Arrays, tensors and other sequences become lists, and bytes become strings. Anything else
    is returned as it is.
    """
    if isinstance(values, bytes):
        return values.decode()
    values = host_column(values)
    values = values.tolist() if isinstance(values, np.ndarray) else values
    return [as_lists(value) for value in values] if isinstance(values, list) else values


def check_sentences(sentences: Any, name: str) -> None:
    """Raise a `ValueError` that names the row unless each sentence is a list of words.

    Args:
        sentences: What `as_lists` returns.
        name: str. The name of the argument.
    """
    for row, words in enumerate(sentences if isinstance(sentences, list) else [sentences]):
        is_list = isinstance(words, list) and len(words) > 0
        if not is_list or not all(isinstance(w, str) and w and is_unicode(w) for w in words):
            raise ValueError(
                f"`{name}` must hold a list of words for each sentence, such as [['the', 'fox']]. "
                "Words are strings of Unicode that are not empty. "
                f"Received: {words!r:.70} in row {row}. Split texts into words, as the training "
                "data is split."
            )


def check_one_per_word(name: str, values: Any, sentences: list[list[str]]) -> None:
    """Raise a `ValueError` that names the row unless there is one value for each word."""
    for row, (of_words, words) in enumerate(zip(values, sentences, strict=True)):
        is_complete = isinstance(of_words, list) and len(of_words) == len(words)
        # NaN differs from itself.
        if not is_complete or any(
            value is None or isinstance(value, list) or value != value for value in of_words
        ):
            raise ValueError(
                f"`{name}` must hold a list for each sentence, with one value for each word, and "
                f"no one-hot rows. Received: {of_words!r:.70} for {len(words)} words in row {row}."
            )


def pack_words(
    sentences: Sequence[Sequence[Pieces]], tokenizer: Any, lengths: Sequence[int]
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Return the inputs of a model, and the places of words.

    Tokens that do not fit are cut off before the end tokens.

    Args:
        sentences: For each word of each sentence, its tokens. A word has at least one.
        tokenizer: It knows the special tokens.
        lengths: The lengths to choose from, which increase.

    Returns:
        A dictionary of arrays of shape `(B, length)`, and for each sentence an array with the index
        of the first token of each word. Words that were cut off have no index.
    """
    chains = map(itertools.chain.from_iterable, sentences)
    template = template_of(tokenizer)
    start, end = template.start, template.end
    limit = len(start) + template.room(lengths[-1])
    rows = [[*[*start, *tokens][:limit], *end] for tokens in chains]
    firsts = (np.cumsum([len(start), *map(len, words)])[:-1] for words in sentences)
    inputs = inputs_of(rows, [[0] * len(row) for row in rows], lengths, tokenizer.pad_token_id)
    return inputs, [of_words[of_words < limit] for of_words in firsts]


def at_places(
    values: Iterable[Sequence[Any]], places: Sequence[np.ndarray], length: int, dtype: str
) -> np.ndarray:
    """Return an array of shape `(B, length)` with values at the places of words, and 0 elsewhere.

    Args:
        values: For each sentence, a value for each word. Those of words without a place are left
            out.
        places: What `pack_words` returns.
        length: int. The length of the sequences.
        dtype: str. The dtype of the result.
    """
    array = np.zeros((len(places), length), dtype)
    for row, (of_words, at) in enumerate(zip(values, places, strict=True)):
        array[row, at] = of_words[: len(at)]
    return array


def split_words(words: Iterable[Pieces], room: int) -> list[list[Pieces]]:
    """Return the words of a sentence in parts with at most `room` tokens.

    A word is never split. A word with more tokens is alone in its part.
    """
    parts: list[list[Pieces]] = [[]]
    size = 0
    for pieces in words:
        if parts[-1] and size + len(pieces) > room:
            parts.append([])
            size = 0
        parts[-1].append(pieces)
        size += len(pieces)
    return parts
