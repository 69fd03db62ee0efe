"""A trained model of Hugging Face, from a folder or from a model of `transformers`."""

import dataclasses
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 after this import.
import numpy as np
from safetensors.numpy import load_file

from keras_diet.models.diet_bert.hugging_face.architectures import ARCHITECTURES, type_of
from keras_diet.models.hub.presets import is_hugging_face_folder
from keras_diet.types import Config

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A trained model of Hugging Face.

    Attributes:
        config: The contents of its `config.json`, with the defaults of `transformers`.
        tensors: The weights by name, as float32 arrays.
        source: Where the weights come from, for messages.
        folder: The folder, which may have a vocabulary, or `None` for a model in memory.
    """

    config: Config
    tensors: dict[str, np.ndarray]
    source: str
    folder: Path | None = None

    @property
    def architecture(self) -> str:
        """Name of the class in `transformers`, such as `"BertForMaskedLM"`, or an empty string."""
        return (self.config.get("architectures") or [""])[0]


def read_checkpoint(source: Any) -> Checkpoint | None:
    """Return the configuration and the weights of a model of Hugging Face.

    Args:
        source: A folder or a model of Hugging Face's `transformers`, a checkpoint that was read
            before, or anything else.

    Returns:
        The checkpoint, or `None` for anything else.

    Raises:
        ValueError: If the type of the model is unknown, if its configuration lacks a size or
            `transformers` refuses it, or if a folder has no weights in the format of safetensors.
        ImportError: If `transformers` is not installed.
    """
    if isinstance(source, Checkpoint):
        return source
    if is_of_transformers(source):
        # Files can have other names than the memory, and fewer values in the configuration.
        with tempfile.TemporaryDirectory() as folder:
            source.save_pretrained(folder)
            checkpoint = _read_folder(folder, f"the `{type(source).__name__}`")
        return dataclasses.replace(checkpoint, folder=None)
    return _read_folder(source, f"`{source}`") if is_hugging_face_folder(source) else None


def _read_folder(folder, source):
    config = read_json(folder, "config.json")
    config = ARCHITECTURES[type_of(config)].with_defaults(config, source)
    tensors = {
        # The names of normalizations in old files.
        name.replace("Norm.gamma", "Norm.weight").replace("Norm.beta", "Norm.bias"): array
        for file in _files_of_weights(Path(folder))
        for name, array in read_safetensors(file).items()
    }
    return Checkpoint(config, tensors, source, Path(folder))


def _files_of_weights(folder):
    # As in `transformers`: the index of a folder that has one file is an old one.
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        return [folder / name for name in sorted(names_of_shards(folder))]
    raise ValueError(
        f"The folder must have its weights in `{WEIGHTS}`. Received: folder={str(folder)!r} with "
        f"{sorted(os.listdir(folder))}. Other formats, such as `pytorch_model.bin`, are not read, "
        "because loading them can run code. `save_pretrained` of `transformers` writes the file."
    )


def names_of_shards(folder: str | os.PathLike[str]) -> set[str]:
    """Return the names of the files of a model of several files."""
    return set(optional_json(folder, INDEX).get("weight_map", {}).values())


def is_of_transformers(value: Any) -> bool:
    """Return whether the class of a value, or one of its base classes, is of `transformers`."""
    return any(base.__module__.split(".")[0] == "transformers" for base in type(value).__mro__)


def read_json(folder: str | os.PathLike[str], name: str) -> Any:
    """Return what a JSON file of a folder holds."""
    return json.loads((Path(folder) / name).read_text(encoding="utf-8"))


def optional_json(folder: str | os.PathLike[str], name: str) -> Config:
    """Return what a JSON file of a folder says, or nothing without the file."""
    return read_json(folder, name) if (Path(folder) / name).is_file() else {}


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the floating point tensors of a file by name, as float32 arrays.

    Tensors of integers, such as position ids, are left out.
    """
    return {
        name: tensor.astype("float32")
        for name, tensor in load_file(path).items()
        if tensor.dtype.kind not in "iub"
    }
