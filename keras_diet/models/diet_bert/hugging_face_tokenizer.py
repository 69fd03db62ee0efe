"""The tokenizers of trained encoders, from Hugging Face's `tokenizer.json`."""

import os
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
import tokenizers

from keras_diet import validation
from keras_diet.data.columns import host_column
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.diet_bert.hugging_face.tokenizer_files import (
    FILE,
    read_tokenizer_files,
)
from keras_diet.models.hub.token_rows import Template
from keras_diet.models.hub.tokenizer import FastTokenizer
from keras_diet.types import Config

# The usual names of special tokens.
_USUAL = {
    "unk": ("[UNK]", "<unk>"),
    "sep": ("[SEP]", "</s>"),
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<s>"),
    "mask": ("[MASK]", "<mask>"),
}


@keras.saving.register_keras_serializable(package="keras_diet")
class HuggingFaceTokenizer(FastTokenizer):
    """The tokenizer of a trained encoder, from the file `tokenizer.json`.

    The file says everything: how text is normalized and split, the model (WordPiece, byte-level BPE
    or Unigram), the special tokens, and the template of single texts and pairs:

    | | single | pair | segments |
    |---|---|---|---|
    | BERT | `[CLS] A [SEP]` | `[CLS] A [SEP] B [SEP]` | 0 and 1 |
    | RoBERTa, XLM-R, MPNet | `<s> A </s>` | `<s> A </s> </s> B </s>` | 0 |

    It replaces `DietBertTokenizer` in all preprocessors and presets. Token ids equal those of
    `transformers.AutoTokenizer` with `add_special_tokens=False`, if `from_hugging_face` reads the
    folder. As there, names of special tokens in a text become special tokens.

    Inside a graph, such as `tf.data.Dataset.map`, a Python function computes the ids. Such a graph
    cannot be saved, and cannot run on the host of a TPU pod.

    Args:
        tokenizer: The path of a `tokenizer.json`, its text, or a `tokenizers.Tokenizer`.
        cls_token: str or `None`. The token before a text. Defaults to `None`, which means the first
            token of the template.
        sep_token: str or `None`. The token after a text. Defaults to `None`, which means the last
            token of the template.
        pad_token: str or `None`. The padding. Defaults to `None`: `"[PAD]"` or `"<pad>"`.
        mask_token: str or `None`. The masked token. Defaults to `None`: `"[MASK]"` or `"<mask>"`,
            or no token.
        unk_token: str or `None`. The token of unknown characters. Defaults to `None`: `"[UNK]"` or
            `"<unk>"`, or no token.
        split_special_tokens: bool. Whether names of special tokens in a text are ordinary words.
            Defaults to `False`: they become special tokens.
        number_segments: bool. Whether the segment ids of a pair come from the template.
            Otherwise they are all 0. Defaults to `True`.
        sequence_length: int or `None`. If given, rows are cut or padded to this length. Defaults to
            `None`. Preprocessors add special tokens and padding themselves.
        dtype: `"int32"`, another type of integers, or `"string"` for tokens. Defaults to `"int32"`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: A string, or a list or tensor of strings.

    Returns:
        Token ids: an array for one string, and a list of lists for several strings. With
        `sequence_length`, always an array.

    Raises:
        ValueError: If the file is damaged, if a special token is missing, if pairs have other
            special tokens around them than single texts, or if a text is not a string.

    Example:

    ```python
    import tokenizers

    special_tokens = ["<s>", "<pad>", "</s>", "<mask>"]
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(["a fox"], special_tokens=special_tokens, show_progress=False)
    bpe.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer = keras_diet.models.HuggingFaceTokenizer(bpe.to_str())
    preprocessor = keras_diet.models.DietBertTextClassifierPreprocessor(tokenizer, 16)
    preprocessor((["a fox"], ["a dog"]))  # <s> a fox </s> </s> a dog </s>
    ```

    References:
     - [Wolf et al., 2020](https://aclanthology.org/2020.emnlp-demos.6/)
    """

    backbone_cls = DietBertBackbone
    # Byte-level BPE and Unigram have other tokens for a word after a space.
    before_word = " "
    template: Template | None = None
    _fast_tokenizer: tokenizers.Tokenizer | None = None

    # Without a keyword, a configuration cannot name a file.
    def __init__(
        self,
        tokenizer: str | os.PathLike[str] | tokenizers.Tokenizer | None = None,
        /,
        *,
        cls_token: str | None = None,
        sep_token: str | None = None,
        pad_token: str | None = None,
        mask_token: str | None = None,
        unk_token: str | None = None,
        split_special_tokens: bool = False,
        number_segments: bool = True,
        sequence_length: int | None = None,
        dtype: str = "int32",
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, **kwargs)
        names = {"cls": cls_token, "sep": sep_token, "pad": pad_token, "mask": mask_token}
        self._names_of_special_tokens = {**names, "unk": unk_token}
        self.split_special_tokens = split_special_tokens
        self.number_segments = number_segments
        self.sequence_length = validation.optional_positive_int("sequence_length", sequence_length)
        self.file_assets = [FILE]
        self.set_tokenizer(tokenizer)

    def set_tokenizer(
        self, tokenizer: str | os.PathLike[str] | tokenizers.Tokenizer | None
    ) -> None:
        """Set the tokenizer, as in the constructor.

        Raises:
            ValueError: As in the constructor.
        """
        self._fast_tokenizer, self.template, self._tokens = None, None, []
        if tokenizer is not None:
            self._fast_tokenizer = fast = _read(tokenizer)
            # They are settings of a use of the tokenizer, not of its tokens.
            fast.no_truncation()
            fast.no_padding()
            tokens = {i: token for token, i in fast.get_vocab().items()}
            # Ids without a token have the name "".
            self._tokens = [tokens.get(i, "") for i in range(max(tokens) + 1)]
            self.template = _template(fast, self.number_segments)
            fast.encode_special_tokens = self.split_special_tokens
        self.find_special_tokens()
        self.padding_id = self.pad_token_id

    def special_tokens_by_name(self) -> dict[str, str | None]:
        """Return the special tokens by their names. They are `None` before a tokenizer is set.

        Raises:
            ValueError: If the tokenizer lacks one of them.
        """
        if self._fast_tokenizer is None:
            return dict.fromkeys((*_USUAL, "start", "end"))
        added = {
            token.content for token in self._fast_tokenizer.get_added_tokens_decoder().values()
        }
        tokens = {
            role: next(filter(added.__contains__, names), None) for role, names in _USUAL.items()
        }
        sides = {"cls": self.template.start[:1], "sep": self.template.end[-1:]}
        tokens |= {role: self._tokens[ids[0]] for role, ids in sides.items() if ids}
        tokens |= {role: token for role, token in self._names_of_special_tokens.items() if token}
        for role, token in tokens.items():
            is_missing = token is not None and self._fast_tokenizer.token_to_id(token) is None
            if is_missing or (role == "pad" and token is None):
                raise ValueError(
                    f"`{role}_token` must be a token of the tokenizer. Received: {token!r}. "
                    f"Its added tokens are {sorted(added)!r:.300}"
                )
        # Preprocessors of all model families use the names "start" and "end".
        return {**tokens, "start": tokens["cls"], "end": tokens["sep"]}

    def other_special_tokens(self) -> list[str]:
        """Return the added tokens that are special, in the order of their ids."""
        if self._fast_tokenizer is None:
            return []
        added = self._fast_tokenizer.get_added_tokens_decoder().values()
        return [token.content for token in added if token.special]

    def fast_tokenizer(self) -> tokenizers.Tokenizer:
        """Return the tokenizer of the `tokenizers` package.

        Raises:
            ValueError: If there is none.
        """
        if self._fast_tokenizer is None:
            raise ValueError("A tokenizer must be set. Call `set_tokenizer`.")
        return self._fast_tokenizer

    @property
    def oov_token(self) -> str | None:
        """The token of a word without tokens."""
        return self.unk_token or self.pad_token

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Return the tokens of texts, as `tokenize`."""
        return self.tokenize(inputs)

    def tokenize_with_masks(self, text: str) -> list[int]:
        """Return the tokens of a text. Mask tokens may take the space before them."""
        if self.split_special_tokens:
            return super().tokenize_with_masks(text)
        return self.encode([text])[0]

    def detokenize(self, inputs: Any) -> Any:
        """Return the text of token ids, or a list of texts for several rows of them."""
        rows = host_column(inputs)
        if not len(rows) or np.ndim(rows[0]) == 0:
            return self.fast_tokenizer().decode(list(map(int, rows)), skip_special_tokens=False)
        return [self.detokenize(row) for row in rows]

    def split_token(self, token: str) -> tuple[str, bool]:
        """Return the text of a token, and whether it begins a word."""
        decoder = self.fast_tokenizer().decoder
        # Decoders leave the space before the first word out.
        text = decoder.decode(["a", token])[1:] if decoder else f" {token}"
        return text.removeprefix(" "), text.startswith(" ")

    def get_vocabulary(self) -> list[str]:
        """Return the tokens in the order of their ids. An id without a token has the name `""`."""
        self.fast_tokenizer()
        return list(self._tokens)

    def vocabulary_size(self) -> int:
        """Return the number of ids, from 0 to the largest."""
        self.fast_tokenizer()
        return len(self._tokens)

    def id_to_token(self, id: int) -> str:
        """Return the token of an id."""
        if not 0 <= id < self.vocabulary_size():
            raise ValueError(f"`id` must be in [0, {len(self._tokens)}). Received: {id}")
        return self._tokens[id]

    def token_to_id(self, token: str) -> int:
        """Return the id of a token."""
        token_id = self.fast_tokenizer().token_to_id(token)
        if token_id is None:
            raise ValueError(f"`token` must be in the vocabulary. Received: {token!r}")
        return token_id

    def save_assets(self, dir_path: str) -> None:
        """Write the tokenizer into a folder of a preset or of a Keras file."""
        Path(dir_path, FILE).write_text(self.fast_tokenizer().to_str(), encoding="utf-8")

    def load_assets(self, dir_path: str) -> None:
        """Read the tokenizer of a folder of a preset or of a Keras file."""
        self.set_tokenizer(Path(dir_path, FILE))

    def get_config(self) -> Config:
        """Return the constructor's arguments, without the tokenizer."""
        names = {f"{role}_token": name for role, name in self._names_of_special_tokens.items()}
        arguments = ("split_special_tokens", "number_segments", "sequence_length")
        others = {name: getattr(self, name) for name in arguments}
        return {**super().get_config(), **names, **others}

    @classmethod
    def from_hugging_face(cls, folder: str | os.PathLike[str], **kwargs: Any) -> Self:
        """Read the tokenizer of a folder of Hugging Face. `transformers` reads the files.

        It needs no PyTorch for this, and runs no code of the folder. Segment ids number the texts
        of a pair if the model takes `"token_type_ids"`. Padding is always at the end.

        Args:
            folder: A folder with `tokenizer.json`, or with the `vocab.txt` of a BERT or the
                `spm.model` of a DeBERTa. `bos_token` and `eos_token` stand in for a missing
                `cls_token` and `sep_token`.
            **kwargs: Keyword arguments of the class. They override the files.

        Returns:
            A `HuggingFaceTokenizer`.

        Raises:
            ValueError: If the folder has none of these files; if `tokenizer.json` has another
                setting than `transformers` 5 takes, and `tokenizer_config.json` has none; for a
                tokenizer that is not one of the package `tokenizers`; for `truncation_side="left"`;
                or as the constructor.
            ImportError: If `transformers` is not installed.

        Example:

        ```
        tokenizer = keras_diet.models.HuggingFaceTokenizer.from_hugging_face("all-mpnet-base-v2")
        tokenizer("The quick foxes")
        ```
        """
        files = read_tokenizer_files(folder)
        stand_ins = {"cls": files.names.get("bos"), "sep": files.names.get("eos")}
        arguments: Config = {
            f"{role}_token": files.names.get(role, stand_ins.get(role)) for role in _USUAL
        }
        arguments["split_special_tokens"] = files.split_special_tokens
        arguments["number_segments"] = files.number_segments
        return cls(files.tokenizer, **{**arguments, **kwargs})


def _read(tokenizer):
    """Return a `tokenizers.Tokenizer` from its file, its text or another one."""
    if isinstance(tokenizer, tokenizers.Tokenizer):
        text = tokenizer.to_str()
    elif isinstance(tokenizer, str) and tokenizer.lstrip().startswith("{"):
        text = tokenizer
    else:
        text = Path(tokenizer).read_text(encoding="utf-8")
    try:
        return tokenizers.Tokenizer.from_str(text)
    # The package raises nothing more specific.
    except Exception as error:
        raise ValueError(
            f"`tokenizer` must be a {FILE} of Hugging Face, as a path or a text. Received: "
            f"{tokenizer!r:.100}, of which the package `tokenizers` says: {error}"
        ) from error


def _template(tokenizer, number_segments):
    """Return the special tokens that a tokenizer puts around one and two texts."""
    added = tokenizer.get_added_tokens_decoder()
    if not added:
        raise ValueError("`tokenizer` must have added tokens, such as the padding. Received: none")
    # A special token is one token in any text.
    text = max(added.values(), key=lambda token: token.special).content
    one, two = tokenizer.encode(text), tokenizer.encode(text, text)
    first, second = two.sequence_ids.index(0), two.sequence_ids.index(1)
    start, separator, end = two.ids[:first], two.ids[first + 1 : second], two.ids[second + 1 :]
    if one.ids != [*start, two.ids[first], *end]:
        raise ValueError(
            "The post-processor must put the same tokens before and after one and two texts. "
            f"Received: {one.tokens} and {two.tokens}"
        )
    numbers_segments = number_segments and two.type_ids[second] > 0
    return Template(start, separator, end, numbers_segments, favors_longest=True)
