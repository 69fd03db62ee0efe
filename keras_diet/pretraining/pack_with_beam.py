"""Text files to packed sequences on many workers, with Apache Beam."""

import functools
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras

from keras_diet.pretraining.packed_files import METADATA, PackedShards, replacing, row_of, storage
from keras_diet.pretraining.packing import pack_sentences
from keras_diet.pretraining.text import file_documents, readable_files

_TOKENIZER = "tokenizer"
_CONFIG = "config.json"
_SETTINGS = "settings.json"
# One sequence can be read without its neighbours.
_WRITER_OPTIONS = "group_size:1"


def pack_with_beam(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    tokenizer: Any,
    sequence_length: int,
    output_dir: str | os.PathLike[str],
    options: Any = None,
    document_masks: bool = False,
) -> PackedShards:
    """Tokenize and pack text files with Apache Beam, for text that one machine cannot handle.

    Each text file becomes one ArrayRecord file with the sequences of `pack_sentences` for this
    file alone, in their order: `tokens-00002-of-00030.arrayrecord` belongs to the third path. So a
    sequence never spans two text files. The number of workers does not change the files.

    A worker writes a file under a temporary name, and renames it when it is complete. If a worker
    fails, nothing is lost or doubled. The runner decides whether another worker packs the text
    file, or whether the call raises the error. After an error or an interruption, call the function
    again with the same arguments. It keeps the finished files.

    All workers must see the text files and `output_dir` under the same names, for example in a
    shared file system or a mounted bucket.

    Args:
        paths: str, path or iterable of them. UTF-8 text files, as for `read_documents`. Text that
            is in few large files should be split before, because a file is the part of a worker.
        tokenizer: A KerasHub tokenizer that `pack_sentences` accepts. The workers load a copy of it
            from `output_dir`.
        sequence_length: int. Number of tokens in a sequence, at least 3.
        output_dir: str or path. A folder for the files. It is made if it does not exist.
        options: `apache_beam.options.pipeline_options.PipelineOptions`, which choose the runner and
            its workers. Defaults to `None`, which means Beam's own defaults: the runner for one
            machine.
        document_masks: bool. As in `pack_sentences`. Defaults to `False`.

    Returns:
        `PackedShards` of the files.

    Raises:
        ImportError: If Apache Beam is not installed (`pip install ".[beam]"` in a clone).
        OSError: If a path is not a file.
        ValueError: If `output_dir` holds sequences of other arguments, or of files that have
            changed since, if all files are empty, or for the errors of `pack_sentences`.

    Example:

    ```python
    from pathlib import Path

    Path("a.txt").write_text("One ran. Two ran.\\n\\nTwo.\\n")
    Path("b.txt").write_text("Two.\\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "ran", "."]
    tokenizer = keras_diet.models.DietBertTokenizer(vocabulary, lowercase=True)
    sequences = keras_diet.pretraining.pack_with_beam(["a.txt", "b.txt"], tokenizer, 8, "packed")
    sequences[0]  # [CLS] one ran . two ran . [SEP]
    ```

    References:
     - [Apache Beam](https://beam.apache.org)
    """
    import apache_beam as beam

    paths = [str(path) for path in readable_files(paths)]
    # It raises the errors of the arguments before any worker starts.
    pack_sentences([], tokenizer, sequence_length)
    folder = Path(output_dir)
    digest = _claim(folder, paths, tokenizer, sequence_length, document_masks)
    names = _shard_names(len(paths))
    write = functools.partial(
        _write_shard,
        folder=str(folder),
        digest=digest,
        sequence_length=sequence_length,
        document_masks=document_masks,
    )
    finish = functools.partial(
        _write_metadata,
        folder=str(folder),
        sequence_length=sequence_length,
        dtype=storage(tokenizer.vocabulary_size())[0].name,
    )
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | "Text files" >> beam.Create(list(zip(paths, names, strict=True)))
            | "Share them out" >> beam.Reshuffle()
            | "Pack each file" >> beam.Map(write)
            | "Wait for all" >> beam.combiners.ToList()
            | "Describe them" >> beam.Map(finish)
        )
    return PackedShards(folder)


def _claim(folder, paths, tokenizer, sequence_length, document_masks):
    """Save the tokenizer for the workers, or check that the folder belongs to this call.

    Returns:
        A hash of the tokenizer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"unfinished-{uuid.uuid4().hex}"
    unfinished.mkdir()
    config = keras.saving.serialize_keras_object(tokenizer)
    (unfinished / _CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")
    tokenizer.save_assets(str(unfinished))
    settings = {
        "paths": [[path, os.path.getsize(path), os.stat(path).st_mtime_ns] for path in paths],
        "sequence_length": sequence_length,
        "document_masks": document_masks,
        "tokenizer": _digest(unfinished),
    }
    file = folder / _SETTINGS
    if not file.exists():
        # An interrupted call may have left it.
        shutil.rmtree(folder / _TOKENIZER, ignore_errors=True)
        unfinished.rename(folder / _TOKENIZER)
        _write_text(file, json.dumps(settings, indent=2))
        return settings["tokenizer"]
    shutil.rmtree(unfinished)
    earlier = json.loads(file.read_text(encoding="utf-8"))
    changed = [name for name in settings if earlier[name] != settings[name]]
    if changed:
        raise ValueError(
            "`output_dir` must be empty, or hold the files of an earlier call with the same "
            f"arguments. Received: `{folder}`, which has other values of: {', '.join(changed)}. "
            "Choose another folder."
        )
    # Workers that were killed have left them.
    for file in folder.glob("unfinished-*.arrayrecord"):
        file.unlink()
    return settings["tokenizer"]


def _shard_names(count):
    """Return the names of the files. All numbers have the same length, so the names sort."""
    digits = max(5, len(str(count)))
    return [f"tokens-{i:0{digits}}-of-{count:0{digits}}.arrayrecord" for i in range(count)]


def _digest(folder):
    """Return a hash of the files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


# === On a worker ===


@functools.lru_cache(maxsize=1)
def _tokenizer(folder, digest):
    """Return the tokenizer. Its hash is a key of the cache: the folder may hold another later."""
    config = json.loads((Path(folder) / _CONFIG).read_text(encoding="utf-8"))
    tokenizer = keras.saving.deserialize_keras_object(config)
    tokenizer.load_assets(folder)
    return tokenizer


def _write_shard(
    file: tuple[str, str], folder: str, digest: str, sequence_length: int, document_masks: bool
) -> tuple[str, int]:
    """Pack a text file, and return the name of its shard and the number of sequences."""
    from array_record.python import array_record_module as array_record

    path, name = file
    target = Path(folder) / name
    if target.exists():
        return name, array_record.ArrayRecordReader(str(target)).num_records()
    tokenizer = _tokenizer(str(Path(folder) / _TOKENIZER), digest)
    dtype, limit = storage(tokenizer.vocabulary_size())
    # Beam may run a file twice at the same time, so each run has its own file.
    with replacing(target) as unfinished:
        writer, count = array_record.ArrayRecordWriter(str(unfinished), _WRITER_OPTIONS), 0
        documents = file_documents(path)
        for sequence in pack_sentences(documents, tokenizer, sequence_length, document_masks):
            writer.write(row_of(sequence, sequence_length, dtype, limit))
            count += 1
        writer.close()
    return name, count


def _write_metadata(
    files: list[tuple[str, int]], folder: str, sequence_length: int, dtype: str
) -> None:
    """Describe the shards. A folder with this description is complete."""
    metadata = {"sequence_length": sequence_length, "dtype": dtype, "files": sorted(files)}
    _write_text(Path(folder) / METADATA, json.dumps(metadata, indent=2))


def _write_text(path, text):
    with replacing(path) as unfinished:
        unfinished.write_text(text + "\n", encoding="utf-8")
