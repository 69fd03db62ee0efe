"""Whether a file of weights fits a model: no weights that it does not build, no NaN."""

import json
import os
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np

from keras_diet._compat import flatten_layers, saved_paths

# Keras leaves the state of the optimizer out if the model has no optimizer.
_NOT_WEIGHTS = "optimizer/"
# The bits of the exponent by dtype. They are all set in NaN and infinity only.
_EXPONENTS = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F80_0000,
    "float64": 0x7FF0_0000_0000_0000,
}
# So many numbers are checked at once. They fit into the cache of a processor.
_BLOCK = 2**16


def check_weights_file(
    model: keras.Model,
    filepath: str | os.PathLike[str],
    skip_mismatch: bool = False,
    objects_to_skip: Collection[Any] = (),
) -> None:
    """Raise a `ValueError` if a file has NaN, or weights that a model does not build.

    Keras does not read weights that the model does not build. Files that Keras reads in another
    way are not checked: files at an address, and the formats of earlier versions.

    Args:
        model: The model, which is not changed.
        filepath: A `.weights.h5`, the `.weights.json` of several such files, or a `.keras`.
        skip_mismatch: bool. Whether the file may have other weights. Defaults to `False`.
        objects_to_skip: Layers and other parts of the model that the file does not contain.
            Defaults to none.
    """
    found = {}
    for file, path in _open_files(Path(filepath)):
        for name, weights in _weights_in(file).items():
            found[name] = _describe(weights)
            if not _is_finite(weights, path):
                raise ValueError(
                    f"The weights in `{filepath}` must be finite. Received: NaN or infinite "
                    f"numbers in {name} {found[name]}. Use a file from before the training "
                    "diverged, or copy or download the file again."
                )
    # The paths take longer. If the file has as many weights as the model, the file has no others,
    # because Keras raises an error for each weight that it does not find.
    if skip_mismatch or len(found) == _number_of_weights(model, objects_to_skip):
        return
    extra = sorted(found.keys() - saved_paths(model, objects_to_skip))
    if extra:
        names = ", ".join(f"{name} {found[name]}" for name in extra[:3])
        raise ValueError(
            f"`{filepath}` holds weights that the configuration does not build. Received: "
            f"{len(extra)} such weights: {names}{', ...' if extra[3:] else ''}. Load it into a "
            "model with the arguments of the model that was saved. In a preset, these are in "
            "config.json. To leave the weights out, pass `skip_mismatch=True` to `load_weights`."
        )


def _number_of_weights(model: keras.Model, objects_to_skip: Collection[Any]) -> int:
    """Return how many weights Keras writes for all layers of a model."""
    skipped = {id(each) for each in objects_to_skip}
    number = 0
    for layer in flatten_layers(model):
        if id(layer) not in skipped:
            own: dict[str, Any] = {}
            layer.save_own_variables(own)
            number += len(own)
    return number


def _open_files(path: Path) -> Iterator[tuple[h5py.File, Path | None]]:
    """Yield each open file, and its path if its weights can be read in place."""
    if not path.is_file():
        return
    if path.suffix == ".keras":
        with (
            zipfile.ZipFile(path) as archive,
            archive.open("model.weights.h5") as stream,
            h5py.File(stream, "r") as file,
        ):
            yield file, None
    elif path.name.endswith(("weights.h5", "weights.json")):
        for each in [path] if path.suffix == ".h5" else _shards(path):
            with h5py.File(each, "r") as file:
                yield file, each


def _shards(path: Path) -> list[Path]:
    """Return the paths of the files that a `.weights.json` lists."""
    names: set[str] = set()
    for listed in json.loads(path.read_text(encoding="utf-8"))["weight_map"].values():
        names.update([listed] if isinstance(listed, str) else listed)
    return [path.with_name(name) for name in sorted(names)]


def _weights_in(file: h5py.File) -> dict[str, h5py.Dataset]:
    found = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not name.startswith(_NOT_WEIGHTS):
            found[name] = item

    file.visititems(collect)
    return found


def _describe(weights: h5py.Dataset) -> str:
    # Paths count the layers of a class. Keras writes their names here, but not in every file of
    # several.
    layer = weights.parent.attrs.get("name")
    return f"(shape {weights.shape}{'' if layer is None else f', layer {layer!r}'})"


def _is_finite(weights: h5py.Dataset, path: Path | None) -> bool:
    dtype = "bfloat16" if weights.attrs.get("dtype") == "bfloat16" else weights.dtype.name
    # Keras refuses compressed weights that need far more memory than their file.
    if dtype not in _EXPONENTS or weights.nbytes > 1000 * weights.id.get_storage_size():
        return True
    bits = np.dtype(f"uint{8 * weights.dtype.itemsize}")
    offset = weights.id.get_offset()
    if path is None or offset is None:
        values = np.asarray(weights[()]).reshape(-1).view(bits)
    else:
        # Much quicker than h5py, which copies the values.
        values = np.memmap(path, bits, mode="r", offset=offset, shape=weights.size)
    exponent = bits.type(_EXPONENTS[dtype])
    blocks = range(0, values.size, _BLOCK)
    return all(np.max(values[i : i + _BLOCK] & exponent) < exponent for i in blocks)
