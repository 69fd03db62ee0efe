"""What the tables of malformed inputs share."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest


def cases(table: Mapping[str, tuple[Any, str]]) -> Any:
    """Parametrize a test with a table of names, what is sent, and parts of the message."""
    return pytest.mark.parametrize("sent, message", table.values(), ids=list(table))


def assert_refused(call: Callable[[], Any], message: str) -> None:
    """Assert that a call raises a `ValueError` with all parts of a message, in their order.

    Args:
        call: The call.
        message: Parts with " ... " between them.
    """
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    received, start = str(error.value), 0
    for part in message.split(" ... "):
        start = received.find(part, start)
        assert start >= 0, f"{part!r} is not in {received!r}"
        start += len(part)
