"""The words of a text and their pieces, each with its place in the text."""

import functools
from collections.abc import Iterator, Sequence

from keras_hub.tokenizers import WordPieceTokenizer
from tokenizers import models

from keras_diet._compat import MAX_BYTES_PER_WORD, pretokenize_python
from keras_diet.models.hub.aligned_text import Span, align


def word_piece_model(tokenizer: WordPieceTokenizer) -> models.WordPiece:
    """Return the model of the `tokenizers` package with the vocabulary of a tokenizer."""
    return models.WordPiece(
        {token: i for i, token in enumerate(tokenizer.get_vocabulary())},
        unk_token=tokenizer.oov_token,
        continuing_subword_prefix=tokenizer.suffix_indicator,
        max_input_chars_per_word=MAX_BYTES_PER_WORD,
    )


def tokens_with_offsets(
    text: str, tokenizer: WordPieceTokenizer, model: models.WordPiece
) -> tuple[list[int], list[Span]]:
    """Return the token ids of a text, and the span of characters of each token.

    KerasHub's function does what changes the text: it removes accents, splits the text into words
    and folds their case. So the ids are the same as the tokenizer's. This function only finds out
    where each character comes from.
    """
    ids: list[int] = []
    offsets: list[Span] = []
    for word, spans in _words(text, tokenizer):
        if len(word.encode()) > MAX_BYTES_PER_WORD:
            pieces = [(tokenizer.token_to_id(tokenizer.oov_token), len(word))]
        else:
            pieces = _pieces(word, model, len(tokenizer.suffix_indicator))
        start = 0
        for token_id, length in pieces:
            ids.append(token_id)
            offsets.append((spans[start][0], spans[start + length - 1][1]))
            start += length
    return ids, offsets


def _pieces(word: str, model: models.WordPiece, prefix_length: int) -> list[tuple[int, int]]:
    """Return the id and the number of characters of each piece of a word."""
    tokens = model.tokenize(word)
    if len(tokens) == 1:
        # The unknown token has another length than the word.
        return [(tokens[0].id, len(word))]
    return [
        (token.id, len(token.value) - (prefix_length if i else 0)) for i, token in enumerate(tokens)
    ]


def _words(text: str, tokenizer: WordPieceTokenizer) -> Iterator[tuple[str, list[Span]]]:
    """Yield each normalized word, and the span in the text of each of its characters."""
    special_tokens = _special_tokens(tokenizer)
    spans = [(i, i + 1) for i in range(len(text))]
    if tokenizer.strip_accents:
        text, spans = align(text, _without_accents)
    end = 0
    for word in pretokenize_python(
        text,
        strip_accents=False,
        split_on_cjk=tokenizer.split_on_cjk,
        special_tokens=special_tokens,
    ):
        start = text.index(word, end)
        end = start + len(word)
        of_word = spans[start:end]
        if tokenizer.lowercase and word not in special_tokens:
            word, of_characters = align(word, _fold_case)
            of_word = [(of_word[i][0], of_word[j - 1][1]) for i, j in of_characters]
        yield word, of_word


def _special_tokens(tokenizer: WordPieceTokenizer) -> Sequence[str]:
    """Return the special tokens that a text may contain."""
    if not tokenizer.special_tokens_in_strings:
        return ()
    return (*tokenizer.special_tokens, *(tokenizer.get_config()["special_tokens"] or ()))


def _without_accents(text: str) -> str:
    return pretokenize_python(text, strip_accents=True, split=False)[0]


# Words and characters repeat, and folding takes longer than all the rest.
@functools.lru_cache(maxsize=2**16)
def _fold_case(word: str) -> str:
    return pretokenize_python(word, lowercase=True, strip_accents=False, split=False)[0]
