"""The base class of tokenizers."""

import os
from typing import Any, Self

from keras_hub.models import Tokenizer

from keras_diet import validation
from keras_diet.models.hub.texts import is_one_text, texts_of
from keras_diet.training.columns import host_column

Span = tuple[int, int]


class HubTokenizer(Tokenizer):
    """A mixin for a `keras_hub.models.Tokenizer` that knows where each token stands in the text.

    Put it before KerasHub's class: `class MyTokenizer(HubTokenizer, WordPieceTokenizer)`. A
    subclass implements `special_tokens_by_name` and `encode_with_offsets`. For each name, such as
    `"pad"`, the tokenizer has the attributes `pad_token` and `pad_token_id`.

    Args:
        *args: Arguments of KerasHub's class.
        **kwargs: Keyword arguments of KerasHub's class.
    """

    _special_tokens: tuple[str, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        validation.optional_positive_int("sequence_length", kwargs.get("sequence_length"))
        super().__init__(*args, **kwargs)

    def special_tokens_by_name(self) -> dict[str, str | None]:
        """Return the special tokens by their names. They are `None` before a vocabulary is set."""
        raise NotImplementedError

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[Span]]]:
        """Return the token ids of each text, and the span of characters of each token."""
        raise NotImplementedError

    def find_special_tokens(self) -> None:
        """Set the attributes of the special tokens. A subclass calls it for a new vocabulary."""
        tokens = self.special_tokens_by_name()
        for name, token in tokens.items():
            setattr(self, f"{name}_token", token)
            setattr(self, f"{name}_token_id", None if token is None else self.token_to_id(token))
        self._special_tokens = tuple(dict.fromkeys(filter(None, tokens.values())))

    @property
    def special_tokens(self) -> list[str]:
        """The special tokens, or an empty list before they are known."""
        return list(self._special_tokens)

    @property
    def special_token_ids(self) -> list[int]:
        """The ids of the special tokens."""
        return [self.token_to_id(token) for token in self.special_tokens]

    def tokenize_with_offsets(self, text: str | list[str]) -> Any:
        """Return the tokens of a text, and where each token stands in the text.

        Calling the tokenizer returns the same ids, with the padding and the special tokens that its
        arguments ask for. `text[start:end]` is the part of the original text that became the token.
        It may differ from the token, because tokenizers fold the case and replace characters. If
        one character, such as a ligature, became several tokens, they may have the same span. White
        space belongs to no span, so a token of white space has an empty span.

        Args:
            text: A string, or a list of strings.

        Returns:
            A tuple `(token_ids, offsets)`: a list of int, and a list of tuples `(start, end)` of
            positions in `text`, where `end` is exclusive. For a list of texts, a list of such
            tuples. Special tokens and padding are not added.

        Raises:
            ValueError: If `text` holds something else than strings.

        Example:

        ```python
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es"]
        tokenizer = keras_diet.models.DietBertTokenizer(vocabulary, lowercase=True)
        token_ids, offsets = tokenizer.tokenize_with_offsets("The foxes")
        offsets  # [(0, 3), (4, 7), (7, 9)]
        ```
        """
        found = self.encode_with_offsets(texts_of(text, "text"))
        return found[0] if is_one_text(host_column(text)) else found

    @classmethod
    def from_preset(cls, preset: str | os.PathLike[str], **kwargs: Any) -> Self:
        """Load the tokenizer of a preset, as `keras_hub.tokenizers.Tokenizer.from_preset`.

        Args:
            preset: A folder, an address (`"hf://..."`, `"kaggle://..."`), or a registered name.
            **kwargs: `config_file`, and arguments of the constructor to change.

        Returns:
            A tokenizer of the class that was saved.
        """
        return super().from_preset(os.fspath(preset), **kwargs)
