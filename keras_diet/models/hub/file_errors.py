"""Clear errors for files that are damaged or missing."""

import contextlib
import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from keras_diet._compat import BUILTIN_PRESETS


@contextlib.contextmanager
def complete_file(filepath: str | os.PathLike[str]) -> Iterator[None]:
    """Raise a `ValueError` that names the file if the weights read in this context are damaged."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise ValueError(
            f"`{filepath}` is not a complete weights file. Copy, download or save it again. "
            f"Received: {error}"
        ) from error


def preset_address(preset: str | os.PathLike[str]) -> str:
    """Return a folder or the address of a preset as a `str`."""
    if not isinstance(preset, (str, os.PathLike)):
        raise ValueError(
            "`preset` must be a folder, an address, or a registered name. Received: "
            f"preset={preset!r}. Pass a string or a path."
        )
    address = os.fspath(preset)
    if "://" not in address and address not in BUILTIN_PRESETS and not os.path.exists(address):
        similar = difflib.get_close_matches(address, BUILTIN_PRESETS, n=1)
        raise ValueError(
            "`preset` must be a folder, an address, or a registered name. Received: "
            f"preset={address!r}, which does not exist. "
            + (f"Did you mean {similar[0]!r}?" if similar else "Check the path of the folder.")
        )
    return address


@contextlib.contextmanager
def complete_preset(preset: str | os.PathLike[str]) -> Iterator[None]:
    """Raise a `ValueError` that names the files if the preset read in this context is damaged."""
    try:
        yield
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        # The files behind an address or a registered name cannot be searched.
        damaged = ", ".join(_damaged_text_files(preset)) or "one of its text files"
        raise ValueError(
            f"Preset {preset} is damaged: {damaged}. Copy, download or save it again. "
            f"Received: {error}"
        ) from error
    except FileNotFoundError as error:
        # If `model.weights.h5` is missing, KerasHub looks for sharded weights and reports those.
        message = str(error).replace("model.weights.json", "model.weights.h5")
        raise ValueError(
            f"Preset {preset} is incomplete. Copy, download or save it again. Received: {message}"
        ) from error


def _damaged_text_files(preset: str | os.PathLike[str]) -> Iterator[str]:
    for file in sorted(Path(preset).rglob("*.*")):
        if file.suffix in (".json", ".txt") and not _is_readable(file):
            yield file.name


def _is_readable(file: Path) -> bool:
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            json.loads(text)
    except ValueError:
        return False
    return True
