"""The configuration and the weights of Hugging Face's BERT."""

import dataclasses
import math
import warnings

import keras
import numpy as np

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
# Values that the configuration must have. All but the first are the defaults.
_REQUIRED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-12,
    "is_decoder": False,
    "add_cross_attention": False,
}


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A BERT of Hugging Face, from a folder or a model.

    Attributes:
        config: The contents of its `config.json`.
        tensors: The weights by name, as float32 arrays.
        source: Where the weights come from, for messages.
        remedy: What helps if they do not fit the configuration, for messages.
    """

    config: Config
    tensors: dict[str, np.ndarray]
    source: str
    remedy: str


# === Configuration ===


def read_arguments(config: Config, source: str) -> Config:
    """Return the arguments of `DietBertBackbone` in a configuration.

    Args:
        config: The contents of a `config.json`.
        source: Where it comes from, for messages.

    Raises:
        ValueError: If the architecture is not BERT, or if a value is missing or unknown.
    """
    for name, required in {**_REQUIRED, **dict.fromkeys(_SIZES.values())}.items():
        received = config.get(name, None if name == "model_type" else required)
        if received is None or (required is not None and received != required):
            wanted = "given" if required is None else repr(required)
            raise ValueError(
                f"`{name}` must be {wanted} in the configuration of a BERT. Received: "
                f"{name}={received!r} in {source}. Choose another BERT."
            )
    activation = config.get("hidden_act", "gelu")
    validation.choice("hidden_act", activation, tuple(_ACTIVATIONS))
    dropout = config.get("hidden_dropout_prob", 0.1)
    if not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise ValueError(
            "`hidden_dropout_prob` must be a number in [0, 1]. Received: "
            f"hidden_dropout_prob={dropout!r} in {source}. Correct its configuration."
        )
    return {
        **{ours: validation.positive_int(name, config[name]) for ours, name in _SIZES.items()},
        "dropout": dropout,
        "activation": _ACTIVATIONS[activation],
    }


# === Weights ===


def set_weights(backbone: keras.Model, checkpoint: Checkpoint) -> None:
    """Give the weights of a checkpoint to a backbone with positions and segments at its input.

    Args:
        backbone: A `DietBertBackbone` with the arguments of `read_arguments`.
        checkpoint: The checkpoint.

    Raises:
        ValueError: If the weights do not fit the backbone.
    """
    tensors = {
        name.removeprefix("bert.")
        .replace("Norm.gamma", "Norm.weight")
        .replace("Norm.beta", "Norm.bias"): tensor
        for name, tensor in checkpoint.tensors.items()
    }
    checkpoint = dataclasses.replace(checkpoint, tensors=tensors)
    names = _names(backbone.num_layers)
    _check_all_are_read(checkpoint, names)
    weights = []
    for variable, name in zip(backbone.weights, names, strict=True):
        if name.startswith("pooler.") and name not in tensors:
            weights.append(np.array(backbone.pooled_dense.get_weights()[name.endswith("bias")]))
            continue
        weights.append(_weight(checkpoint, name, variable.shape, backbone.hidden_dim))
    if "pooler.dense.weight" not in tensors:
        warnings.warn(
            f"{checkpoint.source} has no pooler, like all masked language models of Hugging Face. "
            "`pooled_output` comes from new weights, so train it before you use it.",
            stacklevel=4,
        )
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


def _check_all_are_read(checkpoint: Checkpoint, names: list[str]) -> None:
    """Raise a `ValueError` for weights of the encoder that have no name of BERT. Ignore heads."""
    parts = ("embeddings.", "encoder.", "pooler.")
    tensors = checkpoint.tensors
    left = sorted(name for name in tensors if name.startswith(parts) and name not in names)
    if left:
        raise ValueError(
            f"{checkpoint.source} has weights that a BERT of the sizes in its configuration does "
            f"not have. Received: {', '.join(left[:3])}{', ...' if len(left) > 3 else ''}. "
            f"{checkpoint.remedy}"
        )


def _weight(
    checkpoint: Checkpoint, name: str, shape: tuple[int, ...], hidden_dim: int
) -> np.ndarray:
    """Return a weight in the shape that Keras gives it."""
    tensors = checkpoint.tensors
    if name not in tensors:
        raise ValueError(
            f"{checkpoint.source} has no weight {name}, which a BERT of the sizes in its "
            f"configuration has. Received: {len(tensors)} weights. {checkpoint.remedy}"
        )
    tensor = tensors[name]
    if "embeddings" in name or len(tensor.shape) == 1:
        expected = tuple(shape) if "embeddings" in name else (math.prod(shape),)
    else:
        # PyTorch's kernels start with the outputs, and have heads and features in one axis.
        tensor = tensor.T
        expected = tuple(shape) if len(shape) == 2 else (hidden_dim, hidden_dim)
    if tensor.shape != expected:
        raise ValueError(
            f"The weights in {checkpoint.source} do not fit the sizes in its configuration. "
            f"Received: {name} of shape {tensors[name].shape}. {checkpoint.remedy}"
        )
    return tensor.reshape(shape)
