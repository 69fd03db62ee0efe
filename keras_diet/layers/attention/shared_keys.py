"""Rows of queries that share a row of keys, as the beams of a search share their source.

`K` rows of queries belong to each row of keys: the first `K` to the first, and so on. In a product,
these rows are `K T` queries of one row. So keys and values are not repeated.
"""

import dataclasses

from keras import ops

from keras_diet.layers.attention.lowering import LoweredScores
from keras_diet.layers.attention.shared_rows import may_share_rows
from keras_diet.types import Tensor


def multiply_shared(left: Tensor, right: Tensor) -> Tensor:
    """Return the product of `(B K, H, T, n)` and `(B, H, n, m)`, of shape `(B K, H, T, m)`."""
    if not may_share_rows(left, right):
        return ops.matmul(left, right)
    num_rows, num_heads, length, _ = ops.shape(left)
    product = ops.matmul(_fold(left, ops.shape(right)[0]), right)
    num_shared, size = ops.shape(product)[0], product.shape[-1]
    product = ops.reshape(product, (num_shared, num_heads, -1, length, size))
    return ops.reshape(ops.swapaxes(product, 1, 2), (num_rows, num_heads, length, size))


def with_folded_queries(lowered: LoweredScores) -> LoweredScores:
    """Return queries `(B, K T, H, size)` for keys `(B, S, H, size)`, with their bias and mask."""
    if not may_share_rows(lowered.query, lowered.key):
        return lowered
    num_queries, length, *heads = ops.shape(lowered.query)
    num_shared = ops.shape(lowered.key)[0]

    def fold(term):
        if term is None or (term.shape[0], term.shape[2]) == (1, 1):
            return term
        _, num_heads, _, key_length = ops.shape(term)
        shape = (num_queries, num_heads, length, key_length)
        return _fold(ops.broadcast_to(term, shape), num_shared)

    return dataclasses.replace(
        lowered,
        query=ops.reshape(lowered.query, (num_shared, -1, *heads)),
        bias=fold(lowered.bias),
        mask=fold(lowered.mask),
    )


def _fold(tensor, num_shared):
    """Return a tensor `(B K, H, T, n)` as `(B, H, K T, n)`."""
    _, num_heads, length, size = ops.shape(tensor)
    tensor = ops.reshape(tensor, (num_shared, -1, num_heads, length, size))
    return ops.reshape(ops.swapaxes(tensor, 1, 2), (num_shared, num_heads, -1, size))
