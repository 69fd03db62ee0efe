"""Packed sequences in several ArrayRecord files, which are read like one array."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np

from keras_diet import validation

METADATA = "metadata.json"


class PackedShards:
    """Sequences of token ids in the files that `pack_with_beam` writes, as one read-only array.

    `masked_lm_dataset` takes it in place of a NumPy array. The sequences of the first file come
    first. They are read when they are needed, so the files may be larger than memory.

    If several processes train, each one may read its own files: process `p` of `n` reads the files
    `p`, `p + n`, `p + 2n` and so on. The processes may get different numbers of sequences. Then
    repeat the dataset and give `fit` the number of steps, because all processes must take the same
    number.

    Args:
        folder: str or path. The folder that `pack_with_beam` wrote.
        process_index: int. The number of this process, from 0. Defaults to `0`.
        process_count: int. The number of processes. Defaults to `1`.

    Attributes:
        shape: `(number of sequences, sequence_length)`.
        dtype: `uint16` if the vocabulary has up to 65,536 tokens, otherwise `int32`.

    Raises:
        ValueError: If the folder is not complete, if `process_index` is not below `process_count`,
            or if there are fewer files with text than processes.

    Example:

    ```python
    from pathlib import Path

    Path("a.txt").write_text("One ran. Two ran.\\n\\nTwo.\\n")
    Path("b.txt").write_text("Two.\\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "ran", "."]
    tokenizer = keras_diet.models.DietBertTokenizer(vocabulary, lowercase=True)
    keras_diet.pretraining.pack_with_beam(["a.txt", "b.txt"], tokenizer, 8, "packed")
    sequences = keras_diet.pretraining.PackedShards("packed")
    sequences.shape  # (3, 8)
    dataset = keras_diet.pretraining.masked_lm_dataset(sequences, tokenizer, batch_size=2)
    ```

    References:
     - [ArrayRecord](https://github.com/google/array_record)
    """

    def __init__(
        self, folder: str | os.PathLike[str], process_index: int = 0, process_count: int = 1
    ) -> None:
        validation.positive_int("process_count", process_count)
        if process_index not in range(process_count):
            raise ValueError(
                "`process_index` must be an integer from 0 to `process_count - 1`. Received: "
                f"process_index={process_index!r}, process_count={process_count}."
            )
        metadata = read_metadata(folder)
        files = [(name, count) for name, count in metadata["files"] if count]
        if process_count > len(files):
            raise ValueError(
                "`process_count` must be at most the number of files with text. Received: "
                f"process_count={process_count}, and {len(files)} such files in `{folder}`. Use "
                "fewer processes, or pack the text from more files."
            )
        names, counts = zip(*files[process_index::process_count], strict=True)
        self.dtype = np.dtype(metadata["dtype"])
        self.shape = (sum(counts), metadata["sequence_length"])
        self._records = grain.sources.ArrayRecordDataSource(
            [str(Path(folder) / name) for name in names]
        )

    def __len__(self) -> int:
        """Return the number of sequences."""
        return self.shape[0]

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the sequences of some rows, as a NumPy array."""
        indices = self._indices(rows)
        # ArrayRecord cannot read an empty list.
        records = self._records.__getitems__(indices.reshape(-1).tolist()) if indices.size else []
        sequences = np.frombuffer(b"".join(records), self.dtype)
        return sequences.reshape(*indices.shape, self.shape[1])

    def _indices(self, rows):
        """Return the numbers of some rows, without an array of all rows."""
        if isinstance(rows, slice):
            return np.asarray(range(len(self))[rows], dtype="int64")
        indices = np.asarray(rows)
        if indices.dtype == bool or np.any((indices < -len(self)) | (indices >= len(self))):
            raise IndexError(
                f"Rows must be integers from {-len(self)} to {len(self) - 1}. Received: {rows!r}."
            )
        return indices.astype("int64") % len(self)


def read_metadata(folder: Any) -> dict[str, Any]:
    """Return the description of the files in a folder.

    Args:
        folder: A folder that `pack_with_beam` wrote.

    Raises:
        ValueError: If the folder has no description, because packing has not finished.
    """
    path = Path(folder) / METADATA
    if not path.is_file():
        raise ValueError(
            f"`folder` must be complete. Received: `{folder}`, which has no {METADATA}. Run "
            "`pack_with_beam` again with the same arguments. It keeps the files that are finished."
        )
    return json.loads(path.read_text(encoding="utf-8"))
