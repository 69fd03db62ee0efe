"""A checkpoint folder of Hugging Face's BERT: its configuration and weights."""

import math
import numbers
import warnings
from pathlib import Path

import numpy as np

from keras_diet import validation
from keras_diet.models.diet_bert.from_bert.json_files import read_json
from keras_diet.models.diet_bert.from_bert.safetensors import read_safetensors

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
# What must be so, and is so where the configuration does not say.
_REQUIRED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-12,
    "is_decoder": False,
    "add_cross_attention": False,
}


def is_hugging_face_folder(folder):
    """Whether `folder` is a local one, and no preset of KerasHub."""
    if not Path(folder).is_dir():
        return False
    # KerasHub's configurations name the class that they are of.
    return "registered_name" not in read_json(folder, "config.json")


def read_arguments(folder):
    """Return what `config.json` says, as arguments of `DietBertBackbone`.

    Raises a `ValueError` for other architectures than BERT's.
    """
    config = read_json(folder, "config.json")
    for name, required in {**_REQUIRED, **dict.fromkeys(_SIZES.values())}.items():
        received = config.get(name, None if name == "model_type" else required)
        if received is None or (required is not None and received != required):
            wanted = "given" if required is None else repr(required)
            raise ValueError(
                f"`{name}` must be {wanted} in the config.json of a BERT checkpoint. Received: "
                f"{name}={received!r} in `{folder}`"
            )
    activation = config.get("hidden_act", "gelu")
    validation.choice("hidden_act", activation, tuple(_ACTIVATIONS))
    dropout = config.get("hidden_dropout_prob", 0.1)
    if not isinstance(dropout, numbers.Real) or not 0 <= dropout <= 1:
        raise ValueError(
            "`hidden_dropout_prob` must be a number in [0, 1]. Received: "
            f"hidden_dropout_prob={dropout!r} in `{folder}`"
        )
    return {
        **{ours: validation.positive_int(name, config[name]) for ours, name in _SIZES.items()},
        "dropout": dropout,
        "activation": _ACTIVATIONS[activation],
    }


def read_weights(folder, backbone):
    """Give the weights of `model.safetensors` to a backbone with positions and segments at input.

    Args:
        folder: The checkpoint folder.
        backbone: A `DietBertBackbone` made of `read_arguments(folder)`.
    """
    path = _weights_file(folder)
    tensors = {
        name.removeprefix("bert.")
        .replace("Norm.gamma", "Norm.weight")
        .replace("Norm.beta", "Norm.bias"): tensor
        for name, tensor in read_safetensors(path).items()
    }
    names = _names(backbone.num_layers)
    _check_nothing_is_left(path, tensors, names)
    weights = []
    for variable, name in zip(backbone.weights, names, strict=True):
        if name.startswith("pooler.") and name not in tensors:
            weights.append(np.array(backbone.pooled_dense.get_weights()[name.endswith("bias")]))
            continue
        weights.append(_weight(path, tensors, name, variable.shape, backbone.hidden_dim))
    if "pooler.dense.weight" not in tensors:
        warnings.warn(
            f"`{path}` has no pooler, as checkpoints of masked language models: `pooled_output` "
            "comes from new weights and means nothing before it is trained.",
            stacklevel=5,
        )
    backbone.set_weights(weights)


def _names(num_layers):
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


def _pair(layer):
    return f"{layer}.weight", f"{layer}.bias"


def _check_nothing_is_left(path, tensors, names):
    """Raise a `ValueError` for weights of the encoder that would not be read; heads may stay."""
    parts = ("embeddings.", "encoder.", "pooler.")
    left = sorted(name for name in tensors if name.startswith(parts) and name not in names)
    if left:
        raise ValueError(
            f"`{path}` has weights that a BERT of the sizes in config.json does not have. "
            f"Received: {', '.join(left[:3])}{', ...' if len(left) > 3 else ''}"
        )


def _weight(path, tensors, name, shape, hidden_dim):
    """Return a weight in the shape that Keras gives it."""
    if name not in tensors:
        raise ValueError(f"`{path}` has no weight {name}, which BERT has: it is incomplete.")
    tensor = tensors[name]
    if "embeddings" in name or len(tensor.shape) == 1:
        expected = tuple(shape) if "embeddings" in name else (math.prod(shape),)
    else:
        # PyTorch's kernels have the outputs first, and the heads in one axis with their features.
        tensor = tensor.T
        expected = tuple(shape) if len(shape) == 2 else (hidden_dim, hidden_dim)
    if tensor.shape != expected:
        raise ValueError(
            f"The weights in `{path}` do not fit the sizes in config.json. Received: {name} of "
            f"shape {tensors[name].shape}"
        )
    return tensor.reshape(shape)


def _weights_file(folder):
    if not (Path(folder) / "model.safetensors").is_file():
        files = sorted(path.name for path in Path(folder).iterdir() if path.is_file())
        raise ValueError(
            f"The checkpoint folder `{folder}` has no model.safetensors, all weights in one file. "
            "Load what it has with `transformers`, and save that with `save_pretrained(folder, "
            f"max_shard_size='100GB')`. Received: {', '.join(files)}"
        )
    return Path(folder) / "model.safetensors"
