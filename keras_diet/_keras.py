"""The private Keras names that this library cannot do without, gathered in one place.

Keras attaches padding masks to tensors and offers no public way to read or clear them;
`keras.layers.MultiHeadAttention`, which ours must match, does both. What `keras.Model.quantize`
makes of its `filters` is private too.
"""

from keras.src.backend import get_keras_mask, set_keras_mask
from keras.src.quantizers.utils import should_quantize_layer

__all__ = [
    "flatten_layers",
    "get_keras_mask",
    "replace_dtype_policy",
    "set_keras_mask",
    "should_quantize_layer",
]


def replace_dtype_policy(layer, policy):
    """Set the policy of a layer; the public setter would change the map that the layer has."""
    layer._dtype_policy = policy


def flatten_layers(layer):
    """Return `layer` and every layer below it; Keras lists them publicly for models only."""
    # On PyTorch a model whose construction failed has no list of layers.
    return list(layer._flatten_layers()) if hasattr(layer, "_layers") else []
