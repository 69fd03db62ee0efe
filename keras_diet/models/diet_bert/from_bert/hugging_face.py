"""A checkpoint folder of Hugging Face's BERT: its configuration, weights and vocabulary."""

import json
import math
import warnings
from pathlib import Path

import numpy as np

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
_VOCABULARY_FILES = ("vocab.txt", "tokenizer.json")


def is_hugging_face_folder(folder):
    """Whether `folder` is a local one, and no preset of KerasHub."""
    if not Path(folder).is_dir():
        return False
    # KerasHub's configurations name the class that they are of.
    return "registered_name" not in _json(folder, "config.json")


def read_arguments(folder):
    """Return what `config.json` says, as arguments of `DietBertBackbone`.

    Raises a `ValueError` for other architectures than BERT's.
    """
    config = _json(folder, "config.json")
    for name, required in {**_REQUIRED, **dict.fromkeys(_SIZES.values())}.items():
        received = config.get(name, None if name == "model_type" else required)
        if received is None or (required is not None and received != required):
            wanted = "given" if required is None else repr(required)
            raise ValueError(
                f"`{name}` must be {wanted} in the config.json of a BERT checkpoint. Received: "
                f"{name}={received!r} in `{folder}`"
            )
    activation = config.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"`hidden_act` must be one of {', '.join(map(repr, _ACTIVATIONS))}. Received: "
            f"hidden_act={activation!r} in `{folder}`"
        )
    return {
        **{ours: config[theirs] for ours, theirs in _SIZES.items()},
        "dropout": config.get("hidden_dropout_prob", 0.1),
        "activation": _ACTIVATIONS[activation],
    }


def read_tokenizer(folder):
    """Return the arguments of `DietBertTokenizer`: the vocabulary, and how text is normalized."""
    vocabulary, file = _vocabulary(folder)
    vocabulary_size = read_arguments(folder)["vocabulary_size"]
    if len(vocabulary) > vocabulary_size:
        raise ValueError(
            f"The vocabulary does not fit the weights. Received: {len(vocabulary)} tokens in "
            f"{file}, vocab_size={vocabulary_size} in config.json of `{folder}`"
        )
    normalizer = _optional_json(folder, "tokenizer.json").get("normalizer") or {}
    config = _optional_json(folder, "tokenizer_config.json")
    # Where no file says, Hugging Face lowercases.
    lowercase = config.get("do_lower_case", normalizer.get("lowercase", True))
    strip_accents = config.get("strip_accents", normalizer.get("strip_accents"))
    split_on_cjk = config.get(
        "tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True)
    )
    return {
        "vocabulary": vocabulary,
        "lowercase": lowercase,
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_on_cjk": split_on_cjk,
    }


def read_cls_token_id(folder):
    """Return the id of `[CLS]`, `None` for a folder without a vocabulary."""
    has_vocabulary = any((Path(folder) / name).is_file() for name in _VOCABULARY_FILES)
    vocabulary = read_tokenizer(folder)["vocabulary"] if has_vocabulary else []
    return vocabulary.index("[CLS]") if "[CLS]" in vocabulary else None


def _vocabulary(folder):
    """Return the tokens in the order of their ids, and the file that has them."""
    path = Path(folder) / "vocab.txt"
    if path.is_file():
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n"), path.name
    model = _optional_json(folder, "tokenizer.json").get("model") or {}
    if "vocab" not in model:
        raise ValueError(
            f"The checkpoint folder must have a vocabulary, in one of {_VOCABULARY_FILES}. "
            f"Received: `{folder}`"
        )
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"The ids in tokenizer.json of `{folder}` have gaps.")
    return sorted(ids, key=ids.get), "tokenizer.json"


def read_weights(folder, backbone):
    """Give the weights of `model.safetensors` to a backbone with positions and segments at input.

    Args:
        folder: The checkpoint folder.
        backbone: A `DietBertBackbone` made of `read_arguments(folder)`.
    """
    path = _file(folder, "model.safetensors")
    tensors = {
        name.removeprefix("bert.")
        .replace("Norm.gamma", "Norm.weight")
        .replace("Norm.beta", "Norm.bias"): tensor
        for name, tensor in read_safetensors(path).items()
    }
    weights = []
    for variable, name in zip(backbone.weights, _names(backbone.num_layers), strict=True):
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


def _file(folder, name):
    path = Path(folder) / name
    if not path.is_file():
        raise ValueError(f"The checkpoint folder `{folder}` has no {name}.")
    return path


def _optional_json(folder, name):
    return _json(folder, name) if (Path(folder) / name).is_file() else {}


def _json(folder, name):
    path = _file(folder, name)
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"`{path}` is no JSON. Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(f"`{path}` must hold a JSON object. Received: {type(contents).__name__}")
    return contents
