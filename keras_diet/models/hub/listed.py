"""Names in messages."""

from collections.abc import Iterable
from typing import Any

_MOST = 10


def listed(names: Iterable[Any]) -> str:
    """Return names for a message. Only the first ones of many."""
    names = list(names)
    shown = ", ".join(map(repr, names[:_MOST]))
    return shown if len(names) <= _MOST else f"{shown}, ... ({len(names)} in all)"
