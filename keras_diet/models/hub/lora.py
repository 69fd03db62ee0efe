"""LoRA: which layers of a backbone can have adapters, and which adapters a file holds."""

import os

import h5py
import keras

from keras_diet import validation
from keras_diet._compat import flatten_layers
from keras_diet.models.hub.file_errors import complete_file


def check_enable_lora(
    backbone: keras.Model, rank: int, target_layer_names: list[str] | None
) -> None:
    """Raise a `ValueError` if KerasHub would add only some of the adapters, or none."""
    validation.positive_int("rank", rank)
    if target_layer_names is not None and not target_layer_names:
        raise ValueError(
            "`target_layer_names` must name at least one layer, or be `None` for queries and "
            f"values. Received: target_layer_names={target_layer_names!r}"
        )
    layers = layers_with_weights(backbone)
    # Embeddings have `enable_lora` too, but KerasHub writes only kernels to files.
    possible = {layer.name for layer in layers if _has_kernel(layer)}
    for name in target_layer_names or []:
        validation.choice("target_layer_names", name, sorted(possible))
    if enabled := enabled_layers(backbone):
        names = sorted({layers[index].name for index in enabled})
        raise ValueError(
            "LoRA can be enabled once. Load the backbone again to add other adapters. "
            f"Received: a backbone with adapters in {names}"
        )


def freeze_adapted_biases(backbone: keras.Model) -> None:
    """Freeze the biases of all layers with adapters."""
    layers = layers_with_weights(backbone)
    for index in enabled_layers(backbone):
        if layers[index].bias is not None:
            layers[index].bias.trainable = False


def enabled_layers(backbone: keras.Model) -> list[int]:
    """Return the indices of the layers with adapters among all layers with weights."""
    layers = enumerate(layers_with_weights(backbone))
    return [index for index, layer in layers if getattr(layer, "lora_enabled", False)]


def read_lora_file(
    backbone: keras.Model, filepath: str | os.PathLike[str]
) -> tuple[int, list[str]]:
    """Return the rank of the adapters in a `.lora.h5`, and the names of the layers they are for.

    Raises:
        ValueError: If the file is damaged, or has adapters for another backbone, or for other
            layers than the layers that have adapters already.
    """
    rank, saved = _saved_adapters(filepath)
    layers = dict(enumerate(layers_with_weights(backbone)))
    names = {layers[index].name for index in saved if index in layers}
    # `enable_lora` would add adapters to all layers with one of these names.
    adapted = [i for i, layer in layers.items() if layer.name in names and _has_kernel(layer)]
    for layers_of_backbone in (adapted, enabled_layers(backbone) or saved):
        if saved != layers_of_backbone:
            raise ValueError(
                f"`{filepath}` was saved with adapters in other layers than the backbone has. "
                f"Received: layers {saved} in the file, {layers_of_backbone} in the backbone. "
                "Load the file into a new backbone like the one that it was saved from."
            )
    _check_shapes(backbone, filepath)
    return rank, sorted(names)


def layers_with_weights(backbone: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers of `backbone` that have weights. KerasHub's files count these layers."""
    return [layer for layer in flatten_layers(backbone) if layer is not backbone and layer.weights]


def _saved_adapters(filepath: str | os.PathLike[str]) -> tuple[int, list[int]]:
    with complete_file(filepath), h5py.File(filepath, "r") as file:
        if "lora/vars/rank" not in file:
            raise ValueError(
                f"`{filepath}` is not a file of LoRA adapters. Pass a file that "
                f"`save_lora_weights` wrote. Received: a file with {list(file)}"
            )
        indices = sorted(int(name) for name in file["lora"] if name != "vars")
        return int(file["lora/vars/rank"][()]), indices


def _check_shapes(backbone: keras.Model, filepath: str | os.PathLike[str]) -> None:
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
                    f"a kernel of shape {(*a[:-1], b[-1])} for a kernel of shape {kernel}. Load it "
                    "into a backbone of the same sizes."
                )


def _kernel_shape(layer: keras.layers.Layer) -> tuple[int, ...]:
    # int4 packs two numbers into one.
    shape = getattr(layer, "original_kernel_shape", None) or layer.kernel.shape
    return tuple(shape)


def _has_kernel(layer: keras.layers.Layer) -> bool:
    return isinstance(layer, (keras.layers.Dense, keras.layers.EinsumDense))
