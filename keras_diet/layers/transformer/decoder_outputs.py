"""What the calls of decoders return: outputs, probabilities on request, and the new memory."""

from typing import Any

import keras
from keras import tree

from keras_diet.layers.transformer.decoder_checks import lengths_of_keys
from keras_diet.types import Tensor


def without_missing(output: Any, *others: Any) -> Any:
    """Return a tuple of the output and the others that are not `None`, or the output alone."""
    given = [other for other in others if other is not None]
    return (output, *given) if given else output


def symbolic_scores(
    decoder: Any, inputs: Tensor, encoder_outputs: Tensor | None, memory: Any
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Return the symbolic probabilities of self-attention and cross-attention of a block.

    Args:
        decoder: The block, or a stack of such blocks.
        inputs: Symbolic target.
        encoder_outputs: Symbolic source, or `None` with a memory.
        memory: Symbolic memory of a block, or `None`.
    """
    batch_size, length = inputs.shape[:2]
    target, source = (
        keras.KerasTensor(
            (batch_size, decoder.num_heads, length, key_length), decoder.compute_dtype
        )
        for key_length in lengths_of_keys(inputs, encoder_outputs, memory)
    )
    return target, source


def symbolic_copy(memory: Any) -> Any:
    """Return the symbolic memory after a step. Functional models identify tensors by object."""
    if memory is None:
        return None
    return tree.map_structure(lambda x: keras.KerasTensor(x.shape, dtype=x.dtype), memory)
