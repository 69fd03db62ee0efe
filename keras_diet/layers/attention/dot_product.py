"""Attention as pure functions of queries, keys, values, terms and a plan."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.key_memory import (
    multiply_shared,
    with_folded_queries,
    with_repeated_keys,
)
from keras_diet.layers.attention.lowering import (
    MASKED,
    LoweredScores,
    bias_with_mask,
    has_columns,
    lower_columns,
    lower_scores,
)
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.query_blocks import attend_in_blocks, block_dropout
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.types import Tensor


@dataclasses.dataclass(frozen=True)
class AttentionOptions:
    """What programs need beside tensors, terms and the plan.

    Attributes:
        scale: float. Factor of the products of queries and keys.
        hooks: tuple of `AttentionHook`, called one after the other.
        dropout: Function of the probabilities `(B, H, T, S)` of queries that begin at `start`, or
            `None`. In blocks it gives the same result each time it is called for a block.
        flash_attention: bool or `None`. Whether flash attention is required.
    """

    scale: float
    hooks: tuple[AttentionHook, ...] = ()
    dropout: Callable[..., Tensor] | None = None
    flash_attention: bool | None = None

    def functions(self, name: str) -> list[Callable[..., Any]]:
        """Return the functions that hooks have for a step."""
        functions = [getattr(hook, name) for hook in self.hooks]
        return [function for function in functions if function is not None]


def options_of(
    attention: Any, training: bool | None, plan: AttentionPlan, hooks: tuple[AttentionHook, ...]
) -> AttentionOptions:
    """Return the options of a `BiasedMultiHeadAttention` for one call."""
    dropout: Callable[..., Tensor] | None = None
    if training and attention.dropout > 0.0:
        layer = attention.dropout_layer
        if plan.block_size is None:
            dropout = functools.partial(layer, training=True)
        else:
            dropout = block_dropout(attention.dropout, layer.seed_generator)
    return AttentionOptions(attention.score_scale, hooks, dropout, attention.flash_attention)


def attend(
    query: Tensor, key: Tensor, value: Tensor, terms: ScoreTerms, options: AttentionOptions
) -> tuple[Tensor, Tensor | None]:
    """Return the output of all heads, and the probabilities where the program has them.

    Args:
        query: Projected queries `(B, T, H, key_dim)`.
        key: Projected keys `(B, S, H, key_dim)`. If the plan is `batch_first`, several rows of
            queries may share a row of keys.
        value: Projected values `(B, S, H, value_dim)`, with as many rows as the keys.
        terms: The terms with their plan, as `lower_shared_terms` returns them.
        options: Scale, hooks and dropout.

    Returns:
        Output `(B, T, H, value_dim)`; probabilities `(B, H, T, S)`, or `None` from a kernel.
    """
    for rotate in options.functions("rotation"):
        of_query = of_key = terms.positions
        if terms.positions is None:
            of_query = _backend.arange(ops.shape(query)[1]) + terms.start_index
            of_key = _backend.arange(ops.shape(key)[1])
        query, key = rotate(query, of_query), rotate(key, of_key)
    for change in options.functions("heads"):
        query, key = change(query, key, terms.start_index)
    for bias in options.functions("bias"):
        scores = bias(query, key, terms.start_index)
        if terms.bias is not None:
            scores = ops.add(scores, terms.bias)
        terms = terms.replace(bias=scores)
    if _backend.is_float16(query.dtype):
        # Products of float16 reach infinity long before their softmax means anything.
        query = ops.cast(query, "float32")
    plan = terms.plan
    if plan.batch_first and has_columns(terms):
        query, key, value = with_repeated_keys(query, key, value)
    query, key, terms = lower_columns(query, key, options.scale, terms)
    program = PROGRAMS[plan.program]

    def attend_block(query, key, value, terms, start):
        block_options = options
        if options.dropout is not None:
            dropout = functools.partial(options.dropout, start=start)
            block_options = dataclasses.replace(options, dropout=dropout)
        return program(lower_scores(query, key, terms), value, terms, block_options)[0]

    if plan.block_size is not None:
        return attend_in_blocks(attend_block, query, key, value, terms, plan.block_size), None
    return program(lower_scores(query, key, terms), value, terms, options)


@dataclasses.dataclass(frozen=True)
class AxesOrder:
    """The order of the axes of the batch and of the heads in products.

    Attributes:
        front: The axes of queries and keys that come first.
        back: The axes of the output `(B, T, H, value_dim)`, in the order of the products.
        swap: Function that moves scores `(B, H, T, S)` to this order, and back.
        multiply: The matrix product.
    """

    front: tuple[int, int]
    back: tuple[int, int, int, int]
    swap: Callable[[Tensor], Tensor]
    multiply: Callable[[Tensor, Tensor], Tensor]


# The gradient of a bias is a sum over the batch. XLA on a CPU takes many times as long if that axis
# is the outermost.
HEADS_FIRST = AxesOrder((2, 0), (1, 2, 0, 3), lambda x: ops.swapaxes(x, 0, 1), ops.matmul)
# Decoding needs no gradients, and a memory of keys has this order.
BATCH_FIRST = AxesOrder((0, 2), (0, 2, 1, 3), lambda x: x, multiply_shared)


def attend_by_scores(
    lowered: LoweredScores, value: Tensor, terms: ScoreTerms, options: AttentionOptions
) -> tuple[Tensor, Tensor]:
    """Compute scores, softmax and output with plain operations."""
    order = BATCH_FIRST if lowered.batch_first else HEADS_FIRST
    query = ops.multiply(lowered.query, ops.cast(options.scale, lowered.query.dtype))
    query = ops.transpose(query, (*order.front, 1, 3))
    key = ops.transpose(ops.cast(lowered.key, query.dtype), (*order.front, 3, 1))
    scores = order.multiply(query, key)
    scores = ops.cast(scores, keras.backend.result_type(scores.dtype, "float32"))
    if lowered.bias is not None:
        scores = ops.add(scores, order.swap(lowered.bias))
    for change in options.functions("scores"):
        scores = order.swap(change(order.swap(scores)))
    mask = None if lowered.mask is None else order.swap(lowered.mask)
    probabilities = order.swap(ops.cast(masked_softmax(scores, mask), value.dtype))
    # Keras's layer drops in this order of axes, so the same numbers are dropped.
    dropped = probabilities if options.dropout is None else options.dropout(probabilities)
    value = ops.transpose(value, (*order.front, 1, 3))
    output = ops.transpose(order.multiply(order.swap(dropped), value), order.back)
    for change in options.functions("output"):
        output = change(output, dropped, terms.start_index)
    return output, probabilities


def attend_by_kernel(
    lowered: LoweredScores, value: Tensor, terms: ScoreTerms, options: AttentionOptions
) -> tuple[Tensor, None]:
    """Call the fused kernel of the backend."""
    folded = with_folded_queries(lowered) if lowered.batch_first else lowered
    bias, mask = folded.bias, folded.mask
    if mask is not None and (bias is not None or not _backend.kernel_takes_mask()):
        bias, mask = bias_with_mask(0.0 if bias is None else bias, mask, folded.query.dtype), None
    output = _backend.fused_attention(
        folded.query,
        folded.key,
        value,
        bias=bias,
        mask=mask,
        scale=options.scale,
        is_causal=folded.is_causal,
        flash_attention=options.flash_attention,
    )
    if folded is not lowered:
        output = ops.reshape(output, (*ops.shape(lowered.query)[:-1], output.shape[-1]))
    return output, None


PROGRAMS = {"scores": attend_by_scores, "kernel": attend_by_kernel}


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax over the last axis, zero for masked keys, as Keras's layer has it."""
    if mask is None:
        return ops.softmax(scores, axis=-1)
    probabilities = ops.softmax(ops.where(mask, scores, MASKED), axis=-1)
    # Without this, a query that may attend to no key would attend to all.
    return ops.where(mask, probabilities, 0.0)
