"""A folder of checkpoints. Each is one file, which is complete or absent."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

# The key of the values of an array in JSON.
_ARRAY = "__array__"


class CheckpointFolder:
    """The last checkpoints of a training.

    Args:
        folder: Path of the folder.
        keep: int. Number of checkpoints to keep.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int) -> None:
        self.folder = Path(folder)
        self.keep = keep

    def files(self) -> list[Path]:
        """Return the files of all checkpoints, from old to new."""
        return sorted(self.folder.glob("step_*.npz"))

    def write(self, step: int, state: Any, arrays: dict[str, np.ndarray]) -> None:
        """Write a checkpoint, and then delete the oldest ones and damaged ones.

        Args:
            step: int. Number of the step, which names the file.
            state: Values for JSON, and arrays of numbers.
            arrays: Arrays of any dtype.

        Raises:
            OSError: If the file cannot be written. The earlier checkpoints remain.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / "unfinished"
        try:
            with unfinished.open("wb") as file:
                np.savez(file, state=_bytes_of(state), **{k: _plain(v) for k, v in arrays.items()})
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

    def read(self) -> tuple[Any, dict[str, np.ndarray]] | None:
        """Return the newest checkpoint that is complete, or `None` if there are no files.

        Raises:
            ValueError: If no file is complete.
        """
        files = self.files()
        for path in reversed(files):
            try:
                # NumPy compares the checksum of each array that it reads.
                with np.load(path, allow_pickle=False) as file:
                    arrays = {name: file[name] for name in file.files}
                state = arrays.pop("state").tobytes()
                return json.loads(state, object_hook=_array_of), arrays
            # Damaged bytes may raise any error in NumPy and `zipfile`.
            except Exception as error:
                warnings.warn(f"{path} is damaged and is skipped: {error}", stacklevel=2)
        if not files:
            return None
        raise ValueError(
            f"`folder` has no checkpoint that can be read. Received: folder={str(self.folder)!r} "
            f"with {len(files)} damaged files. Delete them to start the training again."
        )


def _bytes_of(state):
    return np.frombuffer(json.dumps(state, default=_values_of_array).encode(), dtype="uint8")


def _values_of_array(array):
    """Return an array for JSON. Metrics such as the F1 score of each class are arrays."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"A checkpoint holds numbers, texts and arrays. Received: {array!r}")
    return {_ARRAY: array.tolist(), "dtype": array.dtype.name}


def _array_of(values):
    # An array without axes becomes a number.
    return np.array(values[_ARRAY], values["dtype"])[()] if _ARRAY in values else values


def _plain(array):
    """Return an array of bytes for a dtype that NumPy's files do not know, such as bfloat16."""
    if array.dtype.kind != "V":
        return array
    return np.ascontiguousarray(array).reshape(-1).view("uint8")
