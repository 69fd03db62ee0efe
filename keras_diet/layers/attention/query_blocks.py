"""Attention for a block of queries at a time: exact, with memory linear in the length.

The softmax of a query needs all keys but no other query, so scores exist for one block only. They
are computed a second time for the gradient (rematerialization).
"""

from collections.abc import Callable

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.layers.position.bias_layer import rows_of
from keras_diet.types import Tensor


def attend_in_blocks(
    attend: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    terms: ScoreTerms,
    block_size: int,
) -> Tensor:
    """Return what `attend` returns for all queries, calling it for one block at a time.

    Args:
        attend: Function of `(query, key, value, terms, start)`, which gets the queries and terms
            of a block, and the number of queries before the block.
        query: Tensor `(B, T, H, key_dim)`.
        key: Tensor `(B, S, H, key_dim)`.
        value: Tensor `(B, S, H, value_dim)`.
        terms: The terms of all queries, without features. A bias layer is asked for the rows of
            each block.
        block_size: int. Number of queries in a block. The last block has the remaining queries.
    """
    bias, mask = terms.bias, terms.attention_mask
    has_bias_rows = bias is not None and not terms.has_bias_layer and _has_rows(bias)
    has_mask_rows = mask is not None and _has_rows(mask)
    rows = [(query, 1)]
    rows += [(bias, len(bias.shape) - 2)] if has_bias_rows else []
    rows += [(mask, len(mask.shape) - 2)] if has_mask_rows else []
    shared = bias.trainable_variables if terms.has_bias_layer else []
    if bias is not None and not terms.has_bias_layer and not has_bias_rows:
        shared = [bias]
    # TensorFlow loses the gradients of variables that are read in recomputed code. It counts them
    # twice if the same tensors are also arguments.
    shared = [ops.copy(tensor) for tensor in shared]

    def attend_block(blocks, start):
        query, *blocks = blocks
        mask_rows = blocks.pop() if has_mask_rows else mask
        block_terms = terms.replace(attention_mask=mask_rows, start_index=terms.start_index + start)

        @_backend.remat
        def recomputed(query, key, value, *biases):
            block_bias = biases[0] if biases else None
            if terms.has_bias_layer:
                block_bias = _rows_of_layer(bias, biases, query, key, block_terms.start_index)
            return attend(query, key, value, block_terms.replace(bias=block_bias), start)

        return recomputed(query, key, value, *blocks, *shared)

    return _map_blocks(attend_block, rows, block_size)


def _has_rows(term):
    return len(term.shape) > 1 and term.shape[-2] != 1


def _rows_of_layer(layer, weights, query, key, start):
    with keras.StatelessScope(list(zip(layer.trainable_variables, weights, strict=True))):
        return rows_of(layer, query, key, start)


def _map_blocks(function, rows, block_size):
    """Return `function(blocks, start)` of all blocks of `rows`, joined along the second axis.

    Args:
        function: Gets a list with a block of each tensor, and the position of its first row.
        rows: List of pairs, of a tensor and the axis along which it is cut.
        block_size: int.
    """
    tensor, axis = rows[0]
    length = ops.shape(tensor)[axis]
    if not isinstance(length, int):
        return _map_overlapping_blocks(function, rows, length, block_size)
    num_blocks = length // block_size
    full, remainders = zip(
        *(_split(tensor, axis, num_blocks, block_size) for tensor, axis in rows), strict=True
    )
    outputs = []
    if num_blocks > 0:
        starts = _backend.arange(num_blocks) * block_size
        outputs.append(_join(_map_in_turn(function, full, starts)))
    if length % block_size:
        outputs.append(function(remainders, num_blocks * block_size))
    return outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, axis=1)


def _map_overlapping_blocks(function, rows, length, block_size):
    """Return the same of a length that is not known when TensorFlow traces the graph.

    All blocks have one size there, so the last begins before the one before it ends.
    """
    size = ops.minimum(block_size, ops.maximum(length, 1))
    starts = _backend.arange((length + size - 1) // size) * size
    starts = ops.minimum(starts, length - size)
    indices = starts[:, None] + _backend.arange(size)
    blocks = [ops.moveaxis(ops.take(tensor, indices, axis), axis, 0) for tensor, axis in rows]
    outputs = _join(_map_in_turn(function, blocks, starts))
    positions = _backend.arange(length)
    block = positions // size
    return ops.take(outputs, block * size + positions - ops.take(starts, block), axis=1)


def _map_in_turn(function, blocks, starts):
    return _backend.map_in_turn(lambda block: function(block[:-1], block[-1]), (*blocks, starts))


def _split(tensor, axis, num_blocks, block_size):
    """Return the full blocks `(num_blocks, ..., block_size, ...)`, and what remains."""
    shape = tuple(ops.shape(tensor))
    end = num_blocks * block_size
    head = _take(tensor, axis, 0, end)
    head = ops.reshape(head, (*shape[:axis], num_blocks, block_size, *shape[axis + 1 :]))
    return ops.moveaxis(head, axis, 0), _take(tensor, axis, end, shape[axis] - end)


def _take(tensor, axis, start, size):
    shape = tuple(ops.shape(tensor))
    starts = (0,) * axis + (start,) + (0,) * (len(shape) - axis - 1)
    return _backend.slice(tensor, starts, (*shape[:axis], size, *shape[axis + 1 :]))


def _join(blocks):
    """Return blocks `(num_blocks, B, block_size, ...)` as `(B, T, ...)`."""
    blocks = ops.moveaxis(blocks, 0, 1)
    batch_size, num_blocks, block_size, *rest = ops.shape(blocks)
    return ops.reshape(blocks, (batch_size, num_blocks * block_size, *rest))


def block_dropout(rate: float, seed_generator: keras.random.SeedGenerator) -> Callable[..., Tensor]:
    """Return dropout of the probabilities of the block that begins at `start`.

    It gives the same result each time a block is computed.
    """
    seed = seed_generator.next()
    return lambda probabilities, start: _backend.dropout(probabilities, rate, seed, start)
