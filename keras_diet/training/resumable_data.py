"""The data of a training that can begin at any batch: everything becomes an `EpochDataset`.

Arrays, a `keras.utils.PyDataset` and a Grain `MapDataset` tell any of their batches. The iterators
of other Grain datasets have a state, with which they continue where they stopped.
"""

import functools
import math
import sys
import threading
import zlib
from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.training.columns import (
    check_are_in_dataset,
    host_column,
    is_columns,
    map_columns,
    number_of_rows,
    take,
)
from keras_diet.training.epoch_dataset import EpochDataset, as_tf_dataset
from keras_diet.training.random_states import seeded

BATCH_SIZE = 32


class Batches(EpochDataset):
    """The batches of columns, or of a dataset whose batches have numbers, maybe in a new order.

    While a batch of a dataset is read, the generators of Python and NumPy have a seed that follows
    from its number. So the dataset may draw from them.

    Args:
        data: Columns, a `keras.utils.PyDataset` or a Grain `MapDataset`.
        num_items: int or `None`. The number of rows or batches, `None` without an end.
        batch_size: int or `None`. The number of rows in a batch. `None` means a dataset.
        shuffle: bool. Whether each epoch has a new order.
        seed: int or `None`. As in `EpochDataset`. Defaults to `None`.
    """

    def __init__(
        self,
        data: Any,
        num_items: int | None,
        batch_size: int | None,
        shuffle: bool,
        seed: int | None = None,
    ) -> None:
        names = ("workers", "use_multiprocessing", "max_queue_size")
        is_dataset = isinstance(data, keras.utils.PyDataset)
        super().__init__(seed, **{name: getattr(data, name) for name in names if is_dataset})
        self.data = data
        self.num_items = num_items
        self.num_rows = None if batch_size is None else num_items
        self.batch_size = validation.optional_positive_int("batch_size", batch_size)
        self.shuffle = shuffle
        # Batches of Grain have the same size, except for the last one.
        self.same_size = num_items is not None and not is_dataset

    @property
    def num_batches(self) -> int | None:
        """The number of batches in an epoch. Endless data has `None`."""
        return self.num_items and math.ceil(self.num_items / (self.batch_size or 1))

    def batch(self, epoch: int, index: int) -> Any:
        """Return a batch of an epoch."""
        if self.batch_size is not None:
            return keras.utils.pack_x_y_sample_weight(*self.read(epoch, index))
        with seeded(self.seed, epoch, index):
            return self.read(epoch, index)

    def read(self, epoch: int, index: int) -> Any:
        """Return rows of the columns, or a batch as the dataset has it."""
        order = _order(self.num_items, self.seed, epoch) if self.shuffle else None
        if self.batch_size is None:
            return self.data[index if order is None else int(order[index])]
        start = index * self.batch_size
        rows: Any = range(start, min(start + self.batch_size, self.num_items or 0))
        return take(self.data, rows if order is None else order[rows])


class IteratorBatches(EpochDataset):
    """The batches of a Grain `IterDataset` or `DataLoader`, whose iterators have a state.

    A new pass over the data begins where one ends.

    Args:
        dataset: The dataset.
        num_batches: int or `None`. The number of batches in a pass, or `None` if nobody counts
            them. Then all batches belong to epoch 0.
    """

    num_batches: int | None = None

    def __init__(self, dataset: Any, num_batches: int | None) -> None:
        super().__init__(seed=0)
        self.dataset = dataset
        self.num_batches = num_batches
        self._iterator = iter(dataset)
        # The step whose batch is next, and the states of the iterator before steps.
        self._next = 0
        self._states = {0: self._iterator.get_state()}
        # A thread may read the batches.
        self._lock = threading.Lock()

    def batch(self, epoch: int, index: int) -> Any:
        """Return a batch of an epoch."""
        step = epoch * (self.num_batches or 0) + index
        with self._lock:
            if step != self._next:
                self._next = self._known(step)
                self._iterator = iter(self.dataset)
                self._iterator.set_state(self._states[self._next])
            while self._next <= step:
                batch = next(self._iterator, None)
                if batch is None:
                    self._iterator = iter(self.dataset)
                    batch = next(self._iterator)
                self._next += 1
                self._states[self._next] = self._iterator.get_state()
        return batch

    def _known(self, step):
        return max(each for each in self._states if each <= step)

    def state(self, epoch: int, index: int) -> tuple[int, Any]:
        """Return for JSON how to continue at a batch, and forget earlier states."""
        with self._lock:
            known = self._known(epoch * (self.num_batches or 0) + index)
            # The first batches are read again to know the sizes of batches.
            self._states = {n: each for n, each in self._states.items() if n >= known or n == 0}
            state = self._states[known]
        # Grain has bytes of text, or a dictionary.
        return known, state.decode() if isinstance(state, bytes) else state

    def set_state(self, known: int, state: Any) -> None:
        """Take what `state` returned in an earlier process."""
        self._states[known] = state.encode() if isinstance(state, str) else state


def resumable(
    x: Any,
    y: Any,
    sample_weight: Any,
    *,
    batch_size: int | None,
    shuffle: bool,
    steps: int | None,
) -> EpochDataset:
    """Return the data of `fit` as an `EpochDataset`. Without `steps`, an epoch is a pass.

    Raises:
        ValueError: If parts have other lengths, or belong to a dataset that has them already.
    """
    if is_columns(x):
        columns = map_columns(_as_array, (x, y, sample_weight))
        number = number_of_rows(x=columns[0], y=columns[1], sample_weight=columns[2])
        return Batches(columns, number, batch_size or BATCH_SIZE, shuffle)
    check_are_in_dataset(x, y=y, sample_weight=sample_weight, batch_size=batch_size)
    if isinstance(x, EpochDataset):
        return x
    if isinstance(x, keras.utils.PyDataset):
        return Batches(x, x.num_batches, None, shuffle and x.num_batches is not None)
    if hasattr(x, "__getitem__"):
        # An endless dataset has the largest length that Python knows.
        return Batches(x, len(x) if len(x) < sys.maxsize else None, None, shuffle=False)
    return IteratorBatches(x, None if steps else sum(1 for _ in x))


def check_can_resume(data: Any) -> None:
    """Raise a `ValueError` unless the data can continue exactly at a batch."""
    if isinstance(data, EpochDataset) or is_columns(data) or _is_grain(data):
        return
    if not isinstance(data, keras.utils.PyDataset):
        raise ValueError(
            "`ExactResume` needs data that can continue at any batch. Received: "
            f"{type(data).__name__}, which does not tell where to continue. Pass arrays, lists, a "
            "`keras.utils.PyDataset`, or a Grain dataset. Grain shuffles with a seed."
        )
    hooks = ("on_epoch_begin", "on_epoch_end")
    if any(getattr(type(data), name) is not getattr(keras.utils.PyDataset, name) for name in hooks):
        raise ValueError(
            "A dataset that changes between epochs must be a `keras_diet.training.EpochDataset`, "
            f"so that `ExactResume` can read any epoch. Received: {type(data).__name__} with "
            "`on_epoch_begin` or `on_epoch_end`. Derive it from `EpochDataset`."
        )


def _is_grain(data):
    return any(base.__module__.partition(".")[0] == "grain" for base in type(data).__mro__)


class Steps(keras.utils.PyDataset):
    """What Keras reads: the steps of an epoch, from step `start` on.

    Args:
        data: The batches.
        num_steps: int or `None`. The number of steps of an epoch. They may begin within a pass over
            the data and end within another one. `None` means a pass.

    Attributes:
        epoch: int. The epoch whose steps are read.
        start: int. The number of steps of this epoch that were done before.
    """

    def __init__(self, data: EpochDataset, num_steps: int | None = None) -> None:
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data = data
        if num_steps is None and data.num_batches is None:
            raise ValueError(
                "`steps_per_epoch` must be a number if the data has no end. Received: "
                "steps_per_epoch=None. Pass the number of steps in an epoch."
            )
        self.num_steps = int(num_steps or data.num_batches)
        self.epoch, self.start = 0, 0

    @property
    def num_batches(self) -> int:
        """The number of steps that remain of an epoch."""
        return self.num_steps - self.start

    def place(self, epoch: int, step: int) -> tuple[int, int]:
        """Return the number of the pass over the data, and the index of a batch."""
        total = epoch * self.num_steps + step
        return divmod(total, self.data.num_batches) if self.data.num_batches else (0, total)

    def __getitem__(self, index: int) -> Any:
        """Return the batch of a step."""
        return self.data.batch(*self.place(self.epoch, self.start + index))

    @functools.cached_property
    def examples(self) -> list[tuple[Any, ...]]:
        """The first two batches, and if the data has an end the last one."""
        last = (self.data.num_batches or 2) - 1
        return [_arrays(self.data.batch(0, index)) for index in (0, min(1, last), last)]

    def facts(self) -> dict[str, Any]:
        """Return what must be the same when the training continues."""
        first, _, last = self.examples
        data = self.data
        facts = {
            "number of examples": getattr(data, "num_rows", None),
            "number of batches": data.num_batches,
            "batch_size": _size(first),
            "size of the last batch": _size(last),
            "shuffle": getattr(data, "shuffle", None),
            "first batch": _checksum(first),
            "last batch": _checksum(last),
        }
        return facts | ({"seed of the data": data.seed} if data.has_own_seed else {})

    def position(self, epoch: int, step: int) -> dict[str, Any]:
        """Return for JSON what a later process needs to read from a step on."""
        state = getattr(self.data, "state", None)
        return {"seed": self.data.seed, "state": state and state(*self.place(epoch, step))}

    def continue_at(self, position: dict[str, Any]) -> None:
        """Take what `position` returned in an earlier process."""
        if not self.data.has_own_seed:
            self.data.seed = position["seed"]
        if position["state"] is not None:
            self.data.set_state(*position["state"])

    def for_keras(self) -> Any:
        """Return this object, or a `tf.data.Dataset` with the right sizes of all batches."""
        if keras.config.backend() != "tensorflow":
            return self
        varying_axes = () if getattr(self.data, "same_size", False) else (0,)
        if self.data.varies_length:
            varying_axes = (*varying_axes, 1)
        return as_tf_dataset(
            lambda: (_arrays(self[index]) for index in range(self.num_batches)),
            self.num_batches,
            self.examples,
            varying_axes,
        )


def _arrays(batch):
    """Return a tuple of new arrays.

    TensorFlow does not copy what it reads, and a replica may write its results there.
    """
    batch = tuple(batch) if isinstance(batch, (list, tuple)) else (batch,)
    return keras.tree.map_structure(lambda array: np.array(_as_array(array)), batch)


def _size(batch):
    return next((len(leaf) for leaf in keras.tree.flatten(batch) if np.ndim(leaf)), None)


def _checksum(batch):
    """Return a number that other data, another order or another seed would change."""
    value = 0
    for leaf in keras.tree.flatten(batch):
        value = zlib.crc32(np.ascontiguousarray(leaf), value)
    return f"checksum {value:08x}"


def _as_array(column):
    array = np.asarray(host_column(column))
    return array.astype(keras.config.floatx()) if array.dtype == "float64" else array


@functools.lru_cache(maxsize=4)
def _order(size, seed, epoch):
    return np.random.default_rng((seed, epoch)).permutation(size)
