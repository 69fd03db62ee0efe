"""Quantized layers, and layers with LoRA, in a model and its configuration."""

import keras

from keras_diet._compat import flatten_layers
from keras_diet.types import Config


def can_be_quantized(layer: keras.layers.Layer, mode: str | None) -> bool:
    """Return whether Keras can quantize a layer.

    Without such a filter, `keras.Model.quantize` gives a warning for each other layer (keras issue
    21085).
    """
    if isinstance(layer, keras.layers.Embedding):
        return mode != "float8"
    return isinstance(layer, (keras.layers.Dense, keras.layers.EinsumDense))


def has_lora(model: keras.Model) -> bool:
    """Return whether LoRA is enabled in a layer."""
    return any(getattr(layer, "lora_enabled", False) for layer in flatten_layers(model))


def quantized_layers(model: keras.Model) -> dict[str, Config]:
    """Return the paths of the quantized layers, and how each of them is quantized."""
    return {
        layer.path: keras.saving.serialize_keras_object(layer.quantization_config)
        for layer in flatten_layers(model)
        if layer.quantization_mode is not None
    }


def quantize_layers(model: keras.Model, layers: dict[str, Config]) -> None:
    """Quantize layers as `quantized_layers` describes them."""
    for layer in flatten_layers(model):
        if layer.path in layers:
            layer.quantize(config=keras.saving.deserialize_keras_object(layers[layer.path]))
