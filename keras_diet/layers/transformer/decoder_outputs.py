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


def join_blocks(others: list[list[Any]], memory: Any) -> list[Any]:
    """Return lists with the scores of all blocks, and the next memory of the stack.

    Args:
        others: For each block, what it returned beside its output.
        memory: The memory before the step, or `None`.
    """
    joined: list[Any] = [list(of_blocks) for of_blocks in zip(*others, strict=True)]
    if memory is not None:
        joined[-1] = memory._replace(target=tuple(target for target, _ in joined[-1]))
    return joined
