"""An iterator that a thread keeps ahead of its reader."""

import collections
import concurrent.futures
from collections.abc import Iterator
from typing import Any

_ELEMENTS = 4
_END = object()


def read_ahead(elements: Iterator[Any]) -> Iterator[Any]:
    """Yield the elements of an iterator that a thread keeps a few elements ahead."""
    thread = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    try:
        pending: collections.deque[concurrent.futures.Future[Any]]
        pending = collections.deque(thread.submit(next, elements, _END) for _ in range(_ELEMENTS))
        while (element := pending.popleft().result()) is not _END:
            pending.append(thread.submit(next, elements, _END))
            yield element
    finally:
        # A reader that stops early waits for one element at most.
        thread.shutdown(cancel_futures=True)
