"""The WordPiece tokenizer of the DietBert models."""

import os
from pathlib import Path

import keras
from keras_hub.tokenizers import WordPieceTokenizer

from keras_diet.models.diet_bert.damaged_files import complete_preset
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.from_bert.read_tokenizer import read_tokenizer


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenizer(WordPieceTokenizer):
    """A WordPiece tokenizer with BERT's special tokens.

    The same as `keras_hub.models.BertTokenizer`, for the DietBert models. It needs
    tensorflow-text inside `tf.data` only; eagerly it runs in pure Python.

    Args:
        vocabulary: list of str, or the path of a file with one token a line. Must hold
            `"[CLS]"`, `"[SEP]"`, `"[PAD]"`, `"[MASK]"` and `oov_token`.
        lowercase: bool. Whether to lowercase the text first. Defaults to `False`.
        **kwargs: Keyword arguments of `keras_hub.tokenizers.WordPieceTokenizer`:
            `sequence_length`, `strip_accents`, `split`, `split_on_cjk`, `suffix_indicator`,
            `oov_token`, `special_tokens_in_strings`, `dtype`, `name`.

    Call arguments:
        inputs: A string, or a list or tensor of strings.

    Returns:
        Token ids of each string: a list for one string, a ragged structure for several.

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

    def __init__(self, vocabulary=None, lowercase=False, **kwargs):
        # What a configuration says of a vocabulary that is still to be read.
        self._saved_size = None
        self._add_special_token("[CLS]", "cls_token")
        self._add_special_token("[SEP]", "sep_token")
        self._add_special_token("[PAD]", "pad_token")
        self._add_special_token("[MASK]", "mask_token")
        # The names that preprocessors of all model families use.
        self._add_special_token("[CLS]", "start_token")
        self._add_special_token("[SEP]", "end_token")
        super().__init__(vocabulary=vocabulary, lowercase=lowercase, **kwargs)

    def get_config(self):
        """Return the constructor's arguments, and the vocabulary's size to check files with.

        KerasHub 0.32 leaves `split_on_cjk` out.
        """
        size = self._saved_size if self.vocabulary is None else len(self.vocabulary)
        config = {**super().get_config(), "split_on_cjk": self.split_on_cjk}
        return config if size is None else {**config, "vocabulary_size": size}

    @classmethod
    def from_config(cls, config):
        """Build the tokenizer from its configuration, without the vocabulary."""
        size = config.get("vocabulary_size")
        tokenizer = super().from_config(
            {name: value for name, value in config.items() if name != "vocabulary_size"}
        )
        tokenizer._saved_size = size
        return tokenizer

    def load_assets(self, dir_path):
        """Read the vocabulary that `save_assets` wrote; refuse it if lines are missing."""
        file = Path(dir_path) / "vocabulary.txt"
        with open(file, encoding="utf-8") as lines:
            size = sum(1 for _ in lines)
        if self._saved_size not in (None, size):
            raise ValueError(
                f"`{file}` is not the vocabulary that was saved, or is truncated: it has {size} "
                f"lines, but {self._saved_size} tokens were saved."
            )
        super().load_assets(dir_path)

    @classmethod
    def from_preset(cls, preset, config_file="tokenizer.json", **kwargs):
        """Load the tokenizer from a preset, as `keras_hub.tokenizers.Tokenizer.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            config_file: str. The file with the configuration. Defaults to `"tokenizer.json"`.
            **kwargs: Arguments of the constructor to change.

        Raises:
            ValueError: If files are missing or damaged, the vocabulary among them.
        """
        preset = os.fspath(preset)
        with complete_preset(preset):
            return super().from_preset(preset, config_file=config_file, **kwargs)

    @classmethod
    def from_bert(cls, bert, **kwargs):
        """Make the tokenizer of a BERT, for a model of `DietBertBackbone.from_bert`.

        Args:
            bert: A `keras_hub.models.BertTokenizer`, or what `DietBertBackbone.from_bert` takes
                where it has a vocabulary: the address of a preset of KerasHub's BERT, or a folder
                with Hugging Face's `config.json`, and `vocab.txt` or `tokenizer.json`. Lowercasing,
                accents and Chinese characters are handled as `tokenizer_config.json` or
                `tokenizer.json` say.
            **kwargs: Keyword arguments of the class, which go before those of the BERT.

        Returns:
            A `DietBertTokenizer`.

        Raises:
            ValueError: If there is no vocabulary, or it has more tokens than the model.

        Example:

        ```python
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
        bert_tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
        tokenizer = keras_diet.models.DietBertTokenizer.from_bert(bert_tokenizer)
        tokenizer("The quick foxes")
        ```
        """
        return cls(**{**read_tokenizer(bert), **kwargs})
