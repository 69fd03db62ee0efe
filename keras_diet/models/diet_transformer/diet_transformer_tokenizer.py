"""The SentencePiece tokenizer of the DietTransformer models."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import keras
import sentencepiece
from keras_hub.tokenizers import SentencePieceTokenizer

from keras_diet import validation
from keras_diet.models.diet_transformer.diet_transformer_backbone import DietTransformerBackbone
from keras_diet.models.diet_transformer.train_sentence_piece import Texts, train_sentence_piece
from keras_diet.models.hub.tokenizer import HubTokenizer

# SentencePiece's names of the special tokens.
_SPECIAL_TOKENS = {"pad": "pad", "start": "bos", "end": "eos", "unk": "unk"}


@keras.saving.register_keras_serializable(package="keras_diet")
class DietTransformerTokenizer(HubTokenizer, SentencePieceTokenizer):
    """A SentencePiece tokenizer for the source and the target language together.

    The special tokens come from the SentencePiece model: padding, start, end and unknown. They are
    `<pad>`, `<s>`, `</s>` and `<unk>` unless the model has other names. They may have any ids. The
    tokenizer runs in Python with the `sentencepiece` package. Only inside `tf.data` it needs
    tensorflow-text.

    Args:
        proto: The path of a SentencePiece model, or its bytes. `from_texts` makes one.
        **kwargs: Keyword arguments of `keras_hub.tokenizers.SentencePieceTokenizer`:
            `sequence_length`, `add_bos`, `add_eos`, `dtype`, `name`. The preprocessor adds special
            tokens and padding, so it takes none of the first three.

    Call arguments:
        inputs: A string, or a list or tensor of strings.

    Returns:
        Token ids: an array for one string, and a list of lists for several strings.

    Raises:
        ValueError: If `proto` is not a SentencePiece model, or if the model lacks a special token.

    Example:

    ```python
    texts = ["the quick fox", "the slow dog", "der schnelle Fuchs", "der langsame Hund"]
    tokenizer = keras_diet.models.DietTransformerTokenizer.from_texts(texts, vocabulary_size=40)
    tokens = tokenizer(["the fox", "der Hund"])
    tokenizer.detokenize(tokens)
    ```

    References:
     - [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226)
    """

    backbone_cls = DietTransformerBackbone
    assets_file = "vocabulary.spm"

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
        with _readable(proto):
            super().set_proto(proto)
        tokens = dict.fromkeys(_SPECIAL_TOKENS) if proto is None else _special_tokens(self.proto)
        for name, token in tokens.items():
            setattr(self, f"{name}_token", token)
            setattr(self, f"{name}_token_id", None if token is None else self.token_to_id(token))

    @property
    def special_tokens(self) -> list[str]:
        """The special tokens, or an empty list before the SentencePiece model is set."""
        tokens = [getattr(self, f"{name}_token") for name in _SPECIAL_TOKENS]
        return [token for token in tokens if token is not None]

    @property
    def special_token_ids(self) -> list[int]:
        """The ids of the special tokens."""
        return [self.token_to_id(token) for token in self.special_tokens]

    def size_of_assets(self, file: str) -> int:
        """Return the number of tokens in a file with a SentencePiece model."""
        with _readable(file):
            return _processor(Path(file).read_bytes()).vocab_size()

    @classmethod
    def from_texts(
        cls,
        texts: Texts,
        vocabulary_size: int = 32768,
        model_type: str = "bpe",
        **options: Any,
    ) -> Self:
        """Train a tokenizer. The same texts and arguments give the same tokens.

        Pass the texts of both languages, so that both share tokens, as in Vaswani et al. (2017).

        Args:
            texts: An iterable of texts, and of paths (`pathlib.Path`) of files with one text in
                each line, or one path.
            vocabulary_size: int. The number of tokens. Defaults to `32768`.
            model_type: `"bpe"`, byte pair encoding as in Vaswani et al., or `"unigram"`. Defaults
                to `"bpe"`.
            **options: Other options of `sentencepiece.SentencePieceTrainer`, such as
                `character_coverage`. Rare characters that are not covered become unknown tokens.

        Returns:
            A `DietTransformerTokenizer`.

        Raises:
            ValueError: If all texts are empty, or if `vocabulary_size` is too large or too small
                for the texts.

        Example:

        ```python
        texts = ["the quick fox", "the slow dog", "der schnelle Fuchs", "der langsame Hund"]
        tokenizer = keras_diet.models.DietTransformerTokenizer.from_texts(
            texts, vocabulary_size=40, model_type="unigram"
        )
        ```

        References:
         - [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909)
        """
        return cls(train_sentence_piece(texts, vocabulary_size, model_type, **options))


def _special_tokens(proto: bytes) -> dict[str, str]:
    """Return the special tokens of a SentencePiece model."""
    model = _processor(proto)
    if not model.vocab_size():
        raise ValueError(_not_a_model(proto))
    tokens = {}
    for name, piece in _SPECIAL_TOKENS.items():
        token_id = getattr(model, f"{piece}_id")()
        if token_id < 0:
            raise ValueError(
                f"`proto` must have tokens for {', '.join(_SPECIAL_TOKENS)}. Received: a "
                f"SentencePiece model without {name} token ({piece}_id=-1). Make one with "
                "`DietTransformerTokenizer.from_texts`, or set SentencePiece's option "
                f"`{piece}_id`."
            )
        tokens[name] = model.id_to_piece(token_id)
    return tokens


def _processor(proto: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=proto)


@contextlib.contextmanager
def _readable(proto: Any) -> Iterator[None]:
    """Raise a `ValueError` if the SentencePiece model read in this context is none."""
    try:
        yield
    except (ValueError, OSError, ImportError):
        raise
    except Exception as error:
        # A `RuntimeError` of SentencePiece, or an error of TensorFlow.
        raise ValueError(_not_a_model(proto)) from error


def _not_a_model(proto):
    received = f"{len(proto)} bytes" if isinstance(proto, bytes) else f"the file `{proto}`"
    return (
        f"`proto` must be a complete SentencePiece model. Received: {received}. Make one with "
        "`DietTransformerTokenizer.from_texts`, or copy the file again."
    )
