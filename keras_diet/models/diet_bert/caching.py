"""Copies of DietBert models for inference, in which positional scores are computed already."""

from typing import Any

from keras_diet.layers.transformer.cached_positions import arguments_of_copy, copy_weights
from keras_diet.models.hub.rebuild import rebuild


def rebuild_with_cached_positions(model: Any) -> Any:
    """Return a copy of a backbone or a task that holds positional scores.

    Raises:
        ValueError: If the model has no position bias, or its positions are cached already.
    """
    backbone = getattr(model, "backbone", model)
    if backbone.cached_positions or not backbone.encoder.position_biases:
        raise ValueError(
            "Positions can be cached once, in a model with a position bias. Received: "
            f"{backbone.position_encoding!r}, cached_positions={backbone.cached_positions}"
        )
    changes = arguments_of_copy(backbone.attention_implementation)
    copy = rebuild(model, changes)
    cached = getattr(copy, "backbone", copy).encoder.position_biases
    copy_weights(model, copy, backbone.encoder.position_biases, cached)
    return copy
