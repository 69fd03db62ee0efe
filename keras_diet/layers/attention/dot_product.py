"""Attention as pure functions of queries, keys, values and prepared terms.

Two programs compute it: scores with a softmax, and the fused kernel of the backend. Both can run
for a block of queries at a time. This is exact, because the softmax of a query needs all keys but
no other query. Memory is linear in the length, because the scores of a block are computed a second
time for the gradient.
"""

import functools
from collections.abc import Callable

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.flex_attention import attend_by_flex
from keras_diet.layers.attention.key_memory import (
    multiply_shared,
    repeat_rows,
    with_folded_queries,
)
from keras_diet.layers.attention.pallas_attention import attend_by_tiles
from keras_diet.layers.attention.prepared_terms import (
    MASKED,
    PreparedTerms,
    bias_with_mask,
    has_columns,
    lower_columns,
    lower_scores,
)
from keras_diet.layers.position.position_bias import rows_of
from keras_diet.types import Tensor


def attend(
    query: Tensor, key: Tensor, value: Tensor, terms: PreparedTerms
) -> tuple[Tensor, Tensor | None]:
    """Return the output of all heads, and the probabilities where the program has them.

    Args:
        query: Projected queries `(B, T, H, key_dim)`.
        key: Projected keys `(B, S, H, key_dim)`. If the plan is `batch_first`, several rows of
            queries may share a row of keys.
        value: Projected values `(B, S, H, value_dim)`, with as many rows as the keys.
        terms: The prepared terms, with the scale, hooks and dropout of the layer.

    Returns:
        Output `(B, T, H, value_dim)`; probabilities `(B, H, T, S)`, or `None` from a kernel.
    """
    for rotate in terms.functions("rotation"):
        of_query = of_key = terms.positions
        if terms.positions is None:
            of_query = _backend.arange(ops.shape(query)[1]) + terms.start_index
            of_key = _backend.arange(ops.shape(key)[1])
        query, key = rotate(query, of_query), rotate(key, of_key)
    for change in terms.functions("heads"):
        query, key = change(query, key, terms.start_index)
    for bias in terms.functions("bias"):
        scores = bias(query, key, terms.start_index)
        if terms.bias is not None:
            scores = ops.add(scores, terms.bias)
        terms = terms.replace(bias=scores)
    if _backend.is_float16(query.dtype):
        # Products of float16 reach infinity long before their softmax means anything. The keys get
        # columns for features and padding, which need more than float16, too.
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    plan = terms.plan
    if plan.batch_first and has_columns(terms):
        key, value = (repeat_rows(x, ops.shape(query)[0]) for x in (key, value))
    query, key, terms = lower_columns(query, key, terms)
    if plan.reads_indices:
        attend_by_indices = attend_by_flex if plan.program == "flex" else attend_by_tiles
        return attend_by_indices(query, key, value, terms)
    program = attend_by_kernel if plan.program == "kernel" else attend_by_scores
    if plan.block_size is None:
        return program(query, key, value, lower_scores(query, key, terms))
    return attend_in_blocks(program, query, key, value, terms), None


def attend_by_scores(
    query: Tensor, key: Tensor, value: Tensor, terms: PreparedTerms
) -> tuple[Tensor, Tensor]:
    """Compute scores, softmax and output with plain operations."""
    if terms.plan.batch_first:
        # Decoding needs no gradients, and a memory of keys has this order.
        front, back, multiply = (0, 2), (0, 2, 1, 3), multiply_shared
    else:
        # The gradient of a bias is a sum over the batch. XLA on a CPU takes many times as long if
        # that axis is the outermost.
        front, back, multiply = (2, 0), (1, 2, 0, 3), ops.matmul

    def swap(scores):
        """Move scores `(B, H, T, S)` to the order of the products, or back."""
        return scores if terms.plan.batch_first else ops.swapaxes(scores, 0, 1)

    query = ops.multiply(query, ops.cast(terms.scale, query.dtype))
    query = ops.transpose(query, (*front, 1, 3))
    key = ops.transpose(ops.cast(key, query.dtype), (*front, 3, 1))
    scores = multiply(query, key)
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    if terms.bias is not None:
        scores = ops.add(scores, swap(terms.bias))
    for change in terms.functions("scores"):
        scores = swap(change(swap(scores)))
    mask = None if terms.attention_mask is None else swap(terms.attention_mask)
    probabilities = swap(ops.cast(masked_softmax(scores, mask), value.dtype))
    # Keras's layer drops in this order of axes, so the same numbers are dropped.
    dropped = probabilities if terms.dropout is None else terms.dropout(probabilities)
    value = ops.transpose(value, (*front, 1, 3))
    output = ops.transpose(multiply(swap(dropped), value), back)
    for change in terms.functions("output"):
        output = change(output, dropped, terms.start_index)
    return output, probabilities


def attend_by_kernel(
    query: Tensor, key: Tensor, value: Tensor, terms: PreparedTerms
) -> tuple[Tensor, None]:
    """Call the fused kernel of the backend."""
    folded = query
    if terms.plan.batch_first:
        folded, terms = with_folded_queries(query, key, terms)
    bias, mask = terms.bias, terms.attention_mask
    if mask is not None and (bias is not None or not _backend.kernel_takes_mask()):
        bias, mask = bias_with_mask(0.0 if bias is None else bias, mask, query.dtype), None
    output = _backend.fused_attention(
        folded,
        key,
        value,
        bias=bias,
        mask=mask,
        scale=terms.scale,
        is_causal=terms.is_causal,
        flash_attention=terms.plan.flash_attention,
    )
    if folded is not query:
        output = ops.reshape(output, (*ops.shape(query)[:-1], output.shape[-1]))
    return output, None


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax over the last axis, zero for masked keys, as Keras's layer has it."""
    if mask is None:
        return ops.softmax(scores, axis=-1)
    probabilities = ops.softmax(ops.where(mask, scores, MASKED), axis=-1)
    # Without this, a query that may attend to no key would attend to all.
    return ops.where(mask, probabilities, 0.0)


def attend_in_blocks(
    program: Callable[..., tuple[Tensor, Tensor | None]],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    terms: PreparedTerms,
) -> Tensor:
    """Return the output of a program for all queries, calling it for one block at a time.

    Args:
        program: Function of `(query, key, value, terms)`, which gets the queries of a block.
        query: Tensor `(B, T, H, key_dim)`.
        key: Tensor `(B, S, H, key_dim)`.
        value: Tensor `(B, S, H, value_dim)`.
        terms: The terms of all queries, without features. Their plan has the number of queries of
            a block, and the last block has the remaining ones. A bias layer is asked for the rows
            of each block.
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
    states = terms.states or ()
    rows += [(states[0], 1)] if states else []
    # TensorFlow loses the gradients of variables that are read in recomputed code. It counts them
    # twice if the same tensors are also arguments.
    shared = [ops.copy(tensor) for tensor in shared]

    def attend_block(blocks, start):
        query, *blocks = blocks
        of_states = [blocks.pop(), states[1]] if states else []
        mask_rows = blocks.pop() if has_mask_rows else mask
        block_terms = terms.replace(attention_mask=mask_rows, start_index=terms.start_index + start)
        if terms.dropout is not None:
            dropout = functools.partial(terms.dropout, start=start)
            block_terms = block_terms.replace(dropout=dropout)

        @_backend.remat
        def recomputed(query, key, value, *others):
            block_bias = others[0] if others else None
            if terms.has_bias_layer:
                of_rows, weights = (others[:2], others[2:]) if states else ((query, key), others)
                block_bias = _rows_of_layer(bias, weights, *of_rows, block_terms.start_index)
            lowered = lower_scores(query, key, block_terms.replace(bias=block_bias))
            return program(query, key, value, lowered)[0]

        return recomputed(query, key, value, *of_states, *blocks, *shared)

    return _map_blocks(attend_block, rows, terms.plan.block_size, value.dtype)


def _has_rows(term):
    return len(term.shape) > 1 and term.shape[-2] != 1


def _rows_of_layer(layer, weights, query, key, start):
    with keras.StatelessScope(list(zip(layer.trainable_variables, weights, strict=True))):
        return rows_of(layer, query, key, start)


def _map_blocks(function, rows, block_size, dtype):
    """Return `function(blocks, start)` of all blocks of `rows`, joined along the second axis.

    Args:
        function: Gets a list with a block of each tensor, and the position of its first row.
        rows: List of pairs, of a tensor and the axis along which it is cut.
        block_size: int.
        dtype: The dtype of what the function returns.
    """
    length = ops.shape(rows[0][0])[1]
    if not isinstance(length, int):
        return _map_overlapping_blocks(function, rows, length, block_size, dtype)
    num_blocks = length // block_size
    end = num_blocks * block_size
    full, remainders, outputs = [], [], []
    for tensor, axis in rows:
        shape = ops.shape(tensor)
        head, remainder = ops.split(tensor, [end], axis=axis)
        head = ops.reshape(head, (*shape[:axis], num_blocks, block_size, *shape[axis + 1 :]))
        full.append(ops.moveaxis(head, axis, 0))
        remainders.append(remainder)
    if num_blocks > 0:
        starts = _backend.arange(num_blocks) * block_size
        outputs.append(_join(_map_in_turn(function, full, starts, dtype)))
    if length % block_size:
        outputs.append(function(remainders, end))
    return outputs[0] if len(outputs) == 1 else ops.concatenate(outputs, axis=1)


def _map_overlapping_blocks(function, rows, length, block_size, dtype):
    """Return the same of a length that is not known when TensorFlow traces the graph.

    All blocks have one size there, so the last begins before the one before it ends.
    """
    size = ops.minimum(block_size, ops.maximum(length, 1))
    starts = _backend.arange((length + size - 1) // size) * size
    starts = ops.minimum(starts, length - size)
    indices = starts[:, None] + _backend.arange(size)
    blocks = [ops.moveaxis(ops.take(tensor, indices, axis), axis, 0) for tensor, axis in rows]
    outputs = _join(_map_in_turn(function, blocks, starts, dtype))
    positions = _backend.arange(length)
    block = positions // size
    return ops.take(outputs, block * size + positions - ops.take(starts, block), axis=1)


def _map_in_turn(function, blocks, starts, dtype):
    return _backend.map_in_turn(
        lambda block: function(block[:-1], block[-1]), (*blocks, starts), dtype
    )


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
