"""The WordPiece tokenizer of the DietBert models."""

import os
from pathlib import Path
from typing import Any, Self

import keras
from keras_hub.models import BertTokenizer
from keras_hub.tokenizers import WordPieceTokenizer

from keras_diet import validation
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.from_bert.read_bert import read_tokenizer
from keras_diet.models.hub.file_errors import complete_preset, preset_address
from keras_diet.types import Config


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenizer(WordPieceTokenizer):
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

    def __init__(
        self,
        vocabulary: str | list[str] | None = None,
        lowercase: bool = False,
        **kwargs: Any,
    ) -> None:
        # Size of a saved vocabulary that is not loaded yet.
        self._saved_size: int | None = None
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

    def get_config(self) -> Config:
        """Return the constructor's arguments, and the size of the vocabulary to check files."""
        size = self._saved_size if self.vocabulary is None else len(self.vocabulary)
        # KerasHub 0.32 leaves `split_on_cjk` out.
        config = {**super().get_config(), "split_on_cjk": self.split_on_cjk}
        return config if size is None else {**config, "vocabulary_size": size}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Build the tokenizer from its configuration, without the vocabulary."""
        size = config.get("vocabulary_size")
        tokenizer = super().from_config(
            {name: value for name, value in config.items() if name != "vocabulary_size"}
        )
        tokenizer._saved_size = size
        return tokenizer

    def load_assets(self, dir_path: str | os.PathLike[str]) -> None:
        """Read the vocabulary that `save_assets` wrote.

        Raises:
            ValueError: If lines are missing, or if there are more lines than were saved.
        """
        file = Path(dir_path) / "vocabulary.txt"
        with open(file, encoding="utf-8") as lines:
            size = sum(1 for _ in lines)
        if self._saved_size not in (None, size):
            raise ValueError(
                f"`{file}` is not the vocabulary that was saved, or is truncated. Received: {size} "
                f"lines, but {self._saved_size} tokens were saved. Copy, download or save it again."
            )
        super().load_assets(dir_path)

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        config_file: str = "tokenizer.json",
        **kwargs: Any,
    ) -> Self:
        """Load the tokenizer from a preset, as `keras_hub.tokenizers.Tokenizer.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            config_file: str. The file with the configuration. Defaults to `"tokenizer.json"`.
            **kwargs: Arguments of the constructor to change.

        Raises:
            ValueError: If files are missing or damaged, including the vocabulary.
        """
        preset = preset_address(preset)
        with complete_preset(preset):
            return super().from_preset(preset, config_file=config_file, **kwargs)

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
