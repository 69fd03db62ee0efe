"""Saving a preset: whole or not loadable, and nothing left of what the folder held before."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

CONFIG = "config.json"
WEIGHTS = ("model.weights.h5", "model.weights.json", "model_*.weights.h5")
TASK = ("task.json", "task.weights.h5")
PREPROCESSOR = ("preprocessor.json", "tokenizer.json", "assets/tokenizer/*")

# Folders that are being written: a task saves its backbone into its own.
_unfinished = set()


@contextlib.contextmanager
def new_preset(preset_dir):
    """Give a folder to write a preset to; if nothing is raised, its files go to `preset_dir`.

    Files of an earlier preset that are not written again are removed: weights and the task, and
    with a task the preprocessor that was saved with it. A preprocessor or a tokenizer that was
    saved on its own stays, and so do files that are no preset's.

    Args:
        preset_dir: The folder. Files are moved within it, so that none is ever half written.
    """
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


def _move(source, target):
    patterns = [*WEIGHTS, *TASK]
    if (target / "task.json").exists():
        patterns += PREPROCESSOR
    old = {file for pattern in patterns for file in target.glob(pattern) if file.is_file()}
    new = [file.relative_to(source) for file in source.rglob("*") if file.is_file()]
    # A folder without it is no preset, so that new files never go with old ones.
    if Path(CONFIG) in new:
        (target / CONFIG).unlink(missing_ok=True)
        new.sort(key=Path(CONFIG).__eq__)
    for file in new:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source / file, target / file)
    for file in old - {target / file for file in new}:
        file.unlink(missing_ok=True)
