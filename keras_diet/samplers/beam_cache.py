"""The cache of a model in beam search: its tensors follow their beams."""

from typing import Any

from keras import ops, tree

from keras_diet import _backend
from keras_diet.types import Tensor


def repeat_cache(cache: Any, num_beams: int, batch_size: int | Tensor) -> Any:
    """Return a copy of the cache with each row repeated for its beams."""

    def repeat(tensor):
        shape = tuple(tensor.shape)
        if not shape or (isinstance(batch_size, int) and shape[0] not in (None, batch_size)):
            raise ValueError(
                "The first axis of each tensor in `cache` must be the batch. "
                f"Received: a tensor of shape {shape} for a `prompt` of {batch_size} rows. "
                "Transpose it, or let `next` read it from an enclosing scope."
            )
        # With one beam, PyTorch returns the tensor of the caller.
        return ops.copy(ops.repeat(tensor, num_beams, axis=0))

    return tree.map_structure(repeat, cache)


def reorder_cache(cache: Any, beams: Tensor) -> Any:
    """Return the cache for the chosen beams.

    Args:
        cache: Nest of tensors with `B K` rows, in which the beams of a row are neighbours.
        beams: Tensor `(B, K)`. The beam of the row that each new beam extends.
    """
    batch_size, num_beams = ops.shape(beams)
    first = ops.expand_dims(num_beams * _backend.arange(batch_size), 1)
    indices = ops.reshape(first + ops.cast(beams, "int32"), (-1,))
    return tree.map_structure(lambda tensor: ops.take(tensor, indices, axis=0), cache)
