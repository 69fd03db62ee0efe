"""Embeddings of tokens, which also return logits over the vocabulary."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.types import Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class ReversibleEmbedding(keras.layers.ReversibleEmbedding):
    """Keras's layer with its default options, whose logits are as quick as `_backend.matmul`.

    It has the name of Keras's class, because files of weights contain the name.
    """

    def call(self, inputs: Tensor, reverse: bool = False) -> Any:
        if reverse:
            return _backend.matmul(inputs, ops.transpose(self.embeddings))
        return super().call(inputs)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        # By default, Keras quantizes no subclass, because it may compute something else.
        super().quantize(mode, type_check=False, config=config)
