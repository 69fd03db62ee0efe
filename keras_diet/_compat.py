"""The private names of Keras and KerasHub that this library uses, all in this file.

`PRIVATE_NAMES` lists each name with the reason for it. A test looks every name up, so that it can
say which one a new version of Keras has dropped.
"""

import contextlib

import keras
from keras.src.backend import AutocastScope, get_keras_mask, set_keras_mask

__all__ = [
    "PRIVATE_NAMES",
    "OpenMultiHeadAttention",
    "autocast_disabled",
    "flatten_layers",
    "get_keras_mask",
    "global_seed",
    "keras_masks_removed",
    "register_presets",
    "set_keras_mask",
    "sublayers",
]

# Keys are "Class.attribute", or names in `keras.src.backend`.
PRIVATE_NAMES = {
    "get_keras_mask": "Keras attaches padding masks to tensors. No public name reads them.",
    "set_keras_mask": "Attention consumes these masks. No public name clears them.",
    "AutocastScope": "Inside of a call, no public name reads a variable in its own dtype.",
    "Layer._flatten_layers": "Keras lists all nested layers publicly for models only.",
    "Layer._layers": "Without it a model on PyTorch is not constructed yet and has no layers.",
    "MultiHeadAttention._compute_attention": "Keras documents it as the method to override.",
    "MultiHeadAttention._dropout_layer": "Our dropout draws the same numbers as the stock layer.",
    "register_presets": "No public function registers the name of a preset.",
    "Preprocessor._add_missing_kwargs": "No public method sets the lengths of a new preprocessor.",
}


def register_presets(presets, backbone_class):
    """Give presets of a class of backbones names that KerasHub knows."""
    from keras_hub.src.utils import preset_utils

    preset_utils.register_presets(presets, backbone_class)


def global_seed():
    """Return the variable from which Keras draws numbers without a seed generator.

    No public name is this variable, but a public scope sees that a draw updates it.
    """

    class Recorder(keras.StatelessScope):
        def add_update(self, update):
            self.variable = update[0]

    with Recorder() as scope:
        keras.random.uniform(())
    return scope.variable


def flatten_layers(layer):
    """Return `layer` and every layer below it."""
    return list(layer._flatten_layers()) if hasattr(layer, "_layers") else []


def sublayers(layer):
    """Return the layers that are attributes of `layer`, not those inside of them."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def autocast_disabled():
    """Return a scope in which variables have their own dtype, also inside of a call of a layer."""
    return AutocastScope(None)


@contextlib.contextmanager
def keras_masks_removed(*tensors):
    """Yield the Keras masks of tensors, which have none in the meantime. A tensor may be `None`."""
    masks = [None if tensor is None else get_keras_mask(tensor) for tensor in tensors]
    marked = [pair for pair in zip(tensors, masks, strict=True) if pair[1] is not None]
    for tensor, _ in marked:
        set_keras_mask(tensor, None)
    try:
        yield masks
    finally:
        for tensor, mask in marked:
            set_keras_mask(tensor, mask)


class OpenMultiHeadAttention(keras.layers.MultiHeadAttention):
    """`keras.layers.MultiHeadAttention` with names for the private parts that we need."""

    def __init__(self, *args, flash_attention=None, **kwargs):
        super().__init__(*args, flash_attention=flash_attention, **kwargs)
        # Keras's layer has no public attributes of these arguments.
        self.flash_attention = flash_attention or keras.config.is_flash_attention_enabled()
        config = keras.layers.MultiHeadAttention.get_config(self)
        self.sliding_window, self.use_gate = config["sliding_window"], config["use_gate"]

    @property
    def dropout_layer(self):
        """Dropout of the attention probabilities."""
        return self._dropout_layer

    def gate(self, query):
        """Return the gate of the output of the heads, or `None` without `use_gate`.

        Keras has no public property for its projection. Weights in files have the name "gate".
        """
        if not self.use_gate:
            return None
        return next(layer for layer in sublayers(self) if layer.name == "gate")(query)

    @property
    def overrides_compute_attention(self):
        """Whether a subclass brings its own `_compute_attention`, as Keras documents it."""
        keras_class = keras.layers.MultiHeadAttention
        return type(self)._compute_attention is not keras_class._compute_attention
