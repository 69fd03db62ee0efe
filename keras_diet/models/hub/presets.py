"""Presets: folders that appear whole or not at all."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What each part of a preset writes. A task also writes its backbone and its preprocessor.
_MODEL = ("model*.weights.h5", "model.weights.json", "task.json", "task.weights.h5")
_PREPROCESSOR = ("preprocessor.json", "tokenizer.json", "assets/tokenizer/*")
_UNFINISHED = ".unfinished-"


@contextlib.contextmanager
def whole_preset(preset_dir: str | os.PathLike[str]) -> Iterator[str]:
    """Give a temporary folder for a preset, and move its files to `preset_dir` at the end.

    After an error, `preset_dir` keeps the preset that it had. Otherwise the files of that preset
    that were not written again are removed: its weights and its task, and the preprocessor if it
    was saved with a task. A preprocessor that was saved alone stays, and other files stay.

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
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=preset_dir) as unfinished:
        yield unfinished
        _replace_files(Path(unfinished), preset_dir)


def _replace_files(source: Path, target: Path) -> None:
    task = target / "task.json"
    config = json.loads(task.read_text("utf-8"))["config"] if task.exists() else {}
    patterns = _MODEL + _PREPROCESSOR if config.get("preprocessor") else _MODEL
    old = {file.relative_to(target) for pattern in patterns for file in target.glob(pattern)}
    new = {file.relative_to(source) for file in source.rglob("*") if file.is_file()}
    # Without its config.json, a folder does not load. So files of two presets never load together.
    config = Path("config.json")
    (target / config).unlink(missing_ok=True)
    for file in old - new:
        (target / file).unlink()
    for file in sorted(new, key=config.__eq__):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source / file, target / file)
