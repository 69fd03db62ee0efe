"""Batches of Grain's datasets, for a training that can begin at any batch."""

import base64
import json
import sys
from collections.abc import Iterator
from typing import Any

from keras_diet.training.resume_source import Source, checksum, facts_of_batch, size_of

_END = object()


class MapSource(Source):
    """Batches of a Grain `MapDataset`, which is read by index."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        # An endless dataset has the largest length that Python knows.
        self.num_batches = len(dataset) if len(dataset) < sys.maxsize else None
        first = dataset[0]
        self._facts = {"number of batches": self.num_batches, **facts_of_batch(first)}
        if self.num_batches:
            last = dataset[self.num_batches - 1]
            self._facts["last batch"] = checksum(last)
            sizes = {size_of(first), size_of(last)}
            self.size_of_batches = sizes.pop() if len(sizes) == 1 else None

    def facts(self) -> dict[str, Any]:
        """Return what must be the same when the training continues."""
        return self._facts

    def read(self, seed: int, pass_number: int, start: int) -> Iterator[Any]:
        """Yield the batches of a pass over the dataset, from batch `start` on."""
        for index in range(start, len(self.dataset)):
            batch = self.dataset[index]
            if batch is None:
                raise ValueError(
                    "`ExactResume` needs a batch at each index of a Grain `MapDataset`. Received: "
                    f"a dataset without a batch at index {index}, as `filter` makes it. Pass "
                    "`dataset.to_iter_dataset()`."
                )
            yield batch


class IteratorSource(Source):
    """Batches of a Grain `IterDataset` or `DataLoader`, whose iterators have a state."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        # The states of iterators by pass and number of batches, and the end of the last pass.
        self._states: dict[tuple[int, int], str] = {}
        self._end: tuple[int, int] | None = None

    def facts(self) -> dict[str, Any]:
        """Return what must be the same when the training continues."""
        return facts_of_batch(next(iter(self.dataset)))

    def read(self, seed: int, pass_number: int, start: int) -> Iterator[Any]:
        """Yield the batches of a pass over the dataset, from batch `start` on."""
        iterator = iter(self.dataset)
        if start:
            iterator.set_state(_decoded(self._states[pass_number, start]))
        batch = next(iterator, _END)
        while batch is not _END:
            start += 1
            self._states[pass_number, start] = _encoded(iterator.get_state())
            # One batch ahead, because an epoch must not begin where no batch is left.
            following = next(iterator, _END)
            if following is _END:
                self._end = (pass_number, start)
            yield batch
            batch = following

    def has_ended(self, pass_number: int, index: int) -> bool:
        """Return whether a pass has no batches left after its first `index` batches."""
        # The last of several steps in one execution may have no batch.
        return self._end is not None and self._end[0] == pass_number and index >= self._end[1]

    def state(self, pass_number: int, index: int) -> str | None:
        """Return the state of the iterator before a batch, and forget the states before it."""
        for earlier in [each for each in self._states if each < (pass_number, index)]:
            del self._states[earlier]
        return self._states.get((pass_number, index))

    def set_state(self, pass_number: int, index: int, state: str) -> None:
        """Take what `state` returned in an earlier process."""
        self._states[pass_number, index] = state


def _encoded(state):
    """Return the state of a Grain iterator, bytes or a dictionary, as a string."""
    if isinstance(state, bytes):
        return base64.b64encode(state).decode()
    return json.dumps(state)


def _decoded(text):
    return json.loads(text) if text.startswith("{") else base64.b64decode(text)
