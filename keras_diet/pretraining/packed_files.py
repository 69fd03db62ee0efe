"""Files of packed sequences, which may be larger than memory: one `.npy` file, or many shards."""

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np
from tqdm import tqdm

from keras_diet.pretraining.packing import pack_sentences
from keras_diet.pretraining.text import read_documents

# The description of shards. A folder with this file is complete.
METADATA = "metadata.json"


def write_packed(
    sequences: Iterable[Any],
    path: str | os.PathLike[str],
    sequence_length: int,
    vocabulary_size: int | None = None,
    show_progress: bool = True,
) -> int:
    """Write sequences of one length to a `.npy` file, one at a time.

    The file has a temporary name beside `path` until it is complete. An interrupted run therefore
    leaves no file that looks finished. `np.load(path, mmap_mode="r")` opens the file without
    loading it into memory.

    Args:
        sequences: Iterable of integer arrays of shape `(sequence_length,)`, such as the result of
            `pack_sentences`. It may be a generator.
        path: str or path. The file to write. An existing file is replaced.
        sequence_length: int. Number of tokens in a sequence.
        vocabulary_size: int or `None`. If given, token ids must be smaller. For a vocabulary of
            up to 65,536 tokens the file is uint16, which takes half the space of int32. Defaults
            to `None`, which means int32.
        show_progress: bool. Whether to show a progress bar. Defaults to `True`.

    Returns:
        The number of sequences in the file.

    Raises:
        ValueError: If there is not a single sequence, or if a sequence has another shape, is not an
            integer array or has a token id out of range.
        OSError: If the folder of `path` does not exist.

    Example:

    ```python
    sequences = (np.array([2, i, 3]) for i in range(5, 9))
    keras_diet.pretraining.write_packed(sequences, "tokens.npy", sequence_length=3)  # 4
    np.load("tokens.npy", mmap_mode="r").shape  # (4, 3)
    ```
    """
    dtype, limit = storage(vocabulary_size)
    sequences = tqdm(sequences, "Writing", unit=" sequences", disable=not show_progress)
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": (0, sequence_length)}
        np.lib.format.write_array_header_1_0(file, header)
        count = 0
        for sequence in sequences:
            file.write(row_of(sequence, sequence_length, dtype, limit))
            count += 1
        if count == 0:
            raise ValueError("`sequences` must contain at least one sequence. Received: none")
        # NumPy pads the header, so the final number of rows fits into the same space.
        file.seek(0)
        header["shape"] = (count, sequence_length)
        np.lib.format.write_array_header_1_0(file, header)
    return count


def pack_text_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    tokenizer: Any,
    sequence_length: int,
    output_path: str | os.PathLike[str],
    show_progress: bool = True,
    document_masks: bool = False,
) -> np.memmap:
    """Tokenize and pack text files into one `.npy` file of token ids, ready for training.

    The function combines `read_documents`, `pack_sentences` and `write_packed`. It streams the
    text, so the files may be larger than memory.

    Args:
        paths: str, path or iterable of them. UTF-8 text files.
        tokenizer: A `keras_hub.models.BertTokenizer`, or another tokenizer that `pack_sentences`
            accepts.
        sequence_length: int. Number of tokens in a sequence, at least 3.
        output_path: str or path. The file to write. An existing file is replaced.
        show_progress: bool. Whether to show a progress bar. Defaults to `True`.
        document_masks: bool. As in `pack_sentences`. Defaults to `False`.

    Returns:
        Read-only `np.memmap` of shape `(number of sequences, sequence_length)`. It is uint16 if
        the vocabulary has up to 65,536 tokens, otherwise int32.

    Raises:
        ValueError: If one of the three functions raises it.

    Example:

    ```python
    from pathlib import Path

    Path("corpus.txt").write_text("One ran. Two ran.\\n\\nTwo.\\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "ran", "."]
    tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
    token_ids = keras_diet.pretraining.pack_text_files("corpus.txt", tokenizer, 8, "tokens.npy")
    token_ids.shape  # (2, 8)
    ```
    """
    documents = read_documents(paths)
    sequences = pack_sentences(documents, tokenizer, sequence_length, document_masks)
    vocabulary_size = tokenizer.vocabulary_size()
    write_packed(sequences, output_path, sequence_length, vocabulary_size, show_progress)
    return np.load(output_path, mmap_mode="r")


def storage(vocabulary_size: int | None) -> tuple[np.dtype, int]:
    """Return the dtype of token ids in files, and the number that they must be below."""
    if vocabulary_size is None:
        return np.dtype("int32"), 2**31
    return np.dtype("uint16" if vocabulary_size <= 2**16 else "int32"), vocabulary_size


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a name for a new file, which gets the name `path` when it is complete."""
    path = Path(path)
    unfinished = path.with_name(f"unfinished-{uuid.uuid4().hex}{path.suffix}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def row_of(sequence: Any, length: int, dtype: np.dtype, limit: int) -> bytes:
    """Return a sequence as bytes, or raise a `ValueError` if it has another form."""
    row = np.asarray(sequence)
    is_row = row.shape == (length,) and row.dtype.kind in "iu"
    if not is_row or row.min() < 0 or row.max() >= limit:
        raise ValueError(
            f"`sequences` must be integer arrays of shape ({length},), from 0 to {limit - 1}. "
            f"Received: shape={row.shape}, dtype={row.dtype}, {row!r:.100}"
        )
    return row.astype(dtype).tobytes()


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
        path = Path(folder) / METADATA
        if not path.is_file():
            raise ValueError(
                f"`folder` must be complete. Received: `{folder}`, without {METADATA}. Run "
                "`pack_with_beam` again with the same arguments. It keeps the finished files."
            )
        metadata = json.loads(path.read_text(encoding="utf-8"))
        files = [(name, count) for name, count in metadata["files"] if count]
        if process_index not in range(process_count) or process_count > len(files):
            raise ValueError(
                "`process_index` must be from 0 to `process_count - 1`, and each process needs a "
                f"file with text. Received: process_index={process_index!r}, process_count="
                f"{process_count}, and {len(files)} such files in `{folder}`."
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
        every = range(len(self))
        # A range takes negative numbers, and refuses those of rows that do not exist.
        indices = np.asarray(every[rows] if isinstance(rows, slice) else rows)
        flat = [every[i] for i in indices.reshape(-1).tolist()]
        # ArrayRecord cannot read an empty list.
        records = self._records.__getitems__(flat) if flat else []
        sequences = np.frombuffer(b"".join(records), self.dtype)
        return sequences.reshape(*indices.shape, self.shape[1])
