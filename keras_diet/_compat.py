"""The private names of Keras and KerasHub that this library uses, all in this file.

A comment says why no public name does the same.
"""

import contextlib

import keras

# Keras attaches padding masks to tensors. No public name reads or clears them. Inside of a call, no
# public name reads a variable in its own dtype.
from keras.src.backend import AutocastScope, get_keras_mask, set_keras_mask


def register_presets(presets, backbone_class):
    """Give presets of a class of backbones names that KerasHub knows."""
    # No public function registers the name of a preset.
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
    # Keras lists nested layers publicly for models only. Without `_layers` a model on PyTorch is
    # not constructed yet and has no layers.
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
        """Dropout of the attention probabilities, which draws the same numbers as Keras's layer."""
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
