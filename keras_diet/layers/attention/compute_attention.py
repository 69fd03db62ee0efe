"""Serves subclasses that override `_compute_attention`, as Keras documents it."""

from typing import Any

from keras import ops

from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.lowering import with_score_axes
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import ScoreTerms, all_of, mask_of_positions
from keras_diet.types import Tensor


def call_override(
    attention: Any,
    heads: tuple[Tensor, Tensor, Tensor],
    terms: ScoreTerms,
    plan: AttentionPlan,
    hooks: tuple[AttentionHook, ...],
    training: bool | None,
    return_attention_scores: bool,
) -> tuple[Tensor, Tensor | None]:
    """Call the `_compute_attention` of a subclass, which takes masks only."""
    received = {
        "attention_bias": terms.bias is not None,
        "attention_features": bool(terms.features),
        "start_index": not terms.starts_at_zero,
        "block_size": plan.block_size is not None,
        "attention_hook": bool(hooks),
    }
    names = [name for name, is_given in received.items() if is_given]
    if names:
        raise ValueError(
            "`_compute_attention` of a subclass takes queries, keys, values and a mask. Received: "
            f"{', '.join(names)} for {type(attention).__name__}. Override `attention_hook` instead."
        )
    query, key, _ = heads
    masks = [terms.attention_mask, mask_of_positions(terms, query.shape[1], key.shape[1])]
    if terms.padding_mask is not None:
        masks.append(ops.expand_dims(terms.padding_mask, 1))
    mask = all_of([with_score_axes(mask, 3) for mask in masks if mask is not None])
    return attention.compute_attention(*heads, mask, training, return_attention_scores)
