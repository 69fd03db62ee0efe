"""Keys and values that attention keeps between the steps of decoding, and that queries share.

In a search, the beams share their source: `K` rows of queries belong to each row of keys, the first
`K` to the first, and so on. In a product, these rows are `K T` queries of one row. So keys and
values are not repeated.
"""

from typing import Any, TypeAlias

from keras import ops

from keras_diet import _backend
from keras_diet.layers.position.position_bias import keeps_keys
from keras_diet.types import Tensor

KeysAndValues: TypeAlias = tuple[Tensor, ...]
"""Projected keys `(B, S, H, key_dim)` and values `(B, S, H, value_dim)` of an attention layer.

A bias that reads the content of keys adds what it needs of them, `(B, S, H, size)`.
"""

KeyMemory: TypeAlias = tuple[Tensor, ...]
"""The same with the heads before the positions: `(B, H, S, key_dim)` and `(B, H, S, value_dim)`.

Matrix products take them in this order, so a step does not copy them into another one.
"""


def empty_memory(attention: Any, batch_size: Any, length: int, bias: Any = None) -> KeyMemory:
    """Return a memory of zeros for `length` positions, which steps of decoding overwrite."""
    shape = (batch_size, attention.num_heads, length)
    memory = (
        ops.zeros((*shape, attention.key_dim), attention.compute_dtype),
        ops.zeros((*shape, attention.value_dim), attention.compute_dtype),
    )
    if not keeps_keys(bias):
        return memory
    return (*memory, ops.zeros((*shape, bias.key_size), bias.score_dtype))


def swap_heads(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return a memory as keys and values, or keys and values as a memory."""
    return tuple(ops.swapaxes(tensor, 1, 2) for tensor in tensors)


def write_keys(memory: KeyMemory, new: KeysAndValues, start_index: Any) -> KeyMemory:
    """Return a copy of `memory` in which `new` begins at the position `start_index`."""
    if len(memory) != len(new):
        raise ValueError(
            "A memory must have what its bias layer keeps of the keys. Received: a memory of "
            f"{len(memory)} tensors, and {len(new)} tensors of new keys. Pass the same "
            "`attention_bias` to `start_memory` and to all steps."
        )
    start = (0, 0, start_index, 0)
    return tuple(
        _backend.slice_update(old, start, ops.cast(part, old.dtype))
        for old, part in zip(memory, swap_heads(new), strict=True)
    )


def may_share_rows(query: Tensor, key: Tensor) -> bool:
    """Whether there may be more rows of queries than of keys. Their numbers may be unknown."""
    return query.shape[0] is None or query.shape[0] != key.shape[0]


def repeat_rows(tensor: Tensor, num_rows: Any) -> Tensor:
    """Return a tensor with each row repeated, so that it has `num_rows` rows."""
    if isinstance(num_rows, int) and num_rows == tensor.shape[0]:
        return tensor
    return ops.repeat(tensor, num_rows // ops.shape(tensor)[0], axis=0)


def multiply_shared(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of `(B K, H, T, n)` and `(B, H, n, m)`, of shape `(B K, H, T, m)`."""
    if not may_share_rows(left, right):
        return ops.matmul(left, right)
    num_rows, num_heads, length, _ = ops.shape(left)
    product = ops.matmul(_fold(left, ops.shape(right)[0]), right)
    num_shared, size = ops.shape(product)[0], product.shape[-1]
    product = ops.reshape(product, (num_shared, num_heads, -1, length, size))
    return ops.reshape(ops.swapaxes(product, 1, 2), (num_rows, num_heads, length, size))


def with_folded_queries(query: Tensor, key: Tensor, terms: Any) -> tuple[Tensor, Any]:
    """Return queries `(B, K T, H, size)` for keys `(B, S, H, size)`, and their bias and mask."""
    if not may_share_rows(query, key):
        return query, terms
    num_queries, length, *heads = ops.shape(query)
    num_shared = ops.shape(key)[0]

    def fold(term):
        if term is None or (term.shape[0], term.shape[2]) == (1, 1):
            return term
        _, num_heads, _, key_length = ops.shape(term)
        shape = (num_queries, num_heads, length, key_length)
        return _fold(ops.broadcast_to(term, shape), num_shared)

    query = ops.reshape(query, (num_shared, -1, *heads))
    return query, terms.replace(bias=fold(terms.bias), attention_mask=fold(terms.attention_mask))


def _fold(tensor, num_shared):
    """Return a tensor `(B K, H, T, n)` as `(B, H, K T, n)`."""
    _, num_heads, length, size = ops.shape(tensor)
    tensor = ops.reshape(tensor, (num_shared, -1, num_heads, length, size))
    return ops.reshape(ops.swapaxes(tensor, 1, 2), (num_shared, num_heads, -1, size))
