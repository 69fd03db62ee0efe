"""The SentencePiece tokenizer of multilingual DietBert models."""

from collections.abc import Mapping
from typing import Any, Self

import keras

from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.hub.sentence_piece_tokenizer import (
    HubSentencePieceTokenizer,
    Texts,
    train_sentence_piece,
)

MASK_TOKEN = "[MASK]"
_OPTIONS = {
    "pad_piece": "[PAD]",
    "unk_piece": "[UNK]",
    "bos_piece": "[CLS]",
    "eos_piece": "[SEP]",
    # Texts cannot contain control symbols, so "[MASK]" in a text is an ordinary word.
    "control_symbols": [MASK_TOKEN],
}


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertSentencePieceTokenizer(HubSentencePieceTokenizer):
    """A SentencePiece tokenizer with BERT's special tokens, for models of several languages.

    It replaces `DietBertTokenizer` in all preprocessors and presets. SentencePiece does not split
    texts at spaces first, so it needs no rules for languages such as Chinese and Thai.

    The SentencePiece model has the tokens for padding, unknown characters, start (`[CLS]`) and end
    (`[SEP]`). They may have any names and ids. The mask token must be called `[MASK]`.
    The tokenizer runs in Python with the `sentencepiece` package. Only inside `tf.data` it needs
    tensorflow-text.

    Args:
        proto: The path of a SentencePiece model, or its bytes. `from_texts` makes one.
        sequence_length: int or `None`. Length to which ids are padded or cut. Defaults to `None`.
        dtype: str. Type of the token ids. Defaults to `"int32"`.
        add_bos: bool. Whether a start token comes first. Defaults to `False`.
        add_eos: bool. Whether an end token comes last. Defaults to `False`.
        **kwargs: Keyword arguments of KerasHub's `SentencePieceTokenizer`, such as `name`.
            Preprocessors add special tokens and padding themselves.

    Call arguments:
        inputs: A string, or a list or tensor of strings.

    Returns:
        Token ids: an array for one string, and a list of lists for several strings.

    Raises:
        ValueError: If the model lacks a special token.

    Example:

    ```python
    texts = {"en": ["the quick fox", "the slow dog"], "de": ["der schnelle Fuchs"]}
    tokenizer = keras_diet.models.DietBertSentencePieceTokenizer.from_texts(
        texts, vocabulary_size=28
    )
    token_ids, offsets = tokenizer.tokenize_with_offsets("the Fuchs")
    ```

    References:
     - [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226)
    """

    backbone_cls = DietBertBackbone
    # Preprocessors of all model families use the names "start" and "end".
    roles = {
        "cls": "bos",
        "sep": "eos",
        "pad": "pad",
        "unk": "unk",
        "start": "bos",
        "end": "eos",
    }

    def special_tokens_by_name(self) -> dict[str, str | None]:
        """Return the special tokens by their names. They are `None` before a model is set.

        Raises:
            ValueError: If the model lacks one of them.
        """
        tokens = super().special_tokens_by_name()
        if self._processor is None:
            return {**tokens, "mask": None}
        if MASK_TOKEN not in self.get_vocabulary():
            raise ValueError(
                f"`proto` must have a token `{MASK_TOKEN}`. Received: a SentencePiece model "
                f"without it. Make one with `{type(self).__name__}.from_texts`, or set "
                f"SentencePiece's option `control_symbols={[MASK_TOKEN]!r}`."
            )
        return {**tokens, "mask": MASK_TOKEN}

    def split_token(self, token: str) -> tuple[str, bool]:
        """Return the text of a token, and whether it begins a word."""
        return token.removeprefix("▁"), token.startswith("▁")

    @classmethod
    def from_texts(
        cls,
        texts: Texts | Mapping[str, Texts],
        vocabulary_size: int = 120_000,
        model_type: str = "unigram",
        sampling_exponent: float = 0.5,
        seed: int = 0,
        **options: Any,
    ) -> Self:
        """Train a tokenizer. The same texts and arguments give the same tokens.

        If languages have different amounts of text, the large ones would take most of the
        tokens. So texts are sampled: with `p_i`, the share of language `i` in all texts, its share
        in the texts for training is

            q_i = p_i**sampling_exponent / sum_j p_j**sampling_exponent

        Texts of small languages are repeated, and of large languages some are left out, so that
        the number of texts stays the same (`keras_diet.pretraining.sample_languages`).

        Args:
            texts: A dictionary with the texts of each language. The texts are a list of strings and
                of paths (`pathlib.Path`) of files with one text in each line, or one path. Without
                a dictionary, all texts are used once.
            vocabulary_size: int. The number of tokens. Defaults to `120_000`, as in section 4.2 of
                the DIET paper.
            model_type: `"unigram"` or `"bpe"`, byte pair encoding. The paper names SentencePiece
                only. Defaults to `"unigram"`, which is SentencePiece's default.
            sampling_exponent: float in [0, 1]. Smaller values give more tokens to languages with
                little text. It has no effect on one language. Defaults to `0.5`, as in XLM.
            seed: int. Seed of the sampling. Defaults to `0`.
            **options: Other options of `sentencepiece.SentencePieceTrainer`, such as
                `character_coverage` and `input_sentence_size`, the largest number of texts that
                SentencePiece keeps in memory. Without a dictionary, it chooses these texts with
                another seed in each process.

        Returns:
            A `DietBertSentencePieceTokenizer`. Its special tokens are `[PAD]`, `[UNK]`, `[CLS]`,
            `[SEP]` and `[MASK]`, with the ids 0 to 4.

        Raises:
            ValueError: If `model_type` is another one, or if a row is not a text.
            RuntimeError: From SentencePiece, if `vocabulary_size` is too large or too small for the
                texts. It says which sizes are possible.

        Example:

        ```python
        texts = {"en": ["the quick fox", "the slow dog"], "de": ["der schnelle Fuchs"]}
        tokenizer = keras_diet.models.DietBertSentencePieceTokenizer.from_texts(
            texts, vocabulary_size=33, model_type="bpe", sampling_exponent=0.7
        )
        ```

        References:
         - [Lample and Conneau, 2019](https://arxiv.org/abs/1901.07291), section 3.1
        """
        return cls(
            train_sentence_piece(
                texts,
                vocabulary_size,
                model_type,
                sampling_exponent,
                seed,
                **{**_OPTIONS, **options},
            )
        )
