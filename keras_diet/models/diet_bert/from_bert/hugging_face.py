"""A checkpoint folder of Hugging Face's BERT: its configuration, weights and vocabulary."""

import math
import os
import warnings
from pathlib import Path

import keras
import numpy as np

from keras_diet import validation
from keras_diet.models.hub.checkpoint_files import (
    read_json,
    read_optional_json,
    read_safetensors,
    read_text,
)
from keras_diet.types import Config

Folder = str | os.PathLike[str]

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
_VOCABULARY_FILES = ("vocab.txt", "tokenizer.json")
_SAME_FILES = "Use the files that were saved together with the weights."


def is_checkpoint(folder: Folder) -> bool:
    """Return whether `folder` is a local folder, but not a preset of KerasHub."""
    if not Path(folder).is_dir():
        return False
    # Only KerasHub's configurations name a class.
    return "registered_name" not in read_json(folder, "config.json")


# === Configuration ===


def read_arguments(folder: Folder) -> Config:
    """Return the arguments of `DietBertBackbone` in `config.json`.

    Raises:
        ValueError: If the architecture is not BERT, or if a value is missing or unknown.
    """
    config = read_json(folder, "config.json")
    for name, required in {**_REQUIRED, **dict.fromkeys(_SIZES.values())}.items():
        received = config.get(name, None if name == "model_type" else required)
        if received is None or (required is not None and received != required):
            wanted = "given" if required is None else repr(required)
            raise ValueError(
                f"`{name}` must be {wanted} in the config.json of a BERT checkpoint. Received: "
                f"{name}={received!r} in `{folder}`. Choose another checkpoint."
            )
    activation = config.get("hidden_act", "gelu")
    validation.choice("hidden_act", activation, tuple(_ACTIVATIONS))
    dropout = config.get("hidden_dropout_prob", 0.1)
    if not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise ValueError(
            "`hidden_dropout_prob` must be a number in [0, 1]. Received: "
            f"hidden_dropout_prob={dropout!r} in `{folder}`. Correct its config.json."
        )
    return {
        **{ours: validation.positive_int(name, config[name]) for ours, name in _SIZES.items()},
        "dropout": dropout,
        "activation": _ACTIVATIONS[activation],
    }


# === Weights ===


def read_weights(folder: Folder, backbone: keras.Model) -> None:
    """Give the weights of `model.safetensors` to a backbone with positions and segments at input.

    Args:
        folder: The checkpoint folder.
        backbone: A `DietBertBackbone` with the arguments `read_arguments(folder)`.

    Raises:
        ValueError: If the file is missing or damaged, or does not fit the backbone.
    """
    path = _weights_file(folder)
    tensors = {
        name.removeprefix("bert.")
        .replace("Norm.gamma", "Norm.weight")
        .replace("Norm.beta", "Norm.bias"): tensor
        for name, tensor in read_safetensors(path).items()
    }
    names = _names(backbone.num_layers)
    _check_all_are_read(path, tensors, names)
    weights = []
    for variable, name in zip(backbone.weights, names, strict=True):
        if name.startswith("pooler.") and name not in tensors:
            weights.append(np.array(backbone.pooled_dense.get_weights()[name.endswith("bias")]))
            continue
        weights.append(_weight(path, tensors, name, variable.shape, backbone.hidden_dim))
    if "pooler.dense.weight" not in tensors:
        warnings.warn(
            f"`{path}` has no pooler, like all checkpoints of masked language models. "
            "`pooled_output` comes from new weights, so train it before you use it.",
            stacklevel=4,
        )
    backbone.set_weights(weights)


def _weights_file(folder: Folder) -> Path:
    if not (Path(folder) / "model.safetensors").is_file():
        files = sorted(path.name for path in Path(folder).iterdir() if path.is_file())
        raise ValueError(
            f"The checkpoint folder `{folder}` has no model.safetensors with all weights in one "
            f"file. Received: {', '.join(files)}. Load the checkpoint with `transformers`, and "
            "save it with `save_pretrained(folder, max_shard_size='100GB')`."
        )
    return Path(folder) / "model.safetensors"


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


def _check_all_are_read(path: Path, tensors: dict[str, np.ndarray], names: list[str]) -> None:
    """Raise a `ValueError` for weights of the encoder that have no name of BERT. Ignore heads."""
    parts = ("embeddings.", "encoder.", "pooler.")
    left = sorted(name for name in tensors if name.startswith(parts) and name not in names)
    if left:
        raise ValueError(
            f"`{path}` has weights that a BERT of the sizes in config.json does not have. "
            f"Received: {', '.join(left[:3])}{', ...' if len(left) > 3 else ''}. {_SAME_FILES}"
        )


def _weight(
    path: Path,
    tensors: dict[str, np.ndarray],
    name: str,
    shape: tuple[int, ...],
    hidden_dim: int,
) -> np.ndarray:
    """Return a weight in the shape that Keras gives it."""
    if name not in tensors:
        raise ValueError(
            f"`{path}` has no weight {name}, which a BERT of the sizes in config.json has. "
            f"Received: {len(tensors)} weights. {_SAME_FILES}"
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
            f"The weights in `{path}` do not fit the sizes in config.json. Received: {name} of "
            f"shape {tensors[name].shape}. {_SAME_FILES}"
        )
    return tensor.reshape(shape)


# === Vocabulary ===


def read_tokenizer(folder: Folder) -> Config:
    """Return the arguments of `DietBertTokenizer`: the vocabulary and the normalization of text.

    Raises:
        ValueError: If the vocabulary is missing or does not fit the weights, or if the tokenizer is
            not BERT's.
    """
    vocabulary, vocabulary_size = _read_vocabulary(folder)
    if len(vocabulary) < vocabulary_size:
        warnings.warn(
            f"The vocabulary in `{folder}` has {len(vocabulary)} tokens, where the weights are for "
            f"{vocabulary_size}. It is incomplete, unless the weights were padded.",
            stacklevel=4,
        )
    normalizer = read_optional_json(folder, "tokenizer.json").get("normalizer") or {}
    kind = normalizer.get("type", "BertNormalizer")
    validation.choice("normalizer of tokenizer.json", kind, ("BertNormalizer",))
    config = read_optional_json(folder, "tokenizer_config.json")

    def option(name: str, name_in_normalizer: str, default: bool) -> bool:
        values = (config.get(name), normalizer.get(name_in_normalizer), default)
        return next(value for value in values if value is not None)

    # By default, Hugging Face lowercases, and strips accents whenever it lowercases.
    lowercase = option("do_lower_case", "lowercase", True)
    return {
        "vocabulary": vocabulary,
        "lowercase": lowercase,
        "strip_accents": option("strip_accents", "strip_accents", lowercase),
        "split_on_cjk": option("tokenize_chinese_chars", "handle_chinese_chars", True),
    }


def read_cls_token_id(folder: Folder) -> int | None:
    """Return the id of `[CLS]`, or `None` for a folder without a vocabulary."""
    has_vocabulary = any((Path(folder) / name).is_file() for name in _VOCABULARY_FILES)
    vocabulary = _read_vocabulary(folder)[0] if has_vocabulary else []
    return vocabulary.index("[CLS]") if "[CLS]" in vocabulary else None


def check_vocabulary_fits(num_tokens: int, vocabulary_size: int, source: Folder) -> None:
    """Raise a `ValueError` if a vocabulary is empty, or larger than the weights."""
    if not 0 < num_tokens <= vocabulary_size:
        raise ValueError(
            f"The vocabulary does not fit the weights. Received: {num_tokens} tokens in "
            f"`{source}`, where the weights have vocab_size={vocabulary_size}. {_SAME_FILES}"
        )


def _read_vocabulary(folder: Folder) -> tuple[list[str], int]:
    """Return the tokens in the order of their ids, and the vocabulary size of the weights."""
    vocabulary, file = _tokens(folder)
    vocabulary_size = read_arguments(folder)["vocabulary_size"]
    check_vocabulary_fits(len(vocabulary), vocabulary_size, Path(folder) / file)
    return vocabulary, vocabulary_size


def _tokens(folder: Folder) -> tuple[list[str], str]:
    """Return the tokens in the order of their ids, and the name of their file."""
    path = Path(folder) / "vocab.txt"
    if path.is_file():
        text = read_text(path).removesuffix("\n")
        return text.split("\n") if text else [], path.name
    model = read_optional_json(folder, "tokenizer.json").get("model") or {}
    if model.get("type", "WordPiece") != "WordPiece":
        raise ValueError(
            "The tokenizer of a BERT checkpoint must be a WordPiece tokenizer. Received: "
            f"{model['type']} in tokenizer.json of `{folder}`. Choose another checkpoint."
        )
    if "vocab" not in model:
        raise ValueError(
            f"The checkpoint folder must have a vocabulary in {' or '.join(_VOCABULARY_FILES)}. "
            f"Received: `{folder}`, which has none. {_SAME_FILES}"
        )
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(
            f"The ids in tokenizer.json of `{folder}` must be 0, 1, 2, ... without gaps. Received: "
            f"{len(ids)} tokens with ids from {min(ids.values())} to {max(ids.values())}. "
            f"{_SAME_FILES}"
        )
    return sorted(ids, key=ids.get), "tokenizer.json"
