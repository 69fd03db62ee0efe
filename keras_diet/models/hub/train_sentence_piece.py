"""Train a SentencePiece model from texts."""

import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sentencepiece

from keras_diet import validation
from keras_diet.pretraining.languages import sample_languages
from keras_diet.pretraining.text import utf8_lines

MODEL_TYPES = ("bpe", "unigram")
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
_OURS = ("input", "model_prefix", "model_type", "model_writer", "sentence_iterator", "vocab_size")


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
        ValueError: If all texts are empty, or if `vocabulary_size` is too large or too small for
            them.
    """
    validation.positive_int("vocabulary_size", vocabulary_size)
    validation.choice("model_type", model_type, MODEL_TYPES)
    for name in _OURS:
        if name in options:
            raise ValueError(
                f"`{name}` must be left out. Received: {name}={options[name]!r}. Pass `texts`, "
                "`vocabulary_size` and `model_type`. The model is returned."
            )
    lines = _lines(texts, sampling_exponent, seed)
    if isinstance(texts, Mapping):
        # They are in random order. SentencePiece would choose with another seed in each process.
        options = {"shuffle_input_sentence": False, **options}
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=vocabulary_size,
            model_type=model_type,
            **{**_DEFAULTS, **options},
        )
    except (RuntimeError, ValueError) as error:
        raise lines.error or _clear_error(str(error), vocabulary_size) from error
    return model.getvalue()


def _lines(texts, exponent, seed):
    if not isinstance(texts, Mapping):
        return _Lines(texts)
    languages = {language: _Lines(of_language) for language, of_language in texts.items()}
    for language, of_language in texts.items():
        if isinstance(of_language, Iterator):
            raise ValueError(
                f"`texts[{language!r}]` must be a list or a path, because it is read several "
                f"times. Received: {type(of_language).__name__}. Make a list of it."
            )
    return _Lines(sample_languages(languages, exponent, seed))


class _Lines:
    """The lines of texts and files. SentencePiece hides errors, so `error` keeps the first one."""

    def __init__(self, texts: Texts) -> None:
        if isinstance(texts, (str, bytes)) or not isinstance(texts, (Iterable, os.PathLike)):
            raise ValueError(
                "`texts` must be an iterable of strings, or of paths of text files. Received: "
                f"{type(texts).__name__}. Put a text into a list, and make a path with "
                "`pathlib.Path`."
            )
        self.texts = [texts] if isinstance(texts, os.PathLike) else texts
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for row, text in enumerate(self.texts):
                if isinstance(text, os.PathLike):
                    yield from (line.rstrip("\r\n") for line in utf8_lines(text, "texts"))
                elif isinstance(text, str):
                    yield text
                else:
                    raise ValueError(
                        f"`texts` must hold strings, or paths of text files. Received: {text!r} in "
                        f"row {row}. Remove missing rows."
                    )
        except Exception as error:
            self.error = error
            raise


def _clear_error(message: str, vocabulary_size: int) -> ValueError:
    """Return an error that says which sizes SentencePiece can make of the texts."""
    received = f"Received: vocabulary_size={vocabulary_size}."
    if largest := re.search(r"size too high .* value <= (\d+)", message):
        return ValueError(
            f"`vocabulary_size` must be at most {largest[1]}, because the texts have no more parts "
            f"of words. {received} Choose a smaller `vocabulary_size`, or pass more texts."
        )
    if smallest := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return ValueError(
            f"`vocabulary_size` must be at least {smallest[1]}, the number of characters and "
            f"special tokens. {received} Choose a larger `vocabulary_size`, or pass a smaller "
            "`character_coverage`."
        )
    if re.search(r"sentences_.empty\(\)|all_chars_count", message):
        return ValueError(
            "`texts` must hold at least one text that is not empty. Received: no such text. Pass "
            "texts."
        )
    return ValueError(
        f"SentencePiece cannot train with these options. {received} Its message: {message}"
    )
