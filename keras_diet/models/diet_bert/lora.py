"""LoRA: which layers of a backbone can have adapters, and which adapters a file holds."""

import h5py
import keras

from keras_diet import validation
from keras_diet._keras import flatten_layers
from keras_diet.models.diet_bert.damaged_files import complete_file


def layers_with_weights(backbone):
    """Return the layers below `backbone` that have weights; KerasHub's files count these."""
    return [layer for layer in flatten_layers(backbone) if layer is not backbone and layer.weights]


def check_enable_lora(backbone, rank, target_layer_names):
    """Raise a `ValueError` where KerasHub would leave a model with some of the adapters."""
    validation.positive_int("rank", rank)
    layers = layers_with_weights(backbone)
    # Embeddings have `enable_lora` too, but KerasHub's files are for kernels.
    possible = {layer.name for layer in layers if _has_kernel(layer)}
    if target_layer_names is not None and not target_layer_names:
        raise ValueError(
            "`target_layer_names` must name a layer, or be `None` for queries and values. "
            f"Received: target_layer_names={target_layer_names!r}"
        )
    for name in target_layer_names or []:
        validation.choice("target_layer_names", name, sorted(possible))
    if enabled := enabled_layers(backbone):
        names = sorted({layers[index].name for index in enabled})
        raise ValueError(
            "LoRA can be enabled once: load the backbone anew for other adapters. "
            f"Received: a backbone with adapters in {names}"
        )


def enabled_layers(backbone):
    """Return the places of the layers with adapters among all that have weights."""
    layers = enumerate(layers_with_weights(backbone))
    return [index for index, layer in layers if getattr(layer, "lora_enabled", False)]


def saved_adapters(filepath):
    """Return the rank in a `.lora.h5` and the places of the layers, as `enabled_layers`."""
    with complete_file(filepath), h5py.File(filepath, "r") as file:
        if "lora/vars/rank" not in file:
            raise ValueError(f"`{filepath}` is no file of `save_lora_weights`.")
        indices = sorted(int(name) for name in file["lora"] if name != "vars")
        return int(file["lora/vars/rank"][()]), indices


def check_shapes(backbone, filepath):
    """Raise a `ValueError` if the adapters of a file are not of the size of the layers."""
    layers = layers_with_weights(backbone)
    with h5py.File(filepath, "r") as file:
        for index, group in file["lora"].items():
            if index == "vars":
                continue
            kernel = _kernel_shape(layers[int(index)])
            a, b = (group[f"vars/lora_kernel_{name}"].shape for name in "ab")
            if (*a[:-1], b[-1]) != kernel:
                raise ValueError(
                    f"`{filepath}` was saved with a backbone of other sizes. Received: adapters of "
                    f"a kernel of shape {(*a[:-1], b[-1])} for one of shape {kernel}"
                )


def _kernel_shape(layer):
    # int4 packs two numbers into one.
    shape = getattr(layer, "original_kernel_shape", None) or layer.kernel.shape
    return tuple(shape)


def names_of_adapters(backbone, filepath, indices):
    """Return the names of the layers whose adapters are saved.

    Raises:
        ValueError: If `backbone` has no such layers, or more of these names.
    """
    layers = dict(enumerate(layers_with_weights(backbone)))
    names = {layers[index].name for index in indices if index in layers}
    adapted = [i for i, layer in layers.items() if layer.name in names and _has_kernel(layer)]
    check_same_layers(filepath, indices, adapted)
    return sorted(names)


def check_same_layers(filepath, saved, enabled):
    """Raise a `ValueError` if a file has adapters of other layers than are enabled."""
    if saved != enabled:
        raise ValueError(
            f"`{filepath}` was saved with other layers than the backbone has adapters in. "
            f"Received: adapters of the layers {saved} in the file, {enabled} in the backbone"
        )


def _has_kernel(layer):
    return isinstance(layer, (keras.layers.Dense, keras.layers.EinsumDense))
