"""The score terms of the layers of a stack."""

from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.input_checks import check_score_bias
from keras_diet.layers.attention.lowering import lower_shared_terms
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import FeaturePair, ScoreTerms
from keras_diet.layers.transformer.attention_arguments import (
    CUSTOM_ATTENTION_PLAN,
    takes_score_terms,
)
from keras_diet.types import Tensor


def terms_of_layers(
    inputs: Tensor,
    terms: ScoreTerms,
    attentions: list[keras.layers.Layer],
    position_biases: list[keras.layers.Layer],
    segment_biases: list[keras.layers.Layer] | None = None,
    segment_ids: Tensor | None = None,
    key: Tensor | None = None,
    attention_hook: AttentionHook | None = None,
    **arguments: Any,
) -> Iterator[tuple[ScoreTerms, AttentionPlan]]:
    """Yield the terms and the plan of each layer.

    All layers have the same plan. Terms are made one by one, so that only the terms of one layer
    are in memory at inference. A bias that all layers share is computed once.

    Args:
        inputs: Hidden states `(B, T, hidden_dim)`.
        terms: Masks and the position of the first query, the same for all layers.
        attentions: The attention layers.
        position_biases: No bias layer, one for all layers, or one for each.
        segment_biases: No bias layer or `None`, or one for each layer.
        segment_ids: Integer tensor `(B, T)`, or `None` if all tokens are in segment 0.
        key: Tensor `(B, S, ...)` with the number of keys, or `None` for the inputs.
        attention_hook: A hook for all layers, or `None`.
        **arguments: Arguments of `BiasedMultiHeadAttention.plan`.
    """
    if segment_biases and segment_ids is None:
        segment_ids = ops.zeros(ops.shape(inputs)[:2], dtype="int32")
    key_shape = inputs.shape if key is None else key.shape
    arguments["attention_hook"] = attention_hook
    up_to_softmax = not any(_reads_scores(attention, attention_hook) for attention in attentions)
    is_shared = len(position_biases) == 1
    plan, lowered = None, None
    for i, attention in enumerate(attentions):
        bias = position_biases[0 if is_shared else i] if position_biases else None
        layer_terms = terms.replace(bias=bias)
        segments: tuple[FeaturePair, ...] = ()
        if segment_biases:
            segments = (segment_biases[i].features(segment_ids, up_to_softmax=up_to_softmax),)
        if plan is None:
            all_terms = layer_terms.replace(features=segments)
            plan = _plan(attention, all_terms, inputs.shape, key_shape, **arguments)
        if lowered is None or not is_shared:
            lowered = lower_shared_terms(layer_terms, plan, inputs, key, inputs.dtype)
            _check_scores(lowered.bias, attention, inputs.shape, key_shape)
        yield lowered.replace(features=(*segments, *lowered.features)), plan


def _reads_scores(attention, attention_hook):
    """Whether anybody but softmax sees the scores, so that they must be complete."""
    if not takes_score_terms(attention):
        return True
    hooks = (attention.attention_hook(), attention_hook)
    return any(hook is not None and hook.scores is not None for hook in hooks)


def _plan(attention, terms, query_shape, key_shape, **arguments):
    if not takes_score_terms(attention):
        return CUSTOM_ATTENTION_PLAN
    return attention.plan(terms, query_shape, key_shape, **arguments)


def _check_scores(bias, attention, query_shape, key_shape):
    if bias is None or isinstance(bias, keras.layers.Layer):
        return
    num_heads = getattr(attention, "num_heads", None)
    shape = (query_shape[0], num_heads, query_shape[1], key_shape[1])
    check_score_bias("position_encoding", bias, shape)
