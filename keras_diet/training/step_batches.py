"""The batches that `fit` reads when its training can resume."""

from collections.abc import Iterator
from typing import Any

from keras_diet._batch_seed import batch_seed
from keras_diet._keras import IterableAdapter
from keras_diet._read_ahead import read_ahead

_END = object()


class StepBatches(IterableAdapter):
    """Batches of a source. Every iterator starts with the batch of the next step.

    Keras makes a new iterator for an epoch or a pass, sometimes several. All of them start at the
    position, which moves with the steps that are done. Batches that were only read ahead do not
    count. While a batch is read, the random generators have a seed that follows from its number.
    So its random numbers do not depend on what was read or drawn before.

    Args:
        source: An object of `keras_diet.training.resume_data`.
        reads_ahead: bool. Whether a thread reads ahead of the model.
        seed: int. The seed of the order and of the batches.
    """

    def __init__(self, source: Any, reads_ahead: bool, seed: int) -> None:
        super().__init__(source.num_batches)
        self.source = source
        # The number of rows, if all batches have the same.
        self.size_of_batches = getattr(source, "size_of_batches", None)
        self.seed = seed
        # Number of the pass over the data, and number of batches of this pass that are done.
        self.pass_number, self.index = 0, 0
        self._reads_ahead = reads_ahead

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the rest of the pass."""
        batches = self._read(self.pass_number, self.index)
        return read_ahead(batches) if self._reads_ahead else batches

    def _read(self, pass_number, index):
        batches = self.source.read(self.seed, pass_number, index)
        while True:
            with batch_seed((self.seed, pass_number, index)):
                batch = next(batches, _END)
            if batch is _END:
                return
            index += 1
            yield batch

    def first(self) -> Any:
        """Return the batch of the next step."""
        return next(self._read(self.pass_number, self.index))

    def advance(self, steps: int) -> bool:
        """Count batches as done, and return whether they were the last ones of the pass."""
        self.index += steps
        size = self.num_batches
        ended = (
            getattr(self.source, "end", None) == (self.pass_number, self.index)
            if size is None
            else self.index >= size
        )
        if ended:
            self.pass_number, self.index = self.pass_number + 1, 0
        return ended

    def position(self) -> dict[str, Any]:
        """Return where the next step continues."""
        states = getattr(self.source, "states", {})
        for key in [key for key in states if key < (self.pass_number, self.index)]:
            del states[key]
        return {
            "seed": self.seed,
            "pass": self.pass_number,
            "index": self.index,
            "state": states.get((self.pass_number, self.index)),
        }

    def continue_at(self, position: dict[str, Any]) -> None:
        """Continue where `position` was called."""
        self.seed = position["seed"]
        self.pass_number, self.index = position["pass"], position["index"]
        if position["state"] is not None:
            self.source.states[self.pass_number, self.index] = position["state"]
