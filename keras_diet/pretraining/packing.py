"""Full sentences packed into sequences of one length."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.pretraining.text import checked_iterable, split_sentences

_SENTENCES_PER_CALL = 1024


def pack_sentences(
    documents: Iterable[Iterable[str]], tokenizer: Any, sequence_length: int
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

    Returns:
        An iterator of int32 arrays of shape `(sequence_length,)`.

    Raises:
        ValueError: If `sequence_length` is less than 3, if `tokenizer` does not have a special
            token, pads, truncates or returns strings, or if a document is not an iterable of
            strings.

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
    sequence_length = validation.positive_int("sequence_length", sequence_length)
    if sequence_length < 3:
        raise ValueError(
            "`sequence_length` must be at least 3: [CLS], one token and [SEP]. "
            f"Received: sequence_length={sequence_length}"
        )
    _check_tokenizer(tokenizer)
    sentences = _tokenized(_numbered_sentences(documents), tokenizer)
    return _packed(sentences, tokenizer, sequence_length)


def _check_tokenizer(tokenizer):
    validation.special_tokens(tokenizer, ("cls_token_id", "sep_token_id", "pad_token_id"))
    if getattr(tokenizer, "sequence_length", None) is not None:
        raise ValueError(
            "`tokenizer` must not pad or truncate. Received: a tokenizer with "
            f"sequence_length={tokenizer.sequence_length}. Create it without `sequence_length`."
        )
    dtype = keras.backend.standardize_dtype(getattr(tokenizer, "compute_dtype", "int32"))
    if not keras.backend.is_int_dtype(dtype):
        raise ValueError(
            f"`tokenizer` must return integers. Received: a tokenizer with dtype={dtype!r}. "
            "Create it with `dtype='int32'`."
        )


def _numbered_sentences(documents):
    for number, lines in enumerate(checked_iterable("documents", documents)):
        if isinstance(lines, (str, bytes, Mapping)) or not isinstance(lines, Iterable):
            kind = "string" if isinstance(lines, str) else type(lines).__name__
            raise ValueError(
                "`documents` must contain lists of lines. "
                f"Received: the {kind} {lines!r:.50}. Pass a list of lines for each document."
            )
        for line in lines:
            for sentence in split_sentences(line):
                yield number, sentence


def _tokenized(sentences, tokenizer):
    for batch in _batches(sentences, _SENTENCES_PER_CALL):
        numbers, texts = zip(*batch, strict=True)
        yield from zip(numbers, tokenizer(list(texts)), strict=True)


def _batches(items, size):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _packed(sentences, tokenizer, length):
    size = length - 2
    content, current = [], None
    for document, tokens in sentences:
        if len(tokens) == 0:
            continue
        separator = [tokenizer.sep_token_id] if content and document != current else []
        current = document
        if len(content) + len(separator) + len(tokens) > size:
            if content:
                yield _sequence(content, tokenizer, length)
            content, separator = [], []
        cut = len(tokens) // size * size
        for start in range(0, cut, size):
            yield _sequence(tokens[start : start + size], tokenizer, length)
        content = [*content, *separator, *tokens[cut:]]
    if content:
        yield _sequence(content, tokenizer, length)


def _sequence(content, tokenizer, length):
    sequence = np.full(length, tokenizer.pad_token_id, dtype="int32")
    sequence[: len(content) + 2] = [tokenizer.cls_token_id, *content, tokenizer.sep_token_id]
    return sequence
