"""Attention as pure functions of queries, keys, values and prepared terms."""

import functools

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.key_memory import (
    multiply_shared,
    repeat_rows,
    with_folded_queries,
)
from keras_diet.layers.attention.prepared_terms import (
    MASKED,
    PreparedTerms,
    bias_with_mask,
    has_columns,
    lower_columns,
    lower_scores,
)
from keras_diet.layers.attention.query_blocks import attend_in_blocks
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
        # Products of float16 reach infinity long before their softmax means anything.
        query = ops.cast(query, "float32")
    plan = terms.plan
    if plan.batch_first and has_columns(terms):
        key, value = (repeat_rows(x, ops.shape(query)[0]) for x in (key, value))
    query, key, terms = lower_columns(query, key, terms)
    program = attend_by_kernel if plan.program == "kernel" else attend_by_scores
    if plan.block_size is None:
        return program(query, key, value, lower_scores(query, key, terms))

    def attend_block(query, key, value, terms, start):
        if terms.dropout is not None:
            terms = terms.replace(dropout=functools.partial(terms.dropout, start=start))
        return program(query, key, value, lower_scores(query, key, terms))[0]

    return attend_in_blocks(attend_block, query, key, value, terms, plan.block_size), None


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
