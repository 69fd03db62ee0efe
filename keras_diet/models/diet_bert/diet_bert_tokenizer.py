"""The WordPiece tokenizer of the DietBert models."""

import os
from typing import Any, Self

import keras
from keras_hub.models import BertTokenizer
from keras_hub.tokenizers import WordPieceTokenizer
from tokenizers.models import WordPiece

from keras_diet import validation
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.from_bert.tokenizer import read_tokenizer
from keras_diet.models.diet_bert.word_piece_offsets import tokens_with_offsets, word_piece_model
from keras_diet.models.hub.aligned_text import Span
from keras_diet.models.hub.tokenizer import HubTokenizer
from keras_diet.types import Config


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenizer(HubTokenizer, WordPieceTokenizer):
    """A WordPiece tokenizer with BERT's special tokens.

    This is `keras_hub.models.BertTokenizer` for DietBert models. It runs in pure Python. Only
    inside `tf.data` it needs tensorflow-text.

    Args:
        vocabulary: list of str, or the path of a file with one token per line. Must contain
            `"[CLS]"`, `"[SEP]"`, `"[PAD]"`, `"[MASK]"` and `oov_token`.
        lowercase: bool. Whether to lowercase the text first. Defaults to `False`.
        **kwargs: Keyword arguments of `keras_hub.tokenizers.WordPieceTokenizer`:
            `sequence_length`, `strip_accents`, `split`, `split_on_cjk`, `suffix_indicator`,
            `oov_token`, `special_tokens_in_strings`, `dtype`, `name`.

    Call arguments:
        inputs: A string, or a list or tensor of strings.

    Returns:
        Token ids: a list for one string, and a ragged structure for several strings.

    Raises:
        ValueError: If the vocabulary lacks a special token.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
    tokenizer = keras_diet.models.DietBertTokenizer(vocabulary=vocabulary)
    tokenizer("the quick foxes")
    ```

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    backbone_cls = DietBertBackbone
    assets_file = "vocabulary.txt"
    # Made from the vocabulary when it is needed.
    _word_piece_model: WordPiece | None = None

    def __init__(
        self,
        vocabulary: str | list[str] | None = None,
        lowercase: bool = False,
        **kwargs: Any,
    ) -> None:
        self._add_special_token("[CLS]", "cls_token")
        self._add_special_token("[SEP]", "sep_token")
        self._add_special_token("[PAD]", "pad_token")
        self._add_special_token("[MASK]", "mask_token")
        # Preprocessors of all model families use these names.
        self._add_special_token("[CLS]", "start_token")
        self._add_special_token("[SEP]", "end_token")
        validation.optional_positive_int("sequence_length", kwargs.get("sequence_length"))
        lowercase = validation.boolean("lowercase", lowercase)
        super().__init__(vocabulary=vocabulary, lowercase=lowercase, **kwargs)

    def set_vocabulary(self, vocabulary: str | os.PathLike[str] | list[str] | None) -> None:
        """Set the tokens, as `keras_hub.tokenizers.WordPieceTokenizer.set_vocabulary`.

        Raises:
            ValueError: If the vocabulary is not a path or a list of different strings, or lacks a
                special token.
        """
        if vocabulary is not None and not isinstance(vocabulary, (str, os.PathLike)):
            _check_tokens(vocabulary)
        if isinstance(vocabulary, os.PathLike):
            vocabulary = os.fspath(vocabulary)
        super().set_vocabulary(vocabulary)
        self._word_piece_model = None

    def tokens_with_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Return the token ids of one text, and the span of characters of each token."""
        if self._word_piece_model is None:
            self._word_piece_model = word_piece_model(self)
        return tokens_with_offsets(text, self, self._word_piece_model)

    def split_token(self, token: str) -> tuple[str, bool]:
        """Return the text of a token, and whether it begins a word."""
        is_suffix = token.startswith(self.suffix_indicator)
        return token.removeprefix(self.suffix_indicator), not is_suffix

    def get_config(self) -> Config:
        """Return the constructor's arguments, and the size of the vocabulary to check files."""
        # KerasHub 0.32 leaves `split_on_cjk` out.
        return {**super().get_config(), "split_on_cjk": self.split_on_cjk}

    def size_of_assets(self, file: str) -> int:
        """Return the number of tokens in a file: one a line."""
        with open(file, encoding="utf-8") as lines:
            return sum(1 for _ in lines)

    @classmethod
    def from_bert(cls, bert: BertTokenizer | str | os.PathLike[str], **kwargs: Any) -> Self:
        """Make the tokenizer of a BERT, for a model of `DietBertBackbone.from_bert`.

        Args:
            bert: A `keras_hub.models.BertTokenizer`, the address of a preset of KerasHub's BERT, or
                a folder with Hugging Face's `config.json`, and `vocab.txt` or `tokenizer.json`.
                The settings for lowercasing, accents and Chinese characters come from
                `tokenizer_config.json` or `tokenizer.json`.
            **kwargs: Keyword arguments of the class. They override the settings of the BERT.

        Returns:
            A `DietBertTokenizer`.

        Raises:
            ValueError: If the vocabulary is missing, or has more tokens than the model.

        Example:

        ```python
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
        bert_tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
        tokenizer = keras_diet.models.DietBertTokenizer.from_bert(bert_tokenizer)
        tokenizer("The quick foxes")
        ```
        """
        return cls(**{**read_tokenizer(bert), **kwargs})


def _check_tokens(vocabulary):
    rule = "`vocabulary` must be the path of a file, or a list of different, nonempty strings."
    remedy = "Token `i` of the list has the id `i`."
    if not isinstance(vocabulary, (list, tuple)):
        raise ValueError(f"{rule} Received: {type(vocabulary).__name__}. {remedy}")
    seen: set[str] = set()
    for row, token in enumerate(vocabulary):
        if not isinstance(token, str) or not token or token in seen:
            raise ValueError(f"{rule} Received: {token!r} in row {row}. {remedy}")
        seen.add(token)
