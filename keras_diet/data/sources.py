"""Everything that `fit` takes, as an `EpochDataset`."""

import functools
import math
import sys
import threading
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.data.columns import holds_text, is_columns, number_of_rows, take
from keras_diet.data.epoch_dataset import EpochDataset, warn_of_workers
from keras_diet.types import Columns

BATCH_SIZE = 32
# Readers are a few batches ahead of the step that is saved.
_KEPT_STATES = 256


def source_of(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    shuffle: bool = False,
    steps: int | None = None,
    seed: int | None = None,
    read: Callable[..., Columns] | None = None,
) -> EpochDataset:
    """Return the data of a user as batches, with the columns that `read` makes of it.

    Args:
        x: Columns, or a dataset of batches: `keras.utils.PyDataset`, Grain, `tf.data`, a PyTorch
            `DataLoader`, a generator, or another iterable.
        y: Labels, or `None`.
        sample_weight: Weights, or `None`.
        batch_size: int or `None`. The size of the batches of columns. Defaults to `None`, which
            means 32.
        shuffle: bool. Whether each epoch has a new order of the rows of columns, or of the batches
            of a dataset that can be indexed. Defaults to `False`.
        steps: int or `None`. If the length of a dataset is not known, `None` reads it once to count
            its batches. Otherwise it is read again and again. Defaults to `None`.
        seed: int or `None`. As in `EpochDataset`. Defaults to `None`.
        read: Function of `x`, `y` and `sample_weight`, which checks them and returns columns. It
            gets all rows of columns at once, and each batch of a dataset. Defaults to `None`, which
            leaves the data as it is. An `EpochDataset` is always left as it is.

    Raises:
        ValueError: If columns have other lengths, if a dataset has no batches, or if an argument
            belongs to a dataset that has it already.
    """
    if is_columns(x):
        columns = (x, y, sample_weight) if read is None else read(x, y, sample_weight)
        return Rows(columns, batch_size, shuffle, seed)
    given = {"y": y, "sample_weight": sample_weight, "batch_size": batch_size}
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"`{name}` must be `None` if `x` is a dataset or a generator. Received: "
                f"x={type(x).__name__}. It has its own batches, with labels and weights."
            )
    if isinstance(x, EpochDataset):
        return x
    source = _source_of_batches(x, shuffle, steps, seed)
    if read is None:
        return source
    return source.map(lambda batch, _: packed(*read(*parts_of(batch))), same_size=True)


def _source_of_batches(x, shuffle, steps, seed):
    if isinstance(x, Iterator):
        return OnePass(x, seed)
    num_batches = _length(x, steps)
    if num_batches == 0:
        raise ValueError("A dataset must have at least one batch. Received: no batches")
    if hasattr(x, "__getitem__"):
        return Items(x, num_batches, shuffle and num_batches is not None, seed)
    return Passes(x, num_batches, seed)


def parts_of(batch: Any) -> Columns:
    """Return the inputs, labels and weights of a batch of a user. A list of texts is inputs."""
    is_inputs = isinstance(batch, list) and holds_text(batch)
    return keras.utils.unpack_x_y_sample_weight((batch,) if is_inputs else batch)


class Rows(EpochDataset):
    """The batches of columns, maybe in a new order in each epoch.

    Args:
        columns: Tuple of `x`, `y` and `sample_weight`. The last two may be `None`.
        batch_size: int or `None`, which means 32.
        shuffle: bool. Whether each epoch has a new order.
        seed: int or `None`. As in `EpochDataset`.
    """

    num_batches = 0
    same_size = True

    def __init__(
        self,
        columns: Columns,
        batch_size: int | None,
        shuffle: bool,
        seed: int | None = None,
    ) -> None:
        x, y, sample_weight = self.columns = columns
        self.num_rows = number_of_rows(x=x, y=y, sample_weight=sample_weight)
        size = validation.optional_positive_int("batch_size", batch_size)
        self.batch_size = BATCH_SIZE if size is None else size
        self.num_batches = math.ceil(self.num_rows / self.batch_size)
        self.shuffle = shuffle
        super().__init__(seed)

    def batch(self, epoch: int, index: int) -> tuple[Any, ...]:
        """Return a batch of an epoch."""
        start = index * self.batch_size
        rows: Any = range(start, min(start + self.batch_size, self.num_rows))
        if self.shuffle:
            rows = _order(self.num_rows, self.seed, epoch)[rows]
        return packed(*take(self.columns, rows))


class Items(EpochDataset):
    """The batches of a dataset whose batches have numbers, maybe in a new order in each epoch.

    Args:
        data: A `keras.utils.PyDataset`, a Grain `MapDataset`, or another sequence.
        num_batches: int or `None`. The number of batches, `None` without an end.
        shuffle: bool. Whether each epoch has a new order.
        seed: int or `None`. As in `EpochDataset`.
    """

    num_batches: int | None = None

    def __init__(
        self, data: Any, num_batches: int | None, shuffle: bool, seed: int | None = None
    ) -> None:
        self.is_of_keras = isinstance(data, keras.utils.PyDataset)
        if self.is_of_keras:
            warn_of_workers(data)
        super().__init__(seed)
        self.data = data
        self.num_batches = num_batches
        self.shuffle = shuffle
        # Batches of Grain have the same size, except for the last one.
        self.same_size = num_batches is not None and not self.is_of_keras

    def batch(self, epoch: int, index: int) -> Any:
        """Return a batch of an epoch, as the dataset has it."""
        item = int(_order(self.num_batches, self.seed, epoch)[index]) if self.shuffle else index
        return self.data[item]

    def on_epoch_begin(self) -> None:
        """Tell the dataset of the user that an epoch begins."""
        if self.is_of_keras:
            self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Tell the dataset of the user that an epoch ends."""
        super().on_epoch_end()
        if self.is_of_keras:
            self.data.on_epoch_end()


class Passes(EpochDataset):
    """The batches of an iterable, which are read in their order. All passes are the same.

    A pass begins again when an earlier batch is asked for, or when the iterable ends. If its
    iterators have a state, as in Grain, reading continues at the nearest known state.

    Args:
        data: An iterable.
        num_batches: int or `None`. The number of batches in a pass, or `None` if nobody counts
            them. Then all batches belong to epoch 0.
        seed: int or `None`. As in `EpochDataset`.
    """

    num_batches: int | None = None
    in_order = True

    def __init__(self, data: Any, num_batches: int | None, seed: int | None = None) -> None:
        super().__init__(seed)
        self.data = data
        self.num_batches = num_batches
        self._iterator: Any = iter(())
        # The batch that is next, and the states of the iterator before batches.
        self._next = 0
        self._states: dict[int, Any] = {}
        # A thread may read the batches.
        self._lock = threading.Lock()

    def batch(self, epoch: int, index: int) -> Any:
        """Return a batch, as the iterable has it."""
        with self._lock:
            known = self._known(index)
            if index < self._next or known > self._next:
                self._begin(known)
            while True:
                element = next(self._iterator, _END)
                if element is _END:
                    # A new pass. Data without a known end is read again.
                    self._iterator = iter(self.data)
                    element = next(self._iterator)
                self._next += 1
                self._remember()
                if self._next > index:
                    return _plain(element) if _is_data_loader(self.data) else element

    def _begin(self, index):
        self._next, self._iterator = index, iter(() if index == 0 else self.data)
        if index:
            self._iterator.set_state(self._states[index])

    def _remember(self):
        if hasattr(self._iterator, "get_state"):
            self._states[self._next] = self._iterator.get_state()
            if len(self._states) > _KEPT_STATES:
                del self._states[next(iter(self._states))]

    def _known(self, index):
        return max((each for each in self._states if each <= index), default=0)

    def state(self, index: int) -> tuple[int, Any] | None:
        """Return for JSON the nearest state before a batch."""
        with self._lock:
            known = self._known(index)
            state = self._states.get(known)
        # Grain has bytes of text, or a dictionary.
        return state and (known, state.decode() if isinstance(state, bytes) else state)

    def set_state(self, state: tuple[int, Any] | None) -> None:
        """Take what `state` returned in an earlier process."""
        if state:
            index, value = state
            self._states[index] = value.encode() if isinstance(value, str) else value


class OnePass(EpochDataset):
    """The batches of an iterator, which are read once and have no numbers.

    It serves one epoch, and continues in the next one with `steps_per_epoch`.

    Args:
        iterator: The iterator.
        seed: int or `None`. As in `EpochDataset`.
    """

    num_batches = None

    def __init__(self, iterator: Iterator[Any], seed: int | None = None) -> None:
        super().__init__(seed)
        self.iterator = iterator

    def map(self, function: Any, *args: Any, varies_length: bool = False, **kwargs: Any) -> Any:
        """Return this data with a function applied to each batch."""
        found = (function(each, self.generator(0, i)) for i, each in enumerate(self.iterator))
        mapped = OnePass(found, self.seed)
        mapped.varies_length = varies_length
        return mapped


def packed(x: Any, y: Any = None, sample_weight: Any = None) -> tuple[Any, ...]:
    """Return a batch as a tuple, without labels and weights that are `None`."""
    parts = (x, y, sample_weight)
    return parts[:1] if y is None else parts[: 2 + (sample_weight is not None)]


@functools.lru_cache(maxsize=4)
def _order(size, seed, epoch):
    return np.random.default_rng((seed, epoch)).permutation(size)


_END = object()


def _is_data_loader(data: Any) -> bool:
    torch = sys.modules.get("torch")
    return hasattr(torch, "utils") and isinstance(data, torch.utils.data.DataLoader)


def _plain(batch: Any) -> Any:
    """Return a batch of PyTorch's `DataLoader` as other datasets have it.

    PyTorch collects strings in tuples, and the parts of examples in lists. Numbers are tensors, so
    lists of numbers are of the user, such as the labels of words.
    """
    if not isinstance(batch, (list, tuple)):
        return batch
    if all(isinstance(part, list) and part and isinstance(part[0], Real) for part in batch):
        return list(batch)
    is_text = all(isinstance(part, (str, bytes)) for part in batch)
    return list(batch) if is_text else tuple(map(_plain, batch))


def _length(data: Any, steps: int | None) -> int | None:
    """Return the number of batches of a dataset, or `None` if it has no end or is read by steps."""
    if isinstance(data, keras.utils.PyDataset):
        return data.num_batches
    try:
        length = len(data)
    except TypeError:
        # A dataset of `tf.data` says whether it is endless.
        is_endless = getattr(data, "cardinality", lambda: None)() == -1
        return None if steps or is_endless else sum(1 for _ in data)
    # An endless dataset of Grain has this length.
    return None if length == sys.maxsize else length
