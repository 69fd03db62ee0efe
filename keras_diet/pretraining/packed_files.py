"""Files of packed sequences, which are read without loading them into memory."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from keras_diet import validation
from keras_diet.pretraining.packing import pack_sentences
from keras_diet.pretraining.text import checked_iterable, read_documents


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
        ValueError: If there is not a single sequence, if a sequence has another shape, is not an
            integer array or has a token id out of range, or if the folder of `path` does not
            exist.

    Example:

    ```python
    sequences = (np.array([2, i, 3]) for i in range(5, 9))
    keras_diet.pretraining.write_packed(sequences, "tokens.npy", sequence_length=3)  # 4
    np.load("tokens.npy", mmap_mode="r").shape  # (4, 3)
    ```
    """
    sequence_length = validation.positive_int("sequence_length", sequence_length)
    dtype, limit = storage(vocabulary_size)
    sequences = tqdm(
        checked_iterable("sequences", sequences),
        "Writing",
        unit=" sequences",
        disable=not show_progress,
    )
    with _replacing(path) as file:
        _write_header(file, dtype, 0, sequence_length)
        start, count = file.tell(), 0
        for sequence in sequences:
            file.write(row_of(sequence, sequence_length, dtype, limit))
            count += 1
        if count == 0:
            raise ValueError("`sequences` must contain at least one sequence. Received: none")
        # NumPy pads the header, so the final number of rows fits into the same space.
        file.seek(0)
        _write_header(file, dtype, count, sequence_length)
        if file.tell() != start:
            raise RuntimeError(
                f"The header must have {start} bytes. Received: {file.tell()}. Use another NumPy."
            )
    return count


def pack_text_files(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    tokenizer: Any,
    sequence_length: int,
    output_path: str | os.PathLike[str],
    show_progress: bool = True,
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
    sequences = pack_sentences(read_documents(paths), tokenizer, sequence_length)
    vocabulary_size = tokenizer.vocabulary_size()
    write_packed(sequences, output_path, sequence_length, vocabulary_size, show_progress)
    return np.load(output_path, mmap_mode="r")


def storage(vocabulary_size: int | None) -> tuple[np.dtype, int]:
    """Return the dtype of token ids in files, and the number that they must be below."""
    if vocabulary_size is None:
        return np.dtype("int32"), 2**31
    vocabulary_size = validation.positive_int("vocabulary_size", vocabulary_size)
    return np.dtype("uint16" if vocabulary_size <= 2**16 else "int32"), vocabulary_size


@contextlib.contextmanager
def _replacing(path):
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(
            f"The output path must be a string or a path. Received: {path!r}. Pass a file name."
        )
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(
            f"The output path must be a file in an existing folder. Received: {str(path)!r}"
        )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_header(file, dtype, count, length):
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": (count, length),
    }
    np.lib.format.write_array_header_1_0(file, header)


def row_of(sequence: Any, length: int, dtype: np.dtype, limit: int) -> bytes:
    """Return a sequence as bytes, or raise a `ValueError` if it has another form."""
    row = np.asarray(sequence)
    if row.shape != (length,) or row.dtype.kind not in "iu":
        raise ValueError(
            f"`sequences` must contain integer arrays of shape ({length},). "
            f"Received: shape={row.shape}, dtype={row.dtype}"
        )
    if row.min() < 0 or row.max() >= limit:
        raise ValueError(
            f"`sequences` must contain token ids in [0, {limit}). "
            f"Received: ids from {row.min()} to {row.max()}"
        )
    return row.astype(dtype).tobytes()
