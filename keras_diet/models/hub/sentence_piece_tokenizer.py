"""SentencePiece tokenizers: the base class, and the training of their models."""

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sentencepiece
from keras_hub.tokenizers import SentencePieceTokenizer

from keras_diet import validation
from keras_diet.data.columns import is_unicode
from keras_diet.models.hub.tokenizer import HubTokenizer, Span, without_white_space
from keras_diet.pretraining.text import sample_languages, utf8_lines

Texts = Iterable[str | os.PathLike[str]] | os.PathLike[str]
# SentencePiece's own defaults make no padding token, and leave long lines out without an error.
_DEFAULTS = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": 2,
    "eos_id": 3,
    "max_sentence_length": 2**20,
    "minloglevel": 2,
}


class HubSentencePieceTokenizer(HubTokenizer, SentencePieceTokenizer):
    """A `keras_hub.tokenizers.SentencePieceTokenizer` that finds its special tokens in the model.

    A subclass says which of SentencePiece's special tokens are its own.

    Args:
        proto: The path of a SentencePiece model, or its bytes.
        **kwargs: Keyword arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Raises:
        ValueError: If the model lacks a special token.
    """

    # Our name of each special token, and SentencePiece's.
    roles: dict[str, str]
    _processor: sentencepiece.SentencePieceProcessor | None = None

    def set_proto(self, proto: str | os.PathLike[str] | bytes | None) -> None:
        """Set the SentencePiece model, as `SentencePieceTokenizer.set_proto`.

        Raises:
            ValueError: If the model lacks a special token.
        """
        super().set_proto(os.fspath(proto) if isinstance(proto, os.PathLike) else proto)
        self._processor = None
        if proto is not None:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.proto)
        self.find_special_tokens()

    def special_tokens_by_name(self) -> dict[str, str | None]:
        """Return the special tokens by their names. They are `None` before a model is set.

        Raises:
            ValueError: If the model lacks one of them.
        """
        if self._processor is None:
            return dict.fromkeys(self.roles)
        tokens = {}
        for name, role in self.roles.items():
            token_id = getattr(self._processor, f"{role}_id")()
            if token_id < 0:
                raise ValueError(
                    f"`proto` must have tokens for {', '.join(self.roles)}. Received: a "
                    f"SentencePiece model without {name} token ({role}_id=-1). Make one with "
                    f"`{type(self).__name__}.from_texts`, or set SentencePiece's option "
                    f"`{role}_id`."
                )
            tokens[name] = self._processor.id_to_piece(token_id)
        return tokens

    def other_special_tokens(self) -> list[str]:
        """Return the control tokens, which no text has."""
        found = self._processor
        ids = range(found.vocab_size()) if found else ()
        return [found.id_to_piece(i) for i in ids if found.is_control(i)]

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[Span]]]:
        """Return the token ids of each text, and the span of characters of each token."""
        found = self._processor.encode(texts, return_type="offset_mapping")
        return [
            (encoding["ids"], _without_white_space(text, encoding["pieces"], encoding["offsets"]))
            for text, encoding in zip(texts, found, strict=True)
        ]


def _without_white_space(text: str, pieces: list[str], offsets: list[Span]) -> list[Span]:
    """Return the spans of pieces. SentencePiece counts the white space before a word to it.

    If one character became several pieces, SentencePiece gives its place to the last of them only.
    All of them get it here.
    """
    spans: list[Span] = []
    following = (len(text), len(text))
    for piece, span in zip(reversed(pieces), reversed(offsets), strict=True):
        start, end = without_white_space(text, span)
        if start == end == following[0] and piece.strip("▁ "):
            end = following[1]
        following = (start, end)
        spans.append(following)
    return spans[::-1]


def train_sentence_piece(
    texts: Texts | Mapping[str, Texts],
    vocabulary_size: int,
    model_type: str,
    sampling_exponent: float = 0.5,
    seed: int = 0,
    **options: Any,
) -> bytes:
    """Return a SentencePiece model. The same texts and arguments give the same model.

    Only with `input_sentence_size`, and without a dictionary of languages, SentencePiece chooses
    other texts in each process.

    Args:
        texts: An iterable of texts and of paths of text files, or one path. Or a dictionary of
            them, with a key for each language. Then they are read several times.
        vocabulary_size: int. The number of tokens.
        model_type: `"bpe"` or `"unigram"`.
        sampling_exponent: float in [0, 1]. As in `sample_languages`. Defaults to `0.5`.
        seed: int. As in `sample_languages`. Defaults to `0`.
        **options: Other options of `sentencepiece.SentencePieceTrainer`.

    Raises:
        ValueError: If `model_type` is another one, or if a row is not a text.
        RuntimeError: From SentencePiece, if `vocabulary_size` is too large or too small for the
            texts. It says which sizes are possible.
    """
    validation.choice("model_type", model_type, ("bpe", "unigram"))
    if isinstance(texts, Mapping):
        # `sample_languages` refuses iterators, because it reads texts several times.
        languages = {
            language: of_language if isinstance(of_language, Iterator) else _Lines(of_language)
            for language, of_language in texts.items()
        }
        lines = _Lines(sample_languages(languages, sampling_exponent, seed))
        # They are in random order. SentencePiece would choose with another seed in each process.
        options = {"shuffle_input_sentence": False, **options}
    else:
        lines = _Lines(texts)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocabulary_size,
            model_type=model_type,
            **{**_DEFAULTS, **options},
        )
    except Exception:
        if lines.error is not None:
            raise lines.error from None
        raise
    return model.getvalue()


class _Lines:
    """The lines of texts and files. SentencePiece hides errors, so `error` keeps the first one."""

    def __init__(self, texts: Texts) -> None:
        if isinstance(texts, str):
            raise ValueError(
                "`texts` must be an iterable of strings, or of paths of text files. Received: a "
                "string. Put a text into a list, and make a path with `pathlib.Path`."
            )
        self.texts = [texts] if isinstance(texts, os.PathLike) else texts
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for row, text in enumerate(self.texts):
                if isinstance(text, os.PathLike):
                    yield from (line.rstrip("\r\n") for line in utf8_lines(text))
                elif isinstance(text, str) and is_unicode(text):
                    yield text
                else:
                    raise ValueError(
                        "`texts` must hold strings of Unicode, or paths of text files. Received: "
                        f"{text!r} in row {row}. Remove missing rows."
                    )
        except Exception as error:
            self.error = error
            raise
