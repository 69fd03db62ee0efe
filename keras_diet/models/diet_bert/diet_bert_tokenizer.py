"""The WordPiece tokenizer of the DietBert models."""

import json
import os
import sys
from typing import Any, Self

import keras
import tokenizers
from keras_hub.models import BertTokenizer
from keras_hub.tokenizers import WordPieceTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from keras_diet import validation
from keras_diet.data.columns import in_graph
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.hugging_face.tokenizer_files import FILE, read_tokenizer_files
from keras_diet.models.hub.presets import is_hugging_face_folder
from keras_diet.models.hub.tokenizer import FastTokenizer
from keras_diet.types import Config

_OF_BERT = {"cls": "[CLS]", "sep": "[SEP]", "pad": "[PAD]", "mask": "[MASK]"}
_OF_MPNET = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}
# Arguments that KerasHub's tokenizer has in its configuration.
_OF_KERASHUB = (
    *("lowercase", "strip_accents", "split", "suffix_indicator", "oov_token"),
    *("special_tokens_in_strings", "sequence_length"),
)


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertTokenizer(FastTokenizer, WordPieceTokenizer):
    """A WordPiece tokenizer with BERT's special tokens.

    It takes and returns what `keras_hub.models.BertTokenizer` does. Its token ids equal those of
    BERT's own tokenizer: the `tokenizers` package computes them, as in Hugging Face's
    `transformers.BertTokenizer`.

    Inside a graph, such as `tf.data.Dataset.map`, tensorflow-text computes the ids by KerasHub's
    rule. Ordinary text has the same ids. They can differ in these cases:

    | text | in Python, as BERT | in a graph, as KerasHub |
    |---|---|---|
    | white space outside ASCII, such as a no-break space | separates words | part of a word |
    | format characters, such as a soft hyphen | removed | separate words |
    | `lowercase=True` | lower case | NFKC and case folding: `ß` becomes `ss` |
    | long words are unknown | from 101 characters on | from 101 bytes on |
    | `[UNK]` with `special_tokens_in_strings=True` | one token | three words |

    With `split=False`, KerasHub's rule applies everywhere.

    Args:
        vocabulary: list of str, or the path of a file with one token per line. Must contain the
            special tokens and `oov_token`.
        lowercase: bool. Whether to lowercase the text first. Defaults to `False`.
        cls_token: str or `None`. The token before a text. Defaults to `None`, which means `"[CLS]"`
            as in BERT, or `"<s>"` if the vocabulary has all of MPNet's special tokens.
        sep_token: str or `None`. The token after a text: `"[SEP]"`, or MPNet's `"</s>"`.
        pad_token: str or `None`. The padding: `"[PAD]"`, or MPNet's `"<pad>"`.
        mask_token: str or `None`. The masked token: `"[MASK]"`, or MPNet's `"<mask>"`.
        **kwargs: Keyword arguments of `keras_hub.tokenizers.WordPieceTokenizer`:
            `sequence_length`, `strip_accents`, `split`, `split_on_cjk`, `suffix_indicator`,
            `oov_token`, `special_tokens_in_strings`, `dtype`, `name`.

    Call arguments:
        inputs: A string, or a list or tensor of strings.

    Returns:
        Token ids: an array for one string, and a list of lists for several strings. With
        `sequence_length`, always an array.

    Raises:
        ValueError: If the vocabulary lacks a special token, or if a text is not a string.

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
    # Made from the vocabulary when it is needed.
    _fast_tokenizer: tokenizers.Tokenizer | None = None
    # KerasHub pads with 0 too, whatever the id of the padding token is.
    padding_id = 0

    def __init__(
        self,
        vocabulary: str | os.PathLike[str] | list[str] | None = None,
        lowercase: bool = False,
        *,
        cls_token: str | None = None,
        sep_token: str | None = None,
        pad_token: str | None = None,
        mask_token: str | None = None,
        **kwargs: Any,
    ) -> None:
        names = {"cls": cls_token, "sep": sep_token, "pad": pad_token, "mask": mask_token}
        self._names_of_special_tokens = names
        super().__init__(vocabulary=vocabulary, lowercase=lowercase, **kwargs)

    def set_vocabulary(self, vocabulary: str | os.PathLike[str] | list[str] | None) -> None:
        """Set the tokens, as `keras_hub.tokenizers.WordPieceTokenizer.set_vocabulary`.

        Raises:
            ValueError: If the vocabulary lacks a special token.
        """
        if isinstance(vocabulary, os.PathLike):
            vocabulary = os.fspath(vocabulary)
        super().set_vocabulary(vocabulary)
        self._fast_tokenizer = None
        self.find_special_tokens()

    def special_tokens_by_name(self) -> dict[str, str | None]:
        """Return the special tokens by their names. They are `None` before a vocabulary is set."""
        # MPNet's vocabulary has BERT's special tokens too, but MPNet does not use them.
        is_mpnet = set(_OF_MPNET.values()) <= set(self.vocabulary or ())
        given = {role: name for role, name in self._names_of_special_tokens.items() if name}
        tokens = {**(_OF_MPNET if is_mpnet else _OF_BERT), **given}
        # Preprocessors of all model families use the names "start" and "end".
        tokens |= {"start": tokens["cls"], "end": tokens["sep"]}
        return {name: token if self.vocabulary else None for name, token in tokens.items()}

    def other_special_tokens(self) -> list[str]:
        """Return the `special_tokens` of the constructor that the vocabulary has."""
        of_user = WordPieceTokenizer.get_config(self)["special_tokens"] or ()
        return [token for token in of_user if token in (self.vocabulary or ())]

    def tokenize(self, inputs: Any) -> Any:
        """Return the tokens of texts, as `keras_hub.tokenizers.WordPieceTokenizer.tokenize`."""
        if self.split and not in_graph():
            return super().tokenize(inputs)
        if self.split:
            # BERT removes U+0000. In tensorflow-text it would end the text.
            strings = sys.modules["tensorflow"].strings
            inputs = strings.regex_replace(inputs, r"\x00", "")
        return WordPieceTokenizer.tokenize(self, inputs)

    def fast_tokenizer(self) -> tokenizers.Tokenizer:
        """Return the tokenizer of the `tokenizers` package with the same arguments."""
        if self._fast_tokenizer is None:
            ids = {token: i for i, token in enumerate(self.get_vocabulary())}
            prefix = self.suffix_indicator
            tokenizer = tokenizers.Tokenizer(
                models.WordPiece(ids, unk_token=self.oov_token, continuing_subword_prefix=prefix)
            )
            tokenizer.normalizer = normalizers.BertNormalizer(
                handle_chinese_chars=self.split_on_cjk,
                strip_accents=self.strip_accents,
                lowercase=self.lowercase,
            )
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.WordPiece(prefix)
            if self.special_tokens_in_strings:
                kept = [*self.special_tokens, self.oov_token]
                # A token outside the vocabulary would get a separate id.
                tokenizer.add_special_tokens([token for token in kept if token in ids])
            self._fast_tokenizer = tokenizer
        return self._fast_tokenizer

    @property
    def split_special_tokens(self) -> bool:
        """Whether names of special tokens in a text are ordinary words."""
        return not self.special_tokens_in_strings

    def split_token(self, token: str) -> tuple[str, bool]:
        """Return the text of a token, and whether it begins a word."""
        is_suffix = token.startswith(self.suffix_indicator)
        return token.removeprefix(self.suffix_indicator), not is_suffix

    def get_config(self) -> Config:
        """Return the constructor's arguments, without the vocabulary."""
        given = self._names_of_special_tokens.items()
        names = {f"{name}_token": token for name, token in given}
        # KerasHub 0.32 leaves `split_on_cjk` out.
        return {**super().get_config(), "split_on_cjk": self.split_on_cjk, **names}

    @classmethod
    def from_bert(cls, bert: BertTokenizer | str | os.PathLike[str], **kwargs: Any) -> Self:
        """Make the tokenizer of a BERT, for a model of `DietBertBackbone.from_bert`.

        Args:
            bert: A `keras_hub.models.BertTokenizer`, the address of a preset of KerasHub's BERT, or
                a folder with Hugging Face's `config.json`, and `tokenizer.json` or `vocab.txt`.
                All its files are read as by `HuggingFaceTokenizer.from_hugging_face`.
            **kwargs: Keyword arguments of the class. They override the settings of the BERT.

        Returns:
            A `DietBertTokenizer`.

        Raises:
            ValueError: If `bert` is something else, or if its tokenizer is not BERT's.

        Example:

        ```python
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox", "##es"]
        bert_tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
        tokenizer = keras_diet.models.DietBertTokenizer.from_bert(bert_tokenizer)
        tokenizer("The quick foxes")
        ```
        """
        if is_hugging_face_folder(bert):
            return cls(**{**_arguments_of(bert), **kwargs})
        if isinstance(bert, (str, os.PathLike)):
            bert = BertTokenizer.from_preset(os.fspath(bert))
        config = bert.get_config()
        arguments = {name: config[name] for name in _OF_KERASHUB}
        names = {f"{role}_token": getattr(bert, f"{role}_token") for role in _OF_BERT}
        arguments |= {"vocabulary": bert.get_vocabulary(), "split_on_cjk": bert.split_on_cjk}
        return cls(**{**arguments, **names, **kwargs})


def _arguments_of(folder):
    """Return the arguments of a folder of Hugging Face, whose tokenizer must be BERT's."""
    files = read_tokenizer_files(folder)
    contents = json.loads(files.tokenizer.to_str())
    for part, kind in (("model", "WordPiece"), ("normalizer", "BertNormalizer")):
        found = (contents[part] or {}).get("type")
        validation.choice(f"type of the {part} in {FILE}", found, (kind,))
    tokens = {i: token for token, i in files.tokenizer.get_vocab().items()}
    lowercase, strip_accents, split_on_cjk = (
        contents["normalizer"][name]
        for name in ("lowercase", "strip_accents", "handle_chinese_chars")
    )
    return {
        "vocabulary": [tokens[i] for i in range(len(tokens))],
        "oov_token": contents["model"]["unk_token"],
        "suffix_indicator": contents["model"]["continuing_subword_prefix"],
        "lowercase": lowercase,
        # BERT strips accents whenever it lowercases.
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_on_cjk": split_on_cjk,
        **{f"{role}_token": files.names.get(role) for role in ("cls", "sep", "pad", "mask")},
    }
