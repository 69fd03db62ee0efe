"""The base class of tokenizers."""

import os
from typing import Any, Self

from keras_hub.models import Tokenizer

from keras_diet.models.hub.aligned_text import Span
from keras_diet.models.hub.columns import is_one_text, texts_of
from keras_diet.models.hub.file_errors import complete_preset, preset_address
from keras_diet.types import Config

# Arguments of tokenizers, and their values with which all tokens come from one text.
_WITHOUT_OFFSETS = {"sequence_length": None, "split": True, "add_bos": False, "add_eos": False}


class HubTokenizer(Tokenizer):
    """A mixin for a `keras_hub.models.Tokenizer` that checks its files.

    Put it before KerasHub's class: `class MyTokenizer(HubTokenizer, WordPieceTokenizer)`. The
    configuration holds the size of the vocabulary, so that a truncated file raises a `ValueError`.
    A subclass implements `size_of_assets` and `tokens_with_offsets`.
    """

    # The name of the file of the vocabulary.
    assets_file: str
    # Size of a saved vocabulary that is not loaded yet.
    _saved_size: int | None = None

    def size_of_assets(self, file: str) -> int:
        """Return the number of tokens in a file that `save_assets` wrote."""
        raise NotImplementedError

    def tokens_with_offsets(self, text: str) -> tuple[list[int], list[Span]]:
        """Return the token ids of one text, and the span of characters of each token."""
        raise NotImplementedError

    def tokenize_with_offsets(self, text: str | list[str]) -> Any:
        """Return the tokens of a text, and where each token stands in the text.

        Calling the tokenizer returns the same ids. `text[start:end]` is the part of the original
        text that became the token. It may differ from the token, because tokenizers fold the
        case and replace characters. Several tokens have the same span if one character, such as a
        ligature, became several tokens. White space belongs to no span, so a token of white space
        has an empty span.

        Args:
            text: A string, or a list of strings.

        Returns:
            A tuple `(token_ids, offsets)`: a list of int, and a list of tuples `(start, end)` of
            positions in `text`, where `end` is exclusive. For a list of texts, a list of such
            tuples. Special tokens and padding are not
            added.

        Raises:
            ValueError: If `text` holds something else than strings, or if the tokenizer pads, adds
                special tokens, or takes words instead of texts.

        Example:

        ```python
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es"]
        tokenizer = keras_diet.models.DietBertTokenizer(vocabulary, lowercase=True)
        token_ids, offsets = tokenizer.tokenize_with_offsets("The foxes")
        offsets  # [(0, 3), (4, 7), (7, 9)]
        ```
        """
        for name, neutral in _WITHOUT_OFFSETS.items():
            value = getattr(self, name, neutral)
            if value != neutral:
                raise ValueError(
                    f"The tokenizer must have `{name}={neutral}` for `tokenize_with_offsets`, "
                    f"which returns the tokens of a text only. Received: {name}={value!r}. Make a "
                    f"tokenizer without `{name}`."
                )
        found = [self.tokens_with_offsets(each) for each in texts_of(text, "text")]
        return found[0] if is_one_text(text) else found

    def get_config(self) -> Config:
        """Return the constructor's arguments, and the size of the vocabulary to check files."""
        try:
            size = self.vocabulary_size()
        except ValueError:
            # The vocabulary of a preset is not loaded yet.
            size = self._saved_size
        config = super().get_config()
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
            ValueError: If tokens are missing, or if there are more than were saved.
        """
        file = os.path.join(dir_path, self.assets_file)
        size = self.size_of_assets(file)
        if self._saved_size not in (None, size):
            raise ValueError(
                f"`{file}` is not the vocabulary that was saved, or is truncated. Received: {size} "
                f"tokens, but {self._saved_size} tokens were saved. Copy, download or save it "
                "again."
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
            ValueError: If files are missing or damaged, including the vocabulary, or if the preset
                has a tokenizer of another class.
        """
        preset = preset_address(preset)
        with complete_preset(preset):
            tokenizer = super().from_preset(preset, config_file=config_file, **kwargs)
        if not isinstance(tokenizer, cls):
            # KerasHub loads the class that was saved, not the class that is asked for.
            saved = type(tokenizer).__name__
            raise ValueError(
                f"The preset must have a `{cls.__name__}`. Received: preset={preset!r} with a "
                f"`{saved}`. Load it with `{saved}.from_preset`, or with "
                "`keras_hub.models.Tokenizer.from_preset`."
            )
        return tokenizer
