"""The safetensors format, read with NumPy."""

import json
import math

import numpy as np

_HEADER_LENGTH_SIZE = 8
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def read_safetensors(path):
    """Return the floating point tensors of a file by name, as float32 arrays.

    The file is the length of a JSON header (8 bytes, little-endian), the header with the dtype,
    shape and place of each tensor, and their bytes one after the other.

    Args:
        path: Path of the file.

    Returns:
        A dictionary. Tensors of integers, such as position ids, are left out.

    Raises:
        ValueError: If the file is no safetensors file, is cut short, or has tensors of 8 bits.

    References:
     - [The safetensors format](https://github.com/huggingface/safetensors#format)
    """
    data = np.fromfile(path, dtype="uint8")
    header, data = _split(path, data)
    tensors = {}
    try:
        for name, entry in header.items():
            if name == "__metadata__" or entry["dtype"].startswith(("I", "U", "BOOL")):
                continue
            tensors[name] = _tensor(path, data, name, entry)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"`{path}` is no safetensors file: its header must have the dtype, shape and place of "
            f"each tensor. Received: {type(error).__name__}: {error}"
        ) from error
    return tensors


def _split(path, data):
    """Return the header and the bytes after it."""
    length = int.from_bytes(data[:_HEADER_LENGTH_SIZE].tobytes(), "little")
    end = _HEADER_LENGTH_SIZE + length
    try:
        if len(data) < end:
            raise ValueError(f"its header ends at byte {end} of {len(data)}")
        header = json.loads(data[_HEADER_LENGTH_SIZE:end].tobytes())
    except ValueError as error:
        raise ValueError(
            f"`{path}` is no safetensors file, or is cut short. Received: {error}"
        ) from error
    return header, data[end:]


def _tensor(path, data, name, entry):
    if entry["dtype"] not in _DTYPES:
        raise ValueError(
            f"The weights in `{path}` must have one of the dtypes {', '.join(_DTYPES)}. Received: "
            f"{name} of dtype {entry['dtype']}"
        )
    dtype = np.dtype(_DTYPES[entry["dtype"]])
    start, end = entry["data_offsets"]
    if start < 0 or end > len(data) or end - start != math.prod(entry["shape"]) * dtype.itemsize:
        raise ValueError(
            f"`{path}` is cut short. Received: {len(data)} bytes of weights, where {name} needs "
            f"those from {start} to {end}"
        )
    array = data[start:end].view(dtype)
    if entry["dtype"] == "BF16":
        # The upper half of a float32.
        array = (array.astype("uint32") << 16).view("float32")
    return array.astype("float32").reshape(entry["shape"])
