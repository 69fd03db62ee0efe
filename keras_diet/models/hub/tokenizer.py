"""The base classes of tokenizers."""

import os
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import tokenizers
from keras_hub.models import Tokenizer

from keras_diet.data.columns import host_column, is_one_text, texts_of
from keras_diet.models.hub.presets import finish_replacing

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

    def special_tokens_by_name(self) -> dict[str, str | None]:
        """Return the special tokens by their names. They are `None` before a vocabulary is set."""
        raise NotImplementedError

    def other_special_tokens(self) -> Iterable[str]:
        """Return the special tokens without a name here, such as markers of entities."""
        return ()

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[Span]]]:
        """Return the token ids of each text, and the span of characters of each token."""
        raise NotImplementedError

    def find_special_tokens(self) -> None:
        """Set the attributes of the special tokens. A subclass calls it for a new vocabulary."""
        tokens = self.special_tokens_by_name()
        for name, token in tokens.items():
            setattr(self, f"{name}_token", token)
            setattr(self, f"{name}_token_id", None if token is None else self.token_to_id(token))
        found = filter(None, (*tokens.values(), *self.other_special_tokens()))
        self._special_tokens = tuple(dict.fromkeys(found))

    def tokenize_with_masks(self, text: str) -> list[int]:
        """Return the tokens of a text in which mask tokens may stand."""
        first, *others = self.tokenize(text.split(self.mask_token))
        ids = [*first]
        for piece in others:
            ids += [self.mask_token_id, *piece]
        return ids

    @property
    def special_tokens(self) -> list[str]:
        """All special tokens, also added ones. The list is empty before a vocabulary is set."""
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
        finish_replacing(preset)
        return super().from_preset(os.fspath(preset), **kwargs)


class FastTokenizer(HubTokenizer):
    """A `HubTokenizer` whose tokens the `tokenizers` package computes.

    A subclass implements `fast_tokenizer`. `padding_id` fills rows up to `sequence_length`.
    `split_special_tokens` says whether special tokens in a text are ordinary words.
    """

    padding_id: Any = None
    split_special_tokens: Any = False

    def fast_tokenizer(self) -> tokenizers.Tokenizer:
        """Return the tokenizer of the package."""
        raise NotImplementedError

    def tokenize(self, inputs: Any) -> Any:
        """Return the tokens of texts, in the forms of KerasHub's tokenizers."""
        texts = host_column(inputs)
        is_string = self.compute_dtype == "string"
        if is_one_text(texts):
            row = self.encode(texts)[0]
            return row if is_string else np.asarray(row, self.compute_dtype)
        if len(texts) and np.ndim(texts[0]):
            # A list of lists of texts.
            return [self.tokenize(row) for row in texts]
        rows = self.encode(texts) if len(texts) else []
        return (
            np.asarray(rows, self.compute_dtype) if self.sequence_length and not is_string else rows
        )

    def encode(self, texts: Any) -> list[list[Any]]:
        """Return the ids or strings of the tokens of each text."""
        found = self.fast_tokenizer().encode_batch_fast(
            texts_of(texts, "inputs"), add_special_tokens=False
        )
        is_string = self.compute_dtype == "string"
        rows = [encoding.ids for encoding in found]
        if is_string:
            rows = [[self.id_to_token(token_id) for token_id in row] for row in rows]
        if not self.sequence_length:
            return rows
        padding = ["" if is_string else self.padding_id] * self.sequence_length
        return [(row + padding)[: self.sequence_length] for row in rows]

    def encode_with_offsets(self, texts: list[str]) -> list[tuple[list[int], list[Span]]]:
        """Return the token ids of each text, and the span of characters of each token."""
        found = self.fast_tokenizer().encode_batch(texts, add_special_tokens=False)
        return [
            (encoding.ids, [without_white_space(text, span) for span in encoding.offsets])
            for text, encoding in zip(texts, found, strict=True)
        ]


def without_white_space(text: str, span: Span) -> Span:
    """Return the part of a span between its white space. It is empty after white space only."""
    part = text[slice(*span)]
    start = span[0] + len(part) - len(part.lstrip())
    return start, start + len(part.strip())
