"""Reading the files of a checkpoint folder, with errors that name the file."""

import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  NumPy knows bfloat16 after this import.
import numpy as np
from safetensors import SafetensorError, safe_open

_FLOATS = ("F64", "F32", "F16", "BF16")
_AGAIN = "Copy, download or save it again."


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the floating point tensors of a file by name, as float32 arrays.

    Tensors of integers, such as position ids, are left out.

    Raises:
        ValueError: If the file is damaged, or if a tensor has 8 bits.

    References:
     - [The safetensors format](https://github.com/huggingface/safetensors#format)
    """
    tensors = {}
    try:
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118
                dtype = file.get_slice(name).get_dtype()
                if dtype.startswith(("I", "U", "BOOL")):
                    continue
                if dtype not in _FLOATS:
                    raise ValueError(
                        f"The weights in `{path}` must have one of the dtypes "
                        f"{', '.join(_FLOATS)}. Received: {name} of dtype {dtype}. Save the model "
                        "in one of them."
                    )
                tensors[name] = file.get_tensor(name).astype("float32")
    except SafetensorError as error:
        raise ValueError(
            f"`{path}` is not a complete safetensors file. {_AGAIN} Received: {error}"
        ) from error
    return tensors


def read_text(path: Path) -> str:
    """Return the text in a file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"`{path}` is not text in UTF-8. {_AGAIN} Received: {error}") from error


def read_json(folder: str | os.PathLike[str], name: str) -> dict[str, Any]:
    """Return the JSON object in a file of a folder."""
    path = Path(folder) / name
    if not path.is_file():
        files = sorted(file.name for file in Path(folder).glob("*"))[:10]
        raise ValueError(
            f"The checkpoint folder `{folder}` has no {name}. {_AGAIN} "
            f"Received: {', '.join(files) or 'no files'}"
        )
    try:
        contents = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"`{path}` is not JSON. {_AGAIN} Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(
            f"`{path}` must hold a JSON object. {_AGAIN} Received: {type(contents).__name__}"
        )
    return contents


def read_optional_json(folder: str | os.PathLike[str], name: str) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one if the file does not exist."""
    return read_json(folder, name) if (Path(folder) / name).is_file() else {}
