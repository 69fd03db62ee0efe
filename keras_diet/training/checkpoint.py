"""Checkpoints: the values of all variables of a training, and files that are complete or absent."""

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np

from keras_diet._compat import global_seed

# A second model of a process has other numbers in its names.
_NUMBERS = re.compile(r"_\d+(?=[_/\"]|$)")

Arrays = dict[str, np.ndarray]


class CheckpointFolder:
    """The last checkpoints of a training, in a folder that is made if it does not exist.

    Args:
        folder: Path of the folder.
        keep: int. Number of checkpoints to keep.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.keep = keep

    def files(self) -> list[Path]:
        """Return the files of all checkpoints, from old to new."""
        return sorted(self.folder.glob("step_*.npz"))

    def write(self, step: int, state: Any, arrays: Arrays) -> None:
        """Write a checkpoint, and then delete the oldest ones and damaged ones.

        Args:
            step: int. Number of the step, which names the file.
            state: Values for JSON.
            arrays: Arrays of any dtype.

        Raises:
            OSError: If the file cannot be written. The earlier checkpoints remain.
        """
        unfinished = self.folder / "unfinished"
        text = np.frombuffer(json.dumps(state).encode(), "uint8")
        content: dict[str, Any] = {"state": text, **arrays}
        try:
            with unfinished.open("wb") as file:
                np.savez(file, **content)
                file.flush()
                os.fsync(file.fileno())
            # A file appears under its name when it is complete.
            path = self.folder / f"step_{step:012d}.npz"
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        files = self.files()
        place = files.index(path) + 1
        # A training continues after the newest complete file, so later files are damaged.
        for other in [*files[: max(0, place - self.keep)], *files[place:]]:
            other.unlink()

    def read(self) -> tuple[Any, Arrays] | None:
        """Return the newest checkpoint that is complete, or `None` without files.

        Raises:
            ValueError: If no file is complete.
        """
        files = self.files()
        for path in reversed(files):
            try:
                # NumPy compares the checksum of each array that it reads.
                with np.load(path, allow_pickle=False) as file:
                    arrays = {name: file[name] for name in file.files}
                return json.loads(arrays.pop("state").tobytes()), arrays
            # Damaged bytes may raise any error in NumPy and `zipfile`.
            except Exception as error:
                warnings.warn(f"{path} is damaged and is skipped: {error}", stacklevel=2)
        if not files:
            return None
        raise ValueError(
            f"`folder` has no checkpoint that can be read. Received: folder={str(self.folder)!r} "
            f"with {len(files)} damaged files. Delete them to start the training again."
        )


# === The variables of a training ===


def values_of(model: keras.Model) -> tuple[Arrays, Arrays]:
    """Return the values of all variables. A variable may have a value on each device.

    Returns:
        The weights and the optimizers, which all processes share; and the other values, such as
        states of seed generators and metrics.
    """
    shared_by_all = {id(each) for each in model.trainable_variables}
    for optimizer in _optimizers_of(model).values():
        shared_by_all |= {id(each) for each in optimizer.variables}
    shared: Arrays = {}
    own: Arrays = {}
    for number, variable in enumerate(_variables_of(model)):
        values = shared if id(variable) in shared_by_all else own
        for device, value in enumerate(_values_on_devices(variable)):
            values[f"{number}_{device}"] = np.asarray(keras.ops.convert_to_numpy(value))
    return shared, own


def restore_values(model: keras.Model, values: Arrays) -> None:
    """Set what `values_of` returned, both dictionaries in one."""
    for number, variable in enumerate(_variables_of(model)):
        replicas = _values_on_devices(variable)
        for device, replica in enumerate(replicas):
            value = values[f"{number}_{device}"]
            if value.dtype.kind == "V":
                # Files of NumPy do not know dtypes such as bfloat16.
                value = value.view(getattr(ml_dtypes, variable.dtype))
            (variable if len(replicas) == 1 else replica).assign(value)


def description_of(model: keras.Model) -> dict[str, Any]:
    """Return the shapes of all variables, by their numbers and names."""
    shapes = {}
    for number, variable in enumerate(_variables_of(model)):
        name = _NUMBERS.sub("", variable.name)
        shapes[f"shape of variable {number} ({name})"] = str(tuple(variable.shape))
    return shapes


def optimizer_settings(model: keras.Model) -> dict[str, Any]:
    """Return the class and the settings of each optimizer, by its name in the model."""
    settings: dict[str, Any] = {}
    for attribute, optimizer in _optimizers_of(model).items():
        config = keras.saving.serialize_keras_object(optimizer)
        settings[attribute] = config["class_name"]
        for name, value in config["config"].items():
            if name != "name":
                text = json.dumps(value, default=str)
                settings[f"{attribute}.{name}"] = _NUMBERS.sub("", text)
    return settings


def _optimizers_of(model):
    """Return the optimizer of `compile` and other attributes that are optimizers, by name."""
    optimizer = keras.optimizers.Optimizer
    others = {name: each for name, each in vars(model).items() if isinstance(each, optimizer)}
    return {"optimizer": model.optimizer, **others}


def _variables_of(model):
    """Return the weights, the states of seed generators, the optimizers and the metrics."""
    found = [*model.variables]
    for optimizer in _optimizers_of(model).values():
        found += optimizer.variables
    found += [*model.metrics_variables, global_seed()]
    return list({id(variable): variable for variable in found}.values())


def _values_on_devices(variable):
    """Return the value, or the variables of all replicas of `tf.distribute`."""
    value = variable.value
    if keras.config.backend() != "tensorflow":
        return [value]
    # Metrics have another value on each replica. Reading such a variable would add them up.
    return list(getattr(value, "values", [value]))
