"""What this library repairs in Keras, KerasHub and PyTorch, until they do it themselves.

| repair | upstream | needed with |
|---|---|---|
| `policy_config`, `with_policy` | keras-hub pull request 2367 | keras-hub 0.32, 0.33.dev |
| `quantized_layers`, `quantize_layers` | keras-hub pull request 2367 | keras-hub 0.32, 0.33.dev |
| `freeze_biases`, `enable_lora_of_file` | keras-hub issue 2701 | keras-hub 0.32, 0.33.dev |
| `sum_repeated_rows` | none found: Keras's Adam on TensorFlow squares parts of a sum | keras 3.15 |
| `open_sizes_of_gathers` | not reported yet | torch 2.13 |
| `einsums_as_products` | not reported yet | torch 2.13, onnxruntime 1.31 |

`tests/models/test_repairs.py` has an `xfail` for each, which fails as soon as upstream does the
same. Then delete the repair.
"""

import contextlib
import os
import types
import unittest.mock
from collections.abc import Iterator
from typing import Any

import h5py
import keras

from keras_diet import _backend
from keras_diet._compat import flatten_layers
from keras_diet.types import Config

# === Presets in mixed precision ===
# `from_preset` of KerasHub's tasks raises an error for a mixed policy in `dtype`.


def policy_config(policy: keras.DTypePolicy) -> Config:
    """Return the part of a configuration that holds the policy of a backbone."""
    if policy.name.startswith("mixed_"):
        return {"dtype": None, "mixed_precision": policy.name}
    return {"dtype": keras.dtype_policies.serialize(policy)}


def with_policy(config: Config) -> Config:
    """Return a configuration with the mixed policy, unless it has another `dtype`."""
    config = dict(config)
    mixed_precision = config.pop("mixed_precision", None)
    return {**config, "dtype": config.get("dtype") or mixed_precision}


# === Presets of quantized backbones ===
# KerasHub writes a map of policies, and its `from_preset` cannot load the weights of such layers.


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


# === Files of adapters ===
# A file of `save_lora_weights` has no biases, and numbers the layers in the order of the model.


def freeze_biases(model: keras.Model) -> None:
    """Freeze the biases of layers with LoRA, because `save_lora_weights` does not write them."""
    for layer in flatten_layers(model):
        if getattr(layer, "lora_enabled", False) and layer.bias is not None:
            layer.bias.trainable = False


def enable_lora_of_file(backbone: Any, filepath: str | os.PathLike[str]) -> None:
    """Enable LoRA for the layers in a file of adapters, with its rank, unless it is enabled.

    KerasHub would enable its default layers.

    Raises:
        ValueError: If LoRA is enabled for other layers.
    """
    layers = [
        layer for layer in flatten_layers(backbone) if layer is not backbone and layer.weights
    ]
    with h5py.File(filepath, "r") as file:
        rank = int(file["lora/vars/rank"][()])
        saved = sorted(int(name) for name in file["lora"] if name != "vars")
    if not any(getattr(layer, "lora_enabled", False) for layer in layers):
        backbone.enable_lora(rank, sorted({layers[index].name for index in saved}))
    adapted = [i for i, layer in enumerate(layers) if getattr(layer, "lora_enabled", False)]
    if saved != adapted:
        raise ValueError(
            f"`{filepath}` was saved with adapters in other layers than the backbone has. "
            f"Received: layers {saved} in the file, {adapted} in the backbone."
        )


# === Rows of embeddings that a batch has several times ===


def sum_repeated_rows(optimizer: keras.optimizers.Optimizer) -> None:
    """Let an optimizer on TensorFlow have one gradient for each row of an embedding.

    The gradient of an embedding is a list of rows there, in which a token that occurs twice has two
    rows. Keras's optimizers square each of them, and clip by their norm, instead of their sum.
    """
    if keras.config.backend() == "tensorflow":
        optimizer.apply = types.MethodType(_apply_sums, optimizer)  # type: ignore[method-assign]


def _apply_sums(optimizer, grads, trainable_variables=None):
    import tensorflow as tf

    def dense(gradient):
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        rows = gradient.dense_shape[0]
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)

    type(optimizer).apply(optimizer, list(map(dense, grads)), trainable_variables)


# === Export ===
# `torch.take_along_dim`, which the head of masked language models calls, fixes the sizes of the
# example in the program.


@contextlib.contextmanager
def open_sizes_of_gathers() -> Iterator[None]:
    """Let PyTorch export `take_along_dim` for any sizes, as a `gather`."""
    import torch

    def gather(inputs, indices, dim):
        return _backend.take_along_axis(inputs, indices, dim)

    with unittest.mock.patch.object(torch, "take_along_dim", gather):
        yield


# PyTorch writes an einsum of Keras's projections as an `Einsum` of ONNX, which ONNX Runtime neither
# quantizes nor computes as fast as a product of matrices.


@contextlib.contextmanager
def einsums_as_products() -> Iterator[None]:
    """Let PyTorch export the projections of `keras.layers.EinsumDense` as products of matrices."""
    import torch

    einsum = torch.einsum

    def product(equation, *operands):
        inputs, _, rest = equation.partition(",")
        kernel, _, outputs = rest.partition("->")
        shared = sum(axis in inputs for axis in kernel)
        before, summed, after = inputs[:-shared], kernel[:shared], kernel[shared:]
        if not shared or (inputs, outputs) != (before + summed, before + after):
            return einsum(equation, *operands)
        x, weights = operands
        found = x.flatten(-shared) @ weights.flatten(shared).flatten(0, shared - 1)
        return found.unflatten(-1, weights.shape[shared:])

    with unittest.mock.patch.object(torch, "einsum", product):
        yield
