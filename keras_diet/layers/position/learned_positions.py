"""A learned vector for each position, as in BERT."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.configuration import with_arguments
from keras_diet.layers.initializers import embedding_initializer, fresh
from keras_diet.types import Config, Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class LearnedPositions(keras.layers.Layer):
    """Learned positions of inputs `(B, T, size)`, of shape `(T, size)`.

    With `positions` of shape `(B, T)`, the result has the shape `(B, T, size)`. `keras.layers.
    Embedding` is no substitute: it would be quantized, and gets adapters of LoRA.
    """

    def __init__(self, max_length: int, initializer: Initializer = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_length = max_length
        self.initializer = fresh(embedding_initializer(initializer))
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        """Create the vectors of all positions."""
        self.position_embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_length, inputs_shape[-1]),
            initializer=self.initializer,
        )
        self.built = True

    def call(
        self, inputs: Tensor, start_index: Integer = 0, positions: Tensor | None = None
    ) -> Tensor:
        embeddings = ops.convert_to_tensor(self.position_embeddings)
        length, size = ops.shape(inputs)[1:]
        if positions is None and not ops.is_tensor(start_index):
            return ops.slice(embeddings, (start_index, 0), (length, size))
        if positions is None:
            # PyTorch records this step. It cannot record a slice at a tensor.
            positions = start_index + _backend.arange(length)
        return _backend.take_rows(embeddings, positions)

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        return with_arguments(super().get_config(), self)
