"""The base class of preprocessors for tasks that KerasHub does not have."""

from typing import Any

from keras_hub.models import Preprocessor

from keras_diet.types import Config


class TokenPreprocessor(Preprocessor):
    """A `keras_hub.models.Preprocessor` with a tokenizer and a length of sequences.

    Args:
        tokenizer: A tokenizer.
        sequence_length: int. Length of the packed inputs, in tokens.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    def __init__(self, tokenizer: Any, sequence_length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length

    def call(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Refuse tensors in a graph of TensorFlow, whose texts cannot be read."""
        raise NotImplementedError(
            f"`{type(self).__name__}` reads texts on the host, not in a graph. Received: {x}. Pass "
            "the dataset of texts to `fit`, instead of mapping the preprocessor in `tf.data`."
        )

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        return {**super().get_config(), "sequence_length": self.sequence_length}
