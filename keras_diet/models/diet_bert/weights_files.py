"""Errors in files of weights, in words that name the file."""

import contextlib


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
