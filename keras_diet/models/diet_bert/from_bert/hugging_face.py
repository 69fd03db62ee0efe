"""A checkpoint folder of Hugging Face's BERT: its weights and its vocabulary."""

import os
import warnings
from pathlib import Path

from keras_diet import validation
from keras_diet.models.diet_bert.from_bert.checkpoint import Checkpoint, read_arguments
from keras_diet.models.hub.checkpoint_files import (
    read_json,
    read_optional_json,
    read_safetensors,
    read_text,
)
from keras_diet.types import Config

Folder = str | os.PathLike[str]

_VOCABULARY_FILES = ("vocab.txt", "tokenizer.json")
_SAME_FILES = "Use the files that were saved together with the weights."


def is_checkpoint(folder: Folder) -> bool:
    """Return whether `folder` is a local folder, but not a preset of KerasHub."""
    if not Path(folder).is_dir():
        return False
    # Only KerasHub's configurations name a class.
    return "registered_name" not in read_json(folder, "config.json")


# === Weights ===


def read_checkpoint(folder: Folder) -> Checkpoint:
    """Return the configuration and the weights in a folder.

    Raises:
        ValueError: If a file is missing or damaged.
    """
    config = read_json(folder, "config.json")
    path = _weights_file(folder)
    return Checkpoint(config, read_safetensors(path), f"`{path}`", _SAME_FILES)


def _weights_file(folder: Folder) -> Path:
    if not (Path(folder) / "model.safetensors").is_file():
        files = sorted(path.name for path in Path(folder).iterdir() if path.is_file())
        raise ValueError(
            f"The checkpoint folder `{folder}` has no model.safetensors with all weights in one "
            f"file. Received: {', '.join(files)}. Load the checkpoint with `transformers`, and "
            "save it with `save_pretrained(folder, max_shard_size='100GB')`."
        )
    return Path(folder) / "model.safetensors"


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
    vocabulary_size = read_arguments(read_json(folder, "config.json"), f"`{folder}`")[
        "vocabulary_size"
    ]
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
