"""The base class of SentencePiece tokenizers."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sentencepiece
from keras_hub.tokenizers import SentencePieceTokenizer

from keras_diet import validation
from keras_diet.models.hub.aligned_text import Span
from keras_diet.models.hub.sentence_piece_offsets import tokens_with_offsets
from keras_diet.models.hub.tokenizer import HubTokenizer


class HubSentencePieceTokenizer(HubTokenizer, SentencePieceTokenizer):
    """A `keras_hub.tokenizers.SentencePieceTokenizer` that finds its special tokens in the model.

    A subclass says which of SentencePiece's special tokens are its own. For each name, such as
    `"pad"`, the tokenizer has the attributes `pad_token` and `pad_token_id`.

    Args:
        proto: The path of a SentencePiece model, or its bytes.
        **kwargs: Keyword arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Raises:
        ValueError: If `proto` is not a SentencePiece model, or if the model lacks a special token.
    """

    assets_file = "vocabulary.spm"
    # Our name of each special token, and SentencePiece's.
    roles: dict[str, str]
    # Made from `proto` when it is needed.
    _processor: sentencepiece.SentencePieceProcessor | None = None

    def __init__(self, proto: str | os.PathLike[str] | bytes | None = None, **kwargs: Any) -> None:
        validation.optional_positive_int("sequence_length", kwargs.get("sequence_length"))
        super().__init__(proto=proto, **kwargs)

    def set_proto(self, proto: str | os.PathLike[str] | bytes | None) -> None:
        """Set the SentencePiece model, as `SentencePieceTokenizer.set_proto`.

        Raises:
            ValueError: If it is not a SentencePiece model, or if it lacks a special token.
        """
        if isinstance(proto, os.PathLike):
            proto = os.fspath(proto)
        with self._readable(proto):
            super().set_proto(proto)
        model = None if proto is None else _processor(self.proto)
        if model is not None and not model.vocab_size():
            raise ValueError(self._not_a_model(self.proto))
        self._processor = None
        for name, token in self.find_special_tokens(model).items():
            setattr(self, f"{name}_token", token)
            setattr(self, f"{name}_token_id", None if token is None else self.token_to_id(token))

    def find_special_tokens(
        self, model: sentencepiece.SentencePieceProcessor | None
    ) -> dict[str, str | None]:
        """Return our names of special tokens, and the tokens of a SentencePiece model.

        Without a model, the tokens are `None`.

        Raises:
            ValueError: If a special token is missing.
        """
        if model is None:
            return dict.fromkeys(self.roles)
        tokens = {}
        for name, role in self.roles.items():
            token_id = getattr(model, f"{role}_id")()
            if token_id < 0:
                raise ValueError(
                    f"`proto` must have tokens for {', '.join(self.roles)}. Received: a "
                    f"SentencePiece model without {name} token ({role}_id=-1). Make one with "
                    f"`{type(self).__name__}.from_texts`, or set SentencePiece's option "
                    f"`{role}_id`."
                )
            tokens[name] = model.id_to_piece(token_id)
        return tokens

    @property
    def special_tokens(self) -> list[str]:
        """The special tokens, or an empty list before the SentencePiece model is set."""
        names = self.find_special_tokens(None)
        tokens = dict.fromkeys(getattr(self, f"{name}_token") for name in names)
        return [token for token in tokens if token is not None]

    @property
    def special_token_ids(self) -> list[int]:
        """The ids of the special tokens."""
        return [self.token_to_id(token) for token in self.special_tokens]

    def size_of_assets(self, file: str) -> int:
        """Return the number of tokens in a file with a SentencePiece model."""
        with self._readable(file):
            return _processor(Path(file).read_bytes()).vocab_size()

    def tokens_with_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Return the token ids of one text, and the span of characters of each token."""
        if self._processor is None:
            self._processor = _processor(self.proto)
        return tokens_with_offsets(text, self._processor)

    @contextlib.contextmanager
    def _readable(self, proto: Any) -> Iterator[None]:
        """Raise a `ValueError` if the SentencePiece model read in this context is none."""
        try:
            yield
        except (ValueError, OSError, ImportError):
            raise
        except Exception as error:
            # A `RuntimeError` of SentencePiece, or an error of TensorFlow.
            raise ValueError(self._not_a_model(proto)) from error

    def _not_a_model(self, proto):
        received = f"{len(proto)} bytes" if isinstance(proto, bytes) else f"the file `{proto}`"
        return (
            f"`proto` must be a complete SentencePiece model. Received: {received}. Make one with "
            f"`{type(self).__name__}.from_texts`, or copy the file again."
        )


def _processor(proto: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=proto)
