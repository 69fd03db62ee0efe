"""Full sentences packed into sequences of one length, and the segments of such sequences."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_diet import validation
from keras_diet.pretraining.masking import mask_before_padding
from keras_diet.pretraining.text import split_sentences

_SENTENCES_PER_CALL = 1024


def pack_sentences(
    documents: Iterable[Iterable[str]],
    tokenizer: Any,
    sequence_length: int,
    document_masks: bool = False,
) -> Iterator[np.ndarray]:
    """Pack full sentences up to the maximum length (RoBERTa's FULL-SENTENCES).

    Each sequence is `[CLS] s_1 s_2 ... s_k [SEP]` with as many whole sentences, in order, as fit.
    The next sentence starts the next sequence. If a sequence continues with another document, an
    extra `[SEP]` separates the two documents. `[PAD]` fills the end of a sequence.

    A sentence of more than `sequence_length - 2` tokens starts a new sequence. It is cut into full
    sequences, and the rest is packed like any other sentence.

    No token is lost: without the special tokens, the sequences contain the tokens of all sentences
    in order. Only one document and about a thousand sentences are in memory, for a text of any
    size.

    Args:
        documents: Iterable of documents, such as the result of `read_documents`. Each document is
            an iterable of lines of text. Lines are split with `split_sentences`.
        tokenizer: A `keras_hub.models.BertTokenizer`, or any KerasHub tokenizer with
            `cls_token_id`, `sep_token_id` and `pad_token_id`.
        sequence_length: int. Number of tokens in a sequence, at least 3. The paper uses 128 for
            English and 512 for 100 languages (Table 7).
        document_masks: bool. Whether each document in a sequence begins with `[CLS]`, for a model
            that gets the ids of `number_documents`. Defaults to `False`.

    Returns:
        An iterator of int32 arrays of shape `(sequence_length,)`.

    Raises:
        ValueError: If `sequence_length` is less than 3, if `tokenizer` pads, truncates or adds
            special tokens, or if a document is a string.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "ran", "."]
    tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
    documents = [["One ran. Two ran.", "Two."], ["One."]]
    for token_ids in keras_diet.pretraining.pack_sentences(documents, tokenizer, 8):
        print(tokenizer.detokenize(token_ids))
    # [CLS] one ran . two ran . [SEP]
    # [CLS] two . [SEP] one . [SEP] [PAD]
    ```

    References:
     - [Liu et al., 2019](https://arxiv.org/abs/1907.11692), section 4.2
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), appendix A
    """
    if sequence_length < 3:
        raise ValueError(f"`sequence_length` must be at least 3. Received: {sequence_length}")
    validation.plain_tokenizer(tokenizer)
    special = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
    sentences = _tokenized(_numbered_sentences(documents), tokenizer)
    return _packed(sentences, *special, sequence_length, document_masks)


def _numbered_sentences(documents):
    for number, lines in enumerate(documents):
        if isinstance(lines, (str, bytes, Mapping)):
            raise ValueError(f"`documents` must contain lists of lines. Received: {lines!r:.50}")
        for line in lines:
            for sentence in split_sentences(line):
                yield number, sentence


def _tokenized(sentences, tokenizer):
    # `itertools.batched` is new in Python 3.12.
    while batch := list(itertools.islice(sentences, _SENTENCES_PER_CALL)):
        numbers, texts = zip(*batch, strict=True)
        yield from zip(numbers, tokenizer(list(texts)), strict=True)


def _packed(sentences, cls, sep, pad, length, document_masks):
    def sequence(content):
        array = np.full(length, pad, dtype="int32")
        array[: len(content) + 2] = [cls, *content, sep]
        return array

    size, between = length - 2, [sep, cls] if document_masks else [sep]
    content, current = [], None
    for document, tokens in sentences:
        if len(tokens) == 0:
            continue
        separator = between if content and document != current else []
        current = document
        if len(content) + len(separator) + len(tokens) > size:
            if content:
                yield sequence(content)
            content, separator = [], []
        cut = len(tokens) // size * size
        for start in range(0, cut, size):
            yield sequence(tokens[start : start + size])
        content = [*content, *separator, *tokens[cut:]]
    if content:
        yield sequence(content)


def number_segments(
    token_ids: Any, sep_token_id: int, pad_token_id: int = 0, num_segments: int = 2
) -> np.ndarray:
    """Number the parts of a sequence that end with a separator, as BERT numbers two sentences.

    `[CLS] a a [SEP] b [SEP]` becomes `0 0 0 0 1 1`.

    The segment of a token is the number of separators before it, at most `num_segments - 1`.
    Padding belongs to segment 0. `pack_sentences` puts a separator between documents, so each
    document in its sequences is a segment. `[CLS] premise [SEP] hypothesis [SEP]` has the same
    segments as in BERT.

    Args:
        token_ids: Integer array of shape `(..., L)`.
        sep_token_id: int. Id of `[SEP]`.
        pad_token_id: int. Id of `[PAD]`. Defaults to `0`.
        num_segments: int. Number of segments. Defaults to `2`.

    Returns:
        int32 array of shape `(..., L)`.

    Raises:
        ValueError: If `num_segments` is not a positive integer.

    Example:

    ```python
    keras_diet.pretraining.number_segments(np.array([2, 5, 6, 3, 7, 3, 0]), sep_token_id=3)
    # array([0, 0, 0, 0, 1, 1, 0], dtype=int32)
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3
    """
    num_segments = validation.positive_int("num_segments", num_segments)
    token_ids = np.asarray(token_ids)
    is_separator = token_ids == sep_token_id
    separators_before = np.cumsum(is_separator, axis=-1) - is_separator
    segments = np.minimum(separators_before, num_segments - 1)
    return np.where(mask_before_padding(token_ids, pad_token_id), segments, 0).astype("int32")


def number_documents(token_ids: Any, sep_token_id: int, pad_token_id: int = 0) -> np.ndarray:
    """Return the `document_ids` of sequences from `pack_sentences`, in which documents end.

    `[CLS] a a [SEP] [CLS] b [SEP] [PAD]` becomes `1 1 1 1 2 2 2 0`.

    The id of a token is the number of separators before it, plus 1. Padding has the id 0. So the
    sequences and their files need not hold the ids. With these ids, `DietBertMaskedLM` computes for
    each document what it computes for a sequence with this document only.

    Args:
        token_ids: Integer array of shape `(..., L)`.
        sep_token_id: int. Id of `[SEP]`.
        pad_token_id: int. Id of `[PAD]`. Defaults to `0`.

    Returns:
        int32 array of shape `(..., L)`.

    Example:

    ```python
    keras_diet.pretraining.number_documents(np.array([2, 5, 6, 3, 2, 7, 3, 0]), sep_token_id=3)
    # array([1, 1, 1, 1, 2, 2, 2, 0], dtype=int32)
    ```

    References:
     - [Krell et al., 2021](https://arxiv.org/abs/2107.02027), masks and positions
    """
    is_separator = np.asarray(token_ids) == sep_token_id
    numbers = np.cumsum(is_separator, axis=-1) - is_separator + 1
    return np.where(mask_before_padding(token_ids, pad_token_id), numbers, 0).astype("int32")
