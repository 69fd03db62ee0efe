"""What data must be able to do for a training that can begin at any batch."""

import zlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops


class Source:
    """Data that can tell its batches from any batch on.

    Attributes:
        num_batches: int or `None`. Number of batches in a pass over the data, if it is known.
        size_of_batches: int or `None`. Number of examples in a batch, if all batches have the same.
    """

    num_batches: int | None = None
    size_of_batches: int | None = None

    def facts(self) -> dict[str, Any]:
        """Return what must be the same when the training continues."""
        raise NotImplementedError

    def read(self, seed: int, pass_number: int, start: int) -> Iterator[Any]:
        """Yield the batches of a pass over the data, from batch `start` on."""
        raise NotImplementedError

    def has_ended(self, pass_number: int, index: int) -> bool:
        """Return whether a pass has no batches left after its first `index` batches."""
        return self.num_batches is not None and index >= self.num_batches

    def state(self, pass_number: int, index: int) -> str | None:
        """Return what `read` needs to start at a batch, in addition to its number."""
        return None

    def set_state(self, pass_number: int, index: int, state: str) -> None:
        """Take what `state` returned in an earlier process."""


def facts_of_batch(batch: Any) -> dict[str, Any]:
    """Return what must be the same of the first batch when a training continues."""
    return {"batch_size": size_of(batch), "first batch": checksum(batch)}


def size_of(batch: Any) -> int | None:
    """Return the number of examples in a batch."""
    sizes = [len(leaf) for leaf in keras.tree.flatten(batch) if np.ndim(leaf)]
    return sizes[0] if sizes else None


def checksum(batch: Any) -> str:
    """Return a number that other data, another order or another seed would change."""
    value = 0
    for leaf in keras.tree.flatten(batch):
        array = as_array(leaf)
        is_text = array.dtype.kind in "OUS"
        data: Any = repr(array.tolist()).encode() if is_text else np.ascontiguousarray(array)
        value = zlib.crc32(data, value)
    return f"checksum {value:08x}"


def as_array(leaf: Any) -> np.ndarray:
    """Return numbers or texts as an array, and an array itself."""
    # NumPy cannot read tensors that are on a GPU, or that record gradients.
    return ops.convert_to_numpy(leaf) if ops.is_tensor(leaf) else np.asarray(leaf)
