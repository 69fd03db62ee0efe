"""The base class of tokenizers."""

import os
from typing import Any, Self

from keras_hub.models import Tokenizer

from keras_diet.models.hub.file_errors import complete_preset, preset_address
from keras_diet.types import Config


class HubTokenizer(Tokenizer):
    """A mixin for a `keras_hub.models.Tokenizer` that checks its files.

    Put it before KerasHub's class: `class MyTokenizer(HubTokenizer, WordPieceTokenizer)`. The
    configuration holds the size of the vocabulary, so that a truncated file raises a `ValueError`.
    A subclass implements `size_of_assets`.
    """

    # The name of the file of the vocabulary.
    assets_file: str
    # Size of a saved vocabulary that is not loaded yet.
    _saved_size: int | None = None

    def size_of_assets(self, file: str) -> int:
        """Return the number of tokens in a file that `save_assets` wrote."""
        raise NotImplementedError

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
            ValueError: If files are missing or damaged, including the vocabulary.
        """
        preset = preset_address(preset)
        with complete_preset(preset):
            return super().from_preset(preset, config_file=config_file, **kwargs)
