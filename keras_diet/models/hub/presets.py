"""Presets: folders that appear whole or not at all."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What each part of a preset writes. A task also writes its backbone and its preprocessor.
_MODEL = ("model*.weights.h5", "model.weights.json", "task.json", "task.weights.h5")
_PREPROCESSOR = ("preprocessor.json", "tokenizer.json", "assets/tokenizer/*")
_CONFIG = Path("config.json")
_UNFINISHED = ".unfinished-"
# The names of the files that a preset removes. A temporary folder with this list is complete.
_REMOVED = Path(".removed.json")


def is_hugging_face_folder(source: Any) -> bool:
    """Return whether `source` is a local folder with a `config.json` that is not KerasHub's."""
    if not isinstance(source, (str, os.PathLike)) or not (Path(source) / _CONFIG).is_file():
        return False
    # Only KerasHub's configurations name a class.
    return "registered_name" not in json.loads((Path(source) / _CONFIG).read_text("utf-8"))


@contextlib.contextmanager
def whole_preset(preset_dir: str | os.PathLike[str]) -> Iterator[str]:
    """Give a temporary folder for a preset, and move its files to `preset_dir` at the end.

    After an error, `preset_dir` keeps the preset that it had. Otherwise the files of that preset
    that were not written again are removed: its weights and its task, and the preprocessor if it
    was saved with a task. A preprocessor that was saved alone stays, and other files stay.

    A process may end while the files are moved. Then the next one moves the others.

    Args:
        preset_dir: The folder. The temporary folder lies in it, so that each file is moved in one
            step, even if the folder is the mount of a disk.
    """
    preset_dir = Path(preset_dir)
    if preset_dir.name.startswith(_UNFINISHED):
        # A task saves its backbone into the same folder.
        yield str(preset_dir)
        return
    preset_dir.mkdir(parents=True, exist_ok=True)
    finish_replacing(preset_dir)
    for file in preset_dir.glob(f"{_UNFINISHED}*/{_REMOVED}"):
        # What a process left that ended before or after it moved files.
        shutil.rmtree(file.parent)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=preset_dir))
    try:
        yield str(unfinished)
        removed = [str(file) for file in _old_files(preset_dir) - _files(unfinished)]
        (unfinished / _REMOVED).write_text(json.dumps(removed), "utf-8")
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    # Without its config.json, a folder does not load. So files of two presets never load together.
    (preset_dir / _CONFIG).unlink(missing_ok=True)
    _move_files(unfinished, preset_dir)


def finish_replacing(preset_dir: str | os.PathLike[str]) -> None:
    """Move the files of a complete preset whose process ended before it had moved all of them.

    Another process may do the same. A folder that has its config.json is not changed.
    """
    target = Path(preset_dir)
    if not (target / _CONFIG).exists():
        for file in target.glob(f"{_UNFINISHED}*/{_REMOVED}"):
            _move_files(file.parent, target)


def _old_files(target):
    """Return the files of the preset in a folder."""
    task = target / "task.json"
    config = json.loads(task.read_text("utf-8"))["config"] if task.exists() else {}
    patterns = _MODEL + _PREPROCESSOR if config.get("preprocessor") else _MODEL
    return {file.relative_to(target) for pattern in patterns for file in target.glob(pattern)}


def _files(folder):
    return {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()}


def _move_files(source, target):
    """Move a complete preset to its place. Its config.json comes last."""
    for name in json.loads((source / _REMOVED).read_text("utf-8")):
        (target / name).unlink(missing_ok=True)
    for file in sorted(_files(source) - {_REMOVED}, key=_CONFIG.__eq__):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        # Another process may have moved it.
        with contextlib.suppress(FileNotFoundError):
            os.replace(source / file, target / file)
    shutil.rmtree(source, ignore_errors=True)
