"""Refuses attention that cannot be computed as the caller asks."""

from typing import Any

from keras_diet import validation
from keras_diet.layers.attention.plan import AttentionCase, AttentionPlan, make_plan


def check_is_plan(attention_plan: Any) -> None:
    """Raise a `ValueError` unless the argument is an `AttentionPlan` or `None`."""
    if not isinstance(attention_plan, AttentionPlan | None):
        raise ValueError(
            "`attention_plan` must be an `AttentionPlan` or `None`. Received: attention_plan="
            f"{attention_plan!r}. Call the method `plan` of the attention layer."
        )


def checked_plan(case: AttentionCase) -> AttentionPlan:
    """Return the plan for a case.

    Raises:
        ValueError: If attention cannot be computed as the caller asks.
    """
    check_case(case)
    plan = make_plan(case)
    if case.flash_attention and case.is_on_jax_tpu and plan.program == "scores":
        raise ValueError(
            "On TPUs flash attention takes one sequence axis, features, and a bias or mask that is "
            "the same for all queries, but no float16, dropout, blocks or "
            "`return_attention_scores`. Received: flash_attention=True with "
            f"{_unfit_for_tpu(case, plan)}. Leave `flash_attention` at `None`."
        )
    if case.has_hook_kernel:
        _check_hook_kernel(case, plan)
    return plan


def check_case(case: AttentionCase) -> None:
    """Raise a `ValueError` if attention cannot be computed as the caller asks."""
    received = f"Received: {case.names}, {_describe_bias(case)}."
    is_allowed = case.implementation in case.allowed
    if case.implementation == "features" and not (is_allowed and case.bias_can_be_features):
        raise ValueError(
            "attention_implementation='features' needs a bias layer with `features` or none, and "
            "attention layers that take features. Pass 'auto', 'full' or 'blockwise'. "
            f"{received}"
        )
    if case.implementation == "blockwise" and not (is_allowed and case.bias_can_be_blocks):
        raise ValueError(
            "attention_implementation='blockwise' needs a bias layer with `features` or `rows`, "
            f"and attention layers that attend in blocks. Pass 'auto' or 'full'. {received}"
        )
    if case.block_size is not None:
        _check_blocks(case, received)


def _check_blocks(case, received):
    validation.positive_int("block_size", case.block_size)
    if not case.allows_blocks:
        raise ValueError(
            "This layer computes attention for all queries at once. Leave `block_size` at `None`. "
            f"Received: block_size={case.block_size}, {case.names}"
        )
    if case.returns_scores or not case.has_one_axis:
        raise ValueError(
            "`block_size` needs one sequence axis and returns no scores. Leave `block_size` at "
            f"`None`. Received: block_size={case.block_size}, "
            f"{'one sequence axis' if case.has_one_axis else 'several sequence axes'}, "
            f"return_attention_scores={case.returns_scores}"
        )
    if not case.bias_can_be_blocks:
        raise ValueError(
            "With `block_size`, a bias layer needs a method `rows(query, key, start_index)` and no "
            f"state such as dropout. {received} Add the method, or leave `block_size` at `None`."
        )


def _check_hook_kernel(case, plan):
    refused = {
        "a bias": case.bias != "none" and plan.bias != "features",
        "a mask": case.mask != "none",
        "dropout": case.drops,
        "return_attention_scores=True": case.returns_scores,
        "several sequence axes": not case.has_one_axis,
    }
    if received := _given(refused):
        raise ValueError(
            "The kernel of a hook takes one sequence axis, features and padding. Received: "
            f"{received}. Leave this out, or use a hook without a kernel."
        )


def _unfit_for_tpu(case, plan):
    return _given(
        {
            "dtype='float16'": case.dtype == "float16",
            f"dropout={case.dropout}": case.drops,
            "return_attention_scores=True": case.returns_scores,
            "a hook that needs scores": case.reads_scores,
            "a mask for each query": case.mask == "pairs",
            "a bias for each query": case.bias in ("tensor", "layer") and plan.bias == "tensor",
            f"block_size={case.block_size}": case.block_size is not None,
            "attention_implementation='blockwise'": case.implementation == "blockwise",
        }
    )


def _given(terms):
    return ", ".join(name for name, is_given in terms.items() if is_given)


def _describe_bias(case):
    if case.bias != "layer":
        return "no bias layer"
    has = {"features": case.bias_has_features, "rows": case.bias_has_rows}
    names = [name for name, present in has.items() if present]
    return f"a bias layer with {' and '.join(names)}" if names else "a bias layer without either"
