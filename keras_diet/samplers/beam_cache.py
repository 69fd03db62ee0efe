"""The cache of a model in beam search: its tensors follow their beams."""

from typing import Any

from keras import ops, tree

from keras_diet import _backend
from keras_diet.types import Tensor


class BeamCache:
    """Repeats the tensors of a cache for all beams, and lets them follow their beams.

    Some models pass tensors through their cache that they only read, such as the keys and values of
    the source. They return these tensors as they got them. All beams of a row have the same values
    there, so nothing has to be copied. A tensor that the model has changed once is always gathered.

    Args:
        num_beams: int. Number of beams of a row.
    """

    def __init__(self, num_beams: int) -> None:
        self.num_beams = num_beams
        self.changed: set[int] = set()

    def repeat(self, cache: Any, batch_size: int | Tensor) -> Any:
        """Return the cache with each entry of its first axis repeated for the beams."""
        return tree.map_structure(lambda tensor: self._repeat(tensor, batch_size), cache)

    def _repeat(self, tensor: Tensor, batch_size: int | Tensor) -> Tensor:
        shape = tuple(tensor.shape)
        sizes_differ = isinstance(batch_size, int) and shape[:1] not in ((None,), (batch_size,))
        if not shape or sizes_differ:
            raise ValueError(
                "The first axis of each tensor in `cache` must be the batch. "
                f"Received: a tensor of shape {shape} for a `prompt` of {batch_size} rows. "
                "Transpose it, or let `next` read it from an enclosing scope."
            )
        # PyTorch may return a view of the tensor.
        return ops.copy(ops.repeat(tensor, self.num_beams, axis=0))

    def watch(self, cache: Any) -> list[tuple[Tensor, Any]]:
        """Return what `follow` needs in order to see which tensors change. Call before `next`."""
        return [(tensor, _backend.writes(tensor)) for tensor in tree.flatten(cache)]

    def follow(self, watched: list[tuple[Tensor, Any]], cache: Any, beams: Tensor) -> Any:
        """Return the cache after a step, reordered for the chosen beams.

        Args:
            watched: What `watch` returned before the step.
            cache: The cache that `next` returned.
            beams: Tensor `(B, K)`. The beam of the row that each new beam extends.
        """
        tensors = tree.flatten(cache)
        first = self.num_beams * _backend.arange(ops.shape(beams)[0])
        indices = ops.reshape(ops.expand_dims(first, 1) + ops.cast(beams, "int32"), (-1,))
        for i, (tensor, (before, writes)) in enumerate(zip(tensors, watched, strict=True)):
            if tensor is not before or _backend.writes(tensor) != writes:
                self.changed.add(i)
            if i in self.changed:
                tensors[i] = _backend.take_rows(tensor, indices)
        return tree.pack_sequence_as(cache, tensors)
