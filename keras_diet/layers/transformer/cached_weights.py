"""Weights of an encoder in its copy with cached positions."""

from typing import Any

from keras import ops


def copy_weights(source: Any, target: Any) -> None:
    """Copy all weights of an encoder, and compute the positional scores of its biases.

    Args:
        source: A built `DietEncoder`.
        target: An equal encoder with `cached_positions`.
    """
    for cached, bias in zip(target.position_biases, source.position_biases, strict=True):
        cached.assign_scores_of(bias)
    pairs = zip(_other_weights(target), _other_weights(source), strict=True)
    for new, old in pairs:
        # JAX gives up arrays in training, and this one belongs to two models.
        new.assign(ops.copy(old))


def _other_weights(encoder):
    positions = {id(weight) for bias in encoder.position_biases for weight in bias.weights}
    return [weight for weight in encoder.weights if id(weight) not in positions]
