"""The private Keras names that this library cannot do without, gathered in one place.

Keras attaches padding masks to tensors and offers no public way to read or clear them;
`keras.layers.MultiHeadAttention`, which ours must match, does both. Which functions a model has
compiled is private too.
"""

import gc

import keras
from keras.src.backend import get_keras_mask, set_keras_mask

__all__ = [
    "flatten_layers",
    "forget_compiled",
    "get_keras_mask",
    "replace_dtype_policy",
    "set_keras_mask",
]

INFERENCE = ("test_function", "predict_function")


def replace_dtype_policy(layer, policy):
    """Set the policy of a layer; the public setter would change the map that the layer has."""
    layer._dtype_policy = policy


def flatten_layers(layer):
    """Return `layer` and every layer below it; Keras lists them publicly for models only."""
    # On PyTorch a model whose construction failed has no list of layers.
    return list(layer._flatten_layers()) if hasattr(layer, "_layers") else []


def forget_compiled(layer, functions=("train_function", *INFERENCE)):
    """Make Keras compile these functions anew in every model alive that holds `layer`."""
    # Models that `gc.freeze` has put aside are not among the objects, but may be called.
    gc.unfreeze()
    # Any of them may have compiled the former state in, whichever was passed to us.
    for candidate in gc.get_objects():
        if issubclass(type(candidate), keras.Model) and layer in flatten_layers(candidate):
            for function in functions:
                setattr(candidate, function, None)
