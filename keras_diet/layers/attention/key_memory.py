"""Keys and values that attention keeps between the steps of decoding."""

from typing import Any, TypeAlias

from keras import ops

from keras_diet.types import Tensor

KeysAndValues: TypeAlias = tuple[Tensor, Tensor]
"""Projected keys `(B, S, H, key_dim)` and values `(B, S, H, value_dim)` of an attention layer."""


def empty_keys(attention: Any, batch_size: Any, length: int) -> KeysAndValues:
    """Return keys and values of zeros for `length` positions, which steps of decoding overwrite."""
    shape = (batch_size, length, attention.num_heads)
    return (
        ops.zeros((*shape, attention.key_dim), attention.compute_dtype),
        ops.zeros((*shape, attention.value_dim), attention.compute_dtype),
    )


def write_keys(memory: KeysAndValues, new: KeysAndValues, start_index: Any) -> KeysAndValues:
    """Return a copy of `memory` in which `new` begins at the position `start_index`."""
    start = (0, start_index, 0, 0)
    keys, values = (
        ops.slice_update(old, start, ops.cast(part, old.dtype))
        for old, part in zip(memory, new, strict=True)
    )
    return keys, values
