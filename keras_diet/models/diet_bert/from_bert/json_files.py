"""Files of text and of JSON in a checkpoint folder, with errors that name the file."""

import json
from pathlib import Path


def read_text(path):
    """Return the text in a file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"`{path}` is no text in UTF-8. Received: {error}") from error


def read_json(folder, name):
    """Return the JSON object in a file of a folder."""
    path = Path(folder) / name
    if not path.is_file():
        raise ValueError(f"The checkpoint folder `{folder}` has no {name}.")
    try:
        contents = json.loads(read_text(path))
    except ValueError as error:
        raise ValueError(f"`{path}` is no JSON. Received: {error}") from error
    if not isinstance(contents, dict):
        raise ValueError(f"`{path}` must hold a JSON object. Received: {type(contents).__name__}")
    return contents


def read_optional_json(folder, name):
    """Return the JSON object in a file, an empty one where there is no such file."""
    return read_json(folder, name) if (Path(folder) / name).is_file() else {}
