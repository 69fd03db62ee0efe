"""The constructor arguments of layers, each of which is an attribute of the same name."""

from typing import Any

import keras

from keras_diet.types import Config


def serialized_arguments(layer: Any) -> Config:
    """Return the arguments that the class lists in `own_arguments`, for a configuration."""
    arguments = {name: getattr(layer, name) for name in layer.own_arguments}
    return {name: keras.saving.serialize_keras_object(each) for name, each in arguments.items()}
