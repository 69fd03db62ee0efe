"""Hugging Face's BERT, from a folder or from a model of `transformers`: what it holds, by name."""

import dataclasses
import json
import os
import warnings
from pathlib import Path
from typing import Any

import keras
import ml_dtypes  # noqa: F401  NumPy knows bfloat16 after this import.
import numpy as np
from safetensors import safe_open

from keras_diet import validation
from keras_diet.types import Config

_SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_approximate",
    "gelu_fast": "gelu_approximate",
    "gelu_pytorch_tanh": "gelu_approximate",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# Values without which the weights mean another model. The defaults are those of `transformers`.
_REQUIRED = {
    "model_type": ("bert", None),
    "position_embedding_type": ("absolute", "absolute"),
    "layer_norm_eps": (1e-12, 1e-12),
    "is_decoder": (False, False),
    "add_cross_attention": (False, False),
}


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A BERT of Hugging Face.

    Attributes:
        config: The contents of its `config.json`.
        tensors: The weights by name, as float32 arrays.
        source: Where the weights come from, for messages.
    """

    config: Config
    tensors: dict[str, np.ndarray]
    source: str


def read_checkpoint(bert: Any) -> Checkpoint | None:
    """Return the configuration and the weights of Hugging Face's BERT. `None` for other values.

    Args:
        bert: A folder or a model of Hugging Face's `transformers`, or anything else.
    """
    if is_hugging_face_folder(bert):
        path = Path(bert) / "model.safetensors"
        return Checkpoint(read_json(bert, "config.json"), read_safetensors(path), f"`{path}`")
    if not is_of_transformers(bert):
        return None
    tensors = {
        name: tensor.detach().float().cpu().numpy()
        for name, tensor in bert.state_dict().items()
        if tensor.is_floating_point()
    }
    name = type(bert).__name__
    config = {**bert.config.to_dict(), "architectures": [name]}
    return Checkpoint(config, tensors, f"the `{name}`")


def is_hugging_face_folder(bert: Any) -> bool:
    """Return whether `bert` is a local folder, but not a preset of KerasHub."""
    if not isinstance(bert, (str, os.PathLike)) or not Path(bert).is_dir():
        return False
    # Only KerasHub's configurations name a class.
    return "registered_name" not in read_json(bert, "config.json")


def is_of_transformers(value: Any) -> bool:
    """Return whether the class of a value, or one of its base classes, is of `transformers`."""
    return any(base.__module__.split(".")[0] == "transformers" for base in type(value).__mro__)


def read_json(folder: str | os.PathLike[str], name: str) -> Any:
    """Return what a JSON file of a folder holds."""
    return json.loads((Path(folder) / name).read_text(encoding="utf-8"))


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the floating point tensors of a file by name, as float32 arrays.

    Tensors of integers, such as position ids, are left out.
    """
    with safe_open(path, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {
        name: tensor.astype("float32")
        for name, tensor in tensors.items()
        if tensor.dtype.kind not in "iub"
    }


def read_arguments(checkpoint: Checkpoint) -> Config:
    """Return the arguments of `DietBertBackbone` in the configuration of a checkpoint.

    Raises:
        ValueError: If the architecture is not BERT, or if the activation is unknown.
    """
    config = checkpoint.config
    for name, (required, default) in _REQUIRED.items():
        received = config.get(name, default)
        if received != required:
            raise ValueError(
                f"`{name}` must be {required!r} in the configuration of a BERT. Received: "
                f"{name}={received!r} in {checkpoint.source}"
            )
    activation = config.get("hidden_act", "gelu")
    validation.choice("hidden_act", activation, tuple(_ACTIVATIONS))
    return {
        **{ours: config[name] for ours, name in _SIZES.items()},
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "activation": _ACTIVATIONS[activation],
    }


def set_weights(backbone: keras.Model, checkpoint: Checkpoint) -> None:
    """Give the weights of a checkpoint to a backbone with positions and segments at its input.

    Args:
        backbone: A `DietBertBackbone` with the arguments of `read_arguments`.
        checkpoint: The checkpoint.

    Raises:
        ValueError: If the checkpoint has weights of the encoder that the backbone does not have.
    """
    tensors = {
        name.removeprefix("bert.")
        .replace("Norm.gamma", "Norm.weight")
        .replace("Norm.beta", "Norm.bias"): tensor
        for name, tensor in checkpoint.tensors.items()
    }
    if "pooler.dense.weight" not in tensors:
        warnings.warn(
            f"{checkpoint.source} has no pooler, like all masked language models of Hugging Face. "
            "`pooled_output` comes from new weights, so train it before you use it.",
            stacklevel=3,
        )
        kernel, bias = backbone.pooled_dense.get_weights()
        tensors |= {"pooler.dense.weight": kernel.T, "pooler.dense.bias": bias}
    names = _names(backbone.num_layers)
    parts = ("embeddings.", "encoder.", "pooler.")
    left = sorted(name for name in tensors if name.startswith(parts) and name not in names)
    if left:
        raise ValueError(
            f"{checkpoint.source} has weights that a BERT of the sizes in its configuration does "
            f"not have. Received: {', '.join(left[:3])}"
        )
    weights = []
    for variable, name in zip(backbone.weights, names, strict=True):
        # PyTorch's kernels start with the outputs, and have heads and features in one axis.
        is_kernel = name.endswith(".weight") and tensors[name].ndim == 2
        tensor = tensors[name].T if is_kernel and "embeddings" not in name else tensors[name]
        weights.append(tensor.reshape(variable.shape))
    backbone.set_weights(weights)


def _names(num_layers: int) -> list[str]:
    """Return Hugging Face's names of BERT's weights, in the order of `DietBertBackbone`."""
    names = [
        "embeddings.word_embeddings.weight",
        "embeddings.position_embeddings.weight",
        "embeddings.token_type_embeddings.weight",
        *_pair("embeddings.LayerNorm"),
    ]
    for i in range(num_layers):
        for layer in (
            *("attention.self.query", "attention.self.key", "attention.self.value"),
            *("attention.output.dense", "attention.output.LayerNorm", "output.LayerNorm"),
            *("intermediate.dense", "output.dense"),
        ):
            names += _pair(f"encoder.layer.{i}.{layer}")
    return [*names, *_pair("pooler.dense")]


def _pair(layer: str) -> tuple[str, str]:
    return f"{layer}.weight", f"{layer}.bias"
