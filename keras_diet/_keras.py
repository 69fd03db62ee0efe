"""The private Keras names that this library cannot do without, gathered in one place.

Keras attaches padding masks to tensors and offers no public way to read or clear them;
`keras.layers.MultiHeadAttention`, which ours must match, does both.
"""

from keras.src.backend import get_keras_mask, set_keras_mask

__all__ = ["flatten_layers", "get_keras_mask", "set_keras_mask"]


def flatten_layers(layer):
    """Return `layer` and every layer below it; Keras lists them publicly for models only."""
    # On PyTorch a model whose construction failed has no list of layers.
    return list(layer._flatten_layers()) if hasattr(layer, "_layers") else []
