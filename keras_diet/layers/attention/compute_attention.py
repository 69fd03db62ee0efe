"""Attention of a layer, whose subclass may override `_compute_attention`, as Keras documents it."""

from typing import Any

from keras import ops

from keras_diet.layers.attention.attention_hook import AttentionHook, checked_hooks
from keras_diet.layers.attention.dot_product import attend, options_of
from keras_diet.layers.attention.lowering import with_score_axes
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import ScoreTerms, all_of, mask_of_positions
from keras_diet.layers.attention.shared_rows import with_repeated_keys
from keras_diet.types import Tensor


def attend_as_layer(
    attention: Any,
    heads: tuple[Tensor, Tensor, Tensor],
    terms: ScoreTerms,
    plan: AttentionPlan,
    hooks: tuple[AttentionHook, ...],
    training: bool | None,
    return_attention_scores: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the output of all heads, and the probabilities where the program has them.

    Args:
        attention: The `BiasedMultiHeadAttention`.
        heads: Projected queries, keys and values.
        terms: The terms, as `lower_shared_terms` returns them.
        plan: The plan.
        hooks: All hooks of the call.
        training: bool or `None`.
        return_attention_scores: bool.
    """
    if not attention.overrides_compute_attention:
        return attend(*heads, terms, plan, options_of(attention, training, plan, hooks))
    check_override(attention, terms, plan, hooks)
    if plan.batch_first:
        heads = with_repeated_keys(*heads)
    mask = mask_of_override(heads, terms)
    return attention.compute_attention(*heads, mask, training, return_attention_scores)


def attend_as_stock_layer(
    attention: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    training: bool | None,
    return_attention_scores: bool,
    use_causal_mask: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as the method of Keras's layer that subclasses may call."""
    terms = ScoreTerms(attention_mask=attention_mask, is_causal=bool(use_causal_mask))
    shapes = (query.shape[:-1], key.shape[:-1])
    plan = attention.plan(terms, *shapes, training, return_attention_scores)
    query, key, value = map(ops.convert_to_tensor, (query, key, value))
    hooks = checked_hooks(attention.attention_hook())
    options = options_of(attention, training, plan, hooks)
    return attend(query, key, value, terms, plan, options)


def check_override(
    attention: Any, terms: ScoreTerms, plan: AttentionPlan, hooks: tuple[AttentionHook, ...]
) -> None:
    """Raise a `ValueError` for terms that the method of a subclass would ignore."""
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


def mask_of_override(heads: tuple[Tensor, Tensor, Tensor], terms: ScoreTerms) -> Tensor | None:
    """Return all masks as the one mask that the method of a subclass takes."""
    query, key, _ = heads
    masks = [terms.attention_mask, mask_of_positions(terms, query.shape[1], key.shape[1])]
    if terms.padding_mask is not None:
        masks.append(ops.expand_dims(terms.padding_mask, 1))
    return all_of([with_score_axes(mask, 3) for mask in masks if mask is not None])
