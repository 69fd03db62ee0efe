"""Attention for a block of queries at a time: exact, with memory linear in the length.

The softmax of a query needs all keys but no other query, so scores exist for one block only. For
the gradient they are computed again (rematerialization).
"""

import inspect

import keras
from keras import ops

from keras_diet import _backend


def attend_in_blocks(attend, query, key, value, bias, mask, is_causal, block_size):
    """Return what `attend` returns for all queries, of which it gets a block at a time.

    Args:
        attend: Called as `attend(query, key, value, bias, mask, start)` with the rows of a block
            and the position of its first query; returns `(B, block_size, H, value_dim)`.
        query: Tensor `(B, T, H, key_dim)`.
        key: Tensor `(B, S, H, key_dim)`.
        value: Tensor `(B, S, H, value_dim)`.
        bias: Tensor `(B or 1, H or 1, T or 1, S or 1)`, a layer that `is_block_bias`, or `None`.
        mask: Boolean tensor `(B or 1, 1, T or 1, S)`, or `None`.
        is_causal: bool. Whether a query attends to no later key.
        block_size: int. Number of queries in a block; what remains at the end is a smaller one.
    """
    is_layer = isinstance(bias, keras.layers.Layer)
    has_bias_rows = bias is not None and not is_layer and bias.shape[2] != 1
    has_mask_rows = mask is not None and mask.shape[2] != 1
    rows = [(query, 1)]
    rows += [(bias, 2)] if has_bias_rows else []
    rows += [(mask, 2)] if has_mask_rows else []
    shared = []
    if is_layer:
        # TensorFlow loses the gradients of variables that are read in recomputed code, and counts
        # those of variables that are handed over twice.
        shared = [ops.copy(weight) for weight in bias.trainable_variables]
    elif bias is not None and not has_bias_rows:
        shared = [bias]

    def attend_block(blocks, start):
        query, *blocks = blocks
        rows_of_mask = blocks.pop() if has_mask_rows else mask

        @keras.remat
        def recomputed(query, key, value, *terms):
            block_mask = rows_of_mask
            if is_causal:
                block_mask = _causal(block_mask, start, ops.shape(query)[1], ops.shape(key)[1])
            block_bias = terms[0] if terms else None
            if is_layer:
                block_bias = _scores_of_layer(bias, terms, query, key, start)
            return attend(query, key, value, block_bias, block_mask, start)

        return recomputed(query, key, value, *blocks, *shared)

    return _map_blocks(attend_block, rows, block_size)


def is_block_bias(layer):
    """Whether a layer returns the scores of a block: `layer(query, key, start_index=...)`.

    Blocks are computed again for the gradient, so the layer must have no state, as of dropout.
    """
    parameters = inspect.signature(layer.call).parameters
    has_state = len(layer.variables) > len(layer.weights)
    return "key" in parameters and "start_index" in parameters and not has_state


def _scores_of_layer(layer, weights, query, key, start):
    others = [ops.convert_to_tensor(weight) for weight in layer.non_trainable_variables]
    scores, _ = layer.stateless_call(list(weights), others, query, key, start_index=start)
    return scores


def _causal(mask, start, query_length, key_length):
    query, key = _backend.arange(query_length) + start, _backend.arange(key_length)
    causal = ops.greater_equal(query[:, None], key[None, :])[None, None]
    return causal if mask is None else ops.logical_and(mask, causal)


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
    return ops.slice(tensor, starts, (*shape[:axis], size, *shape[axis + 1 :]))


def _join(blocks):
    """Return blocks `(num_blocks, B, block_size, ...)` as `(B, T, ...)`."""
    blocks = ops.moveaxis(blocks, 0, 1)
    batch_size, num_blocks, block_size, *rest = ops.shape(blocks)
    return ops.reshape(blocks, (batch_size, num_blocks * block_size, *rest))
