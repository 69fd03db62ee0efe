"""Weights of a model in its copy with cached positions."""

from typing import Any

from keras import ops

from keras_diet.layers.position.cached_position_bias import CachedPositionBias
from keras_diet.layers.position.position_bias import PositionBias


def changes_for_cached_positions(attention_implementation: str) -> dict[str, Any]:
    """Return the arguments that differ in a copy with cached positions.

    Cached scores have no features, so `"features"` becomes `"auto"`.
    """
    changes: dict[str, Any] = {"cached_positions": True}
    if attention_implementation == "features":
        changes["attention_implementation"] = "auto"
    return changes


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
