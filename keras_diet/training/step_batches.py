"""The batches that `fit` reads when its training can resume."""

from collections.abc import Callable, Iterator
from typing import Any

from keras_diet._batch_seed import batch_seed
from keras_diet._compat import IterableAdapter
from keras_diet._read_ahead import read_ahead
from keras_diet.training.resume_source import Source

_END = object()


class StepBatches(IterableAdapter):
    """Batches of a source. Every iterator starts with the batch of the next step.

    Keras makes a new iterator for an epoch or a pass, sometimes several. All of them start at the
    position, which moves with the steps that are done. Batches that were only read ahead do not
    count. While a batch is read, the random generators have a seed that follows from its number.
    So its random numbers do not depend on what was read or drawn before.

    Args:
        source: The data.
        preprocess: Function of one batch, which a task of this library applies, or `None`. With a
            function, a thread reads ahead of the model.
        seed: int. The seed of the order and of the batches.
    """

    def __init__(self, source: Source, preprocess: Callable[[Any], Any] | None, seed: int) -> None:
        super().__init__(source.num_batches)
        self.source = source
        self._preprocess = preprocess
        # A function may return another number of examples, such as the windows of long texts.
        self.size_of_batches = None if preprocess else source.size_of_batches
        self.seed = seed
        # Number of the pass over the data, and number of batches of this pass that are done.
        self.pass_number, self.index = 0, 0

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the rest of the pass."""
        batches = self._read(self.pass_number, self.index)
        return read_ahead(batches) if self._preprocess else batches

    def _read(self, pass_number, index):
        batches = self.source.read(self.seed, pass_number, index)
        if self._preprocess:
            batches = map(self._preprocess, batches)
        while True:
            with batch_seed((self.seed, pass_number, index)):
                batch = next(batches, _END)
            if batch is _END:
                return
            index += 1
            yield batch

    def facts(self) -> dict[str, Any]:
        """Return what must be the same when the training continues."""
        with batch_seed((0,)):
            return self.source.facts()

    def first(self) -> Any:
        """Return the batch of the next step."""
        return next(self._read(self.pass_number, self.index))

    def advance(self, steps: int) -> bool:
        """Count batches as done, and return whether they were the last ones of the pass."""
        self.index += steps
        has_ended = self.source.has_ended(self.pass_number, self.index)
        if has_ended:
            self.pass_number, self.index = self.pass_number + 1, 0
        return has_ended

    def position(self) -> dict[str, Any]:
        """Return where the next step continues."""
        return {
            "seed": self.seed,
            "pass": self.pass_number,
            "index": self.index,
            "state": self.source.state(self.pass_number, self.index),
        }

    def continue_at(self, position: dict[str, Any]) -> None:
        """Continue where `position` was called."""
        self.seed = position["seed"]
        self.pass_number, self.index = position["pass"], position["index"]
        if position["state"] is not None:
            self.source.set_state(self.pass_number, self.index, position["state"])
