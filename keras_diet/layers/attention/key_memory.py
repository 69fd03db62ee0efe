"""Keys and values that attention keeps between the steps of decoding."""

from typing import Any, TypeAlias

from keras import ops

from keras_diet.types import Tensor

KeysAndValues: TypeAlias = tuple[Tensor, Tensor]
"""Projected keys `(B, S, H, key_dim)` and values `(B, S, H, value_dim)` of an attention layer."""

KeyMemory: TypeAlias = tuple[Tensor, Tensor]
"""The same with the heads before the positions: `(B, H, S, key_dim)` and `(B, H, S, value_dim)`.

Matrix products take them in this order, so a step does not copy them into another one.
"""


def empty_memory(attention: Any, batch_size: Any, length: int) -> KeyMemory:
    """Return a memory of zeros for `length` positions, which steps of decoding overwrite."""
    shape = (batch_size, attention.num_heads, length)
    return (
        ops.zeros((*shape, attention.key_dim), attention.compute_dtype),
        ops.zeros((*shape, attention.value_dim), attention.compute_dtype),
    )


def swap_heads(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return a memory as keys and values, or keys and values as a memory."""
    keys, values = pair
    return ops.swapaxes(keys, 1, 2), ops.swapaxes(values, 1, 2)


def write_keys(memory: KeyMemory, new: KeysAndValues, start_index: Any) -> KeyMemory:
    """Return a copy of `memory` in which `new` begins at the position `start_index`."""
    start = (0, 0, start_index, 0)
    keys, values = (
        ops.slice_update(old, start, ops.cast(part, old.dtype))
        for old, part in zip(memory, swap_heads(new), strict=True)
    )
    return keys, values


def memory_length(memory: KeyMemory) -> Any:
    """Return the number of positions of a memory."""
    return memory[0].shape[2]
