"""The positions of a sequence that are generated."""

from typing import NamedTuple

from keras import ops

from keras_diet.types import Tensor


class Step(NamedTuple):
    """What one step does in each row."""

    place: Tensor  # (B, T), true at the position of the step if the row generates a token there
    generates: Tensor  # (B, 1), whether it does. If not, a token of the prompt stands there
    length: Tensor  # (B, 1), number of generated tokens, with the one of this step


class Places:
    """Counts the generated tokens of each row, whose prompts may have different lengths.

    Args:
        prompt: Tensor `(B, T)`.
        index: int or scalar tensor. The first position that may be generated.
        mask: Boolean tensor `(B, T)`, true for tokens of the prompt; or `None`.
    """

    def __init__(self, prompt: Tensor, index: int | Tensor, mask: Tensor | None) -> None:
        self.positions = ops.cumsum(ops.ones_like(prompt, dtype="int32"), axis=1) - 1
        self.generated = self.positions >= index
        if mask is not None:
            fixed = ops.cast(mask, "bool")
            self.generated = ops.logical_and(self.generated, ops.logical_not(fixed))
        self.lengths = ops.cumsum(ops.cast(self.generated, "int32"), axis=1)
        self.total = ops.max(self.lengths, axis=1, keepdims=True)

    def at(self, index: int | Tensor) -> Step:
        """Return the step at position `index`."""
        here = self.positions == index
        place = ops.logical_and(here, self.generated)
        length = ops.sum(ops.where(here, self.lengths, 0), axis=1, keepdims=True)
        return Step(place, ops.any(place, axis=1, keepdims=True), length)
