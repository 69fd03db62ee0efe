"""What the configurations of layers hold: their arguments, and which layers inside are frozen."""

from collections.abc import Collection, Iterator
from typing import Any

import keras

from keras_diet._compat import flatten_layers, sublayers
from keras_diet.types import Config


def serialized_arguments(layer: Any) -> Config:
    """Return the arguments that the class lists in `own_arguments`, for a configuration.

    Each of them is an attribute of the same name.
    """
    arguments = {name: getattr(layer, name) for name in layer.own_arguments}
    return {name: keras.saving.serialize_keras_object(each) for name, each in arguments.items()}


def frozen_layers(layer: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of layers inside that are frozen although the layer around them is not.

    A layer that is trainable in a frozen one is listed, too. The configuration of a layer tells
    whether the layer is trainable, but not whether the layers are that it makes itself.
    """
    for part in sublayers(layer):
        path = prefix + part.name
        if part.trainable != layer.trainable:
            yield path
        yield from frozen_layers(part, f"{path}/")


def freeze_layers(layer: Any, paths: Collection[str], prefix: str = "") -> None:
    """Freeze the layers at the paths that `frozen_layers` yielded. Others are left out."""
    for part in sublayers(layer):
        path = prefix + part.name
        if path in paths:
            part.trainable = not layer.trainable
        freeze_layers(part, paths, f"{path}/")


def has_lora(model: keras.layers.Layer) -> bool:
    """Return whether LoRA is enabled in a layer. It freezes the others."""
    return any(getattr(layer, "lora_enabled", False) for layer in flatten_layers(model))
