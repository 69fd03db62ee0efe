"""Weights of a model in its copy with cached positions."""

from typing import Any

from keras import ops

from keras_diet._compat import flatten_layers
from keras_diet.layers.position.cached_position_bias import (
    CachedPositionBias,
    check_can_be_cached,
)
from keras_diet.layers.position.position_bias import PositionBias


def changes_for_cached_positions(attention_implementation: str) -> dict[str, Any]:
    """Return the arguments that differ in a copy with cached positions.

    Cached scores have no features, so `"features"` becomes `"auto"`.
    """
    changes: dict[str, Any] = {"cached_positions": True}
    if attention_implementation == "features":
        changes["attention_implementation"] = "auto"
    return changes


def copy_with_cached_positions(stack: Any) -> Any:
    """Return a copy of a `DietStack` for inference. See `cache_positions`."""
    if not stack.built or stack.cached_positions or not stack.all_position_biases():
        raise ValueError(
            "Positions can be cached once, in a built stack with a position bias. Received: "
            f"built={stack.built}, cached_positions={stack.cached_positions}, "
            f"position_encoding={stack.position_encoding!r}. Build the stack, and do not cache "
            "the positions of a copy."
        )
    biases = stack.all_position_biases()
    check_biases(biases)
    changes = changes_for_cached_positions(stack.attention_implementation)
    copy = type(stack).from_config({**stack.get_config(), **changes})
    copy.build_from_config(stack.get_build_config())
    copy_weights(stack, copy, biases, copy.all_position_biases())
    return copy


def check_biases(biases: list[Any]) -> None:
    """Raise a `ValueError` if the scores of a bias layer cannot be cached."""
    for bias in biases:
        check_can_be_cached(bias)


def copy_weights(
    source: Any,
    target: Any,
    source_biases: list[PositionBias],
    target_biases: list[CachedPositionBias],
) -> None:
    """Copy the weights of a layer or model, and compute its positional scores.

    Args:
        source: A built layer or model.
        target: An equal one with cached positions.
        source_biases: The position biases of `source`.
        target_biases: The cached biases of `target`.
    """
    if any(getattr(layer, "lora_enabled", False) for layer in flatten_layers(source)):
        raise ValueError(
            "Positions cannot be cached in a model with LoRA. Call `cache_positions` before "
            f"`enable_lora`. Received: {source}"
        )
    for cached, bias in zip(target_biases, source_biases, strict=True):
        cached.assign_scores_of(bias)
    others = zip(
        _weights_without(target_biases, target),
        _weights_without(source_biases, source),
        strict=True,
    )
    for new, old in others:
        # JAX gives up arrays in training, and this one belongs to two models.
        new.assign(ops.copy(old))


def _weights_without(biases, model):
    positions = {id(weight) for bias in biases for weight in bias.weights}
    return [weight for weight in model.weights if id(weight) not in positions]
