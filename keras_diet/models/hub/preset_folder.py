"""Saving a preset so that it is never half written, and never mixed with an earlier one."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

CONFIG = "config.json"
WEIGHTS = ("model.weights.h5", "model.weights.json", "model_*.weights.h5")
TASK = ("task.json", "task.weights.h5")
PREPROCESSOR = ("preprocessor.json", "tokenizer.json", "assets/tokenizer/*")

# Folders that are being written. A task saves its backbone into the same folder.
_unfinished: set[str] = set()


@contextlib.contextmanager
def new_preset(preset_dir: str | os.PathLike[str]) -> Iterator[str | os.PathLike[str]]:
    """Give a temporary folder for a preset, and move its files to `preset_dir` at the end.

    If the context raises an error, `preset_dir` keeps the preset that it had. Otherwise files of
    the earlier preset that were not written again are removed: its weights and its task, and the
    preprocessor if it was saved with a task. A preprocessor or tokenizer that was saved alone
    stays. Files that do not belong to a preset stay too.

    Args:
        preset_dir: The folder. The temporary folder lies in it, so that each file is moved in one
            step.

    Raises:
        ValueError: If `preset_dir` is not a string or a path.
    """
    if not isinstance(preset_dir, (str, os.PathLike)) or not os.fspath(preset_dir):
        raise ValueError(
            f"`preset_dir` must be a folder. Received: preset_dir={preset_dir!r}. Pass a string or "
            "a path."
        )
    if os.fspath(preset_dir) in _unfinished:
        yield preset_dir
        return
    preset_dir = Path(preset_dir)
    preset_dir.mkdir(parents=True, exist_ok=True)
    unfinished = tempfile.mkdtemp(prefix=".unfinished-", dir=preset_dir)
    _unfinished.add(unfinished)
    try:
        yield unfinished
        _move(Path(unfinished), preset_dir)
    finally:
        _unfinished.remove(unfinished)
        shutil.rmtree(unfinished)


def _move(source: Path, target: Path) -> None:
    patterns = [*WEIGHTS, *TASK]
    if (target / "task.json").exists():
        patterns += PREPROCESSOR
    old = {file for pattern in patterns for file in target.glob(pattern) if file.is_file()}
    new = [file.relative_to(source) for file in source.rglob("*") if file.is_file()]
    if Path(CONFIG) in new:
        # A folder without this file does not load, so new files never load with old ones.
        (target / CONFIG).unlink(missing_ok=True)
        new.sort(key=Path(CONFIG).__eq__)
    for file in new:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source / file, target / file)
    for file in old - {target / file for file in new}:
        file.unlink(missing_ok=True)
