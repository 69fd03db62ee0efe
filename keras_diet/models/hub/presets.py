"""Presets: folders that appear whole or not at all, and names for them."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from keras_hub.models import Backbone

from keras_diet._compat import register_presets

# What each part of a preset writes. A task also writes its backbone and its preprocessor.
_MODEL = ("model*.weights.h5", "model.weights.json", "task.json", "task.weights.h5")
_PREPROCESSOR = ("preprocessor.json", "tokenizer.json", "assets/tokenizer/*")
_UNFINISHED = ".unfinished-"
REMOTE = ("hf://", "kaggle://", "modelscope://", "gs://")


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
    patterns = _MODEL + _PREPROCESSOR if (target / "task.json").exists() else _MODEL
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


def register_named_preset(
    backbone_cls: type[Backbone],
    name: str,
    address: str | os.PathLike[str],
    description: str = "",
    overwrite: bool = False,
) -> None:
    """Give a preset of a family a name that every `from_preset` accepts as its address.

    Args:
        backbone_cls: The backbone class of the family. Its `presets` list the name.
        name: str. The new name.
        address: A folder, or an address that starts with one of `REMOTE`.
        description: str. A description for `presets`. Defaults to `""`.
        overwrite: bool. Whether a name that was registered before may get another address.
            Defaults to `False`.

    Raises:
        ValueError: If the name is taken.
    """
    address = os.fspath(address)
    if not address.startswith(REMOTE):
        # An absolute path is also found from other working directories.
        address = os.path.abspath(address)
    taken = Backbone.presets.get(name)
    may_change = overwrite and name in backbone_cls.presets
    if taken is not None and taken["kaggle_handle"] != address and not may_change:
        raise ValueError(
            "`name` must be new, or your own with `overwrite=True`. Received: "
            f"name={name!r}, which is {taken['kaggle_handle']}, overwrite={overwrite}"
        )
    preset = {"metadata": {"description": description}, "kaggle_handle": address}
    register_presets({name: preset}, backbone_cls)
