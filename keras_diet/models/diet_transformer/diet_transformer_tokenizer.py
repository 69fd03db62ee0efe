"""The SentencePiece tokenizer of the DietTransformer models."""

from typing import Any, Self

import keras

from keras_diet.models.diet_transformer.diet_transformer_backbone import DietTransformerBackbone
from keras_diet.models.hub.sentence_piece_tokenizer import (
    HubSentencePieceTokenizer,
    Texts,
    train_sentence_piece,
)


@keras.saving.register_keras_serializable(package="keras_diet")
class DietTransformerTokenizer(HubSentencePieceTokenizer):
    """A SentencePiece tokenizer for the source and the target language together.

    The special tokens come from the SentencePiece model: padding, start, end and unknown. They are
    `<pad>`, `<s>`, `</s>` and `<unk>` unless the model has other names. They may have any ids. The
    tokenizer runs in Python with the `sentencepiece` package. Only inside `tf.data` it needs
    tensorflow-text.

    Args:
        proto: The path of a SentencePiece model, or its bytes. `from_texts` makes one.
        sequence_length: int or `None`. Length to which ids are padded or cut. Defaults to `None`.
        dtype: str. Type of the token ids. Defaults to `"int32"`.
        add_bos: bool. Whether a start token comes first. Defaults to `False`.
        add_eos: bool. Whether an end token comes last. Defaults to `False`.
        **kwargs: Keyword arguments of KerasHub's `SentencePieceTokenizer`, such as `name`.
            The preprocessor adds special tokens and padding, so it takes none of these.

    Call arguments:
        inputs: A string, or a list or tensor of strings.

    Returns:
        Token ids: an array for one string, and a list of lists for several strings.

    Raises:
        ValueError: If the model lacks a special token.

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
    roles = {"pad": "pad", "start": "bos", "end": "eos", "unk": "unk"}

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
            ValueError: If `model_type` is another one, or if a row is not a text.
            RuntimeError: From SentencePiece, if `vocabulary_size` is too large or too small for the
                texts. It says which sizes are possible.

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
