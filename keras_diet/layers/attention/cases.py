"""What the plan has to know of an attention layer and of its terms."""

from typing import Any

import keras

from keras_diet import _backend
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.plan import AttentionCase
from keras_diet.layers.attention.plan_checks import check_case
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.layers.position.bias_layer import has_features, has_rows
from keras_diet.types import Shape


def case_of(
    attention: Any,
    terms: ScoreTerms,
    query_shape: Shape,
    key_shape: Shape,
    hooks: tuple[AttentionHook, ...],
    **arguments: Any,
) -> AttentionCase:
    """Return the `AttentionCase` of a `BiasedMultiHeadAttention` that attends with these terms.

    Args:
        attention: The layer.
        terms: The terms.
        query_shape: Shape of the query.
        key_shape: Shape of the key.
        hooks: All hooks of the call.
        **arguments: Other attributes of the case.
    """
    num_axes = len(attention.attention_axes or query_shape[1:-1])
    return AttentionCase(
        backend=keras.backend.backend(),
        platform=_backend.platform(),
        dtype=attention.compute_dtype,
        query_length=query_shape[1],
        key_length=key_shape[1],
        key_dim=attention.key_dim,
        value_dim=attention.value_dim,
        num_axes=num_axes,
        has_free_axes=len(query_shape) - 2 > num_axes,
        num_features=terms.num_features,
        has_padding=terms.padding_mask is not None,
        mask=_kind_of_mask(terms),
        dropout=attention.dropout,
        reads_scores=any(hook.reads_scores for hook in hooks),
        has_hook_kernel=any(hook.kernel is not None for hook in hooks),
        allowed=attention.implementations,
        allows_blocks=attention.attends_in_blocks,
        flash_attention=attention.flash_attention,
        names=_names(attention, terms.bias),
        **facts_of_bias(terms.bias, hooks),
        **arguments,
    )


def check_implementation(implementation: str, attention: Any, bias: Any) -> None:
    """Raise a `ValueError` if a stack of these layers does not have an implementation.

    Args:
        implementation: The argument `attention_implementation`.
        attention: The attention layer of a block.
        bias: The bias layer of a block, or `None`.
    """
    case = AttentionCase(
        backend=keras.backend.backend(),
        platform=_backend.platform(),
        dtype="float32",
        query_length=None,
        key_length=None,
        key_dim=1,
        value_dim=1,
        implementation=implementation,
        allowed=getattr(attention, "implementations", ("auto", "full")),
        names=_names(attention, bias),
        **facts_of_bias(bias),
    )
    check_case(case)


def facts_of_bias(bias: Any, hooks: tuple[AttentionHook, ...] = ()) -> dict[str, Any]:
    """Return the attributes of the case that are about the bias."""
    if any(hook.bias is not None for hook in hooks):
        # The sum of both biases is a tensor.
        return {"bias": "tensor"}
    if bias is None:
        return {"bias": "none"}
    if not isinstance(bias, keras.layers.Layer):
        is_row = len(bias.shape) < 2 or bias.shape[-2] == 1
        return {"bias": "row" if is_row else "tensor"}
    is_low_rank = has_features(bias)
    return {
        "bias": "layer",
        "bias_has_features": is_low_rank,
        "bias_has_rows": has_rows(bias),
        "bias_rank": getattr(bias, "rank", 0) if is_low_rank else 0,
        "bias_is_learned": bool(bias.trainable_variables) and _backend.records_gradients(),
    }


def _names(attention, bias):
    name = type(attention).__name__
    is_layer = isinstance(bias, keras.layers.Layer)
    return f"{name} with the bias layer {type(bias).__name__}" if is_layer else name


def _kind_of_mask(terms):
    mask = terms.attention_mask
    if mask is None and terms.sliding_window is None:
        if not terms.is_causal:
            return "none"
        return "causal" if terms.starts_at_zero else "pairs"
    is_row = mask is not None and (len(mask.shape) < 2 or mask.shape[-2] == 1)
    is_only_mask = terms.sliding_window is None and not terms.is_causal
    return "row" if is_row and is_only_mask else "pairs"
