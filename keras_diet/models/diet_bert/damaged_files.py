"""Errors in files that are damaged or missing, in words that name the file."""

import contextlib
import json
from pathlib import Path


@contextlib.contextmanager
def complete_file(filepath):
    """Raise a `ValueError` that names the file if what is read here turns out to be damaged."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise ValueError(
            f"`{filepath}` is no complete file of weights; copy, download or save it again. "
            f"Received: {error}"
        ) from error


@contextlib.contextmanager
def complete_preset(preset):
    """Raise a `ValueError` that names the files if a preset turns out to lack some."""
    try:
        yield
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        # An address or a registered name is no folder to search.
        damaged = ", ".join(_damaged_text_files(preset)) or "one of its text files"
        raise ValueError(
            f"Preset {preset} is damaged: {damaged}. Copy, download or save it again. "
            f"Received: {error}"
        ) from error
    except FileNotFoundError as error:
        # KerasHub asks for the weights in several files where those in one file are missing.
        message = str(error).replace("model.weights.json", "model.weights.h5")
        raise ValueError(
            f"Preset {preset} is not complete; copy, download or save it again. Received: {message}"
        ) from error


def _damaged_text_files(preset):
    for file in sorted(Path(preset).rglob("*.*")):
        if file.suffix in (".json", ".txt") and not _is_readable(file):
            yield file.name


def _is_readable(file):
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            json.loads(text)
    except ValueError:
        return False
    return True
