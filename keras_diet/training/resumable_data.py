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

from keras_diet.training.epoch_dataset import EpochDataset
from keras_diet.training.random_states import seeded

_BATCH_SIZE = 32


class ArrayBatches(EpochDataset):
    """Batches of the rows of arrays, in a new order in each epoch if they are shuffled."""

    same_size = True

    def __init__(self, x: Any, y: Any, sample_weight: Any, batch_size: int, shuffle: bool) -> None:
        super().__init__()
        self.columns = _map(_as_array, (x, y, sample_weight))
        sizes = {len(array) for array in _leaves(self.columns)}
        if len(sizes) != 1:
            raise ValueError(
                "`x`, `y` and `sample_weight` must have the same number of examples. Received: "
                f"{sorted(sizes)} examples. Pass a label and a weight for each example."
            )
        self.num_examples = sizes.pop()
        self.batch_size = batch_size
        self.shuffle = shuffle

    @property
    def num_batches(self) -> int:
        """The number of batches in an epoch."""
        return math.ceil(self.num_examples / self.batch_size)

    def batch(self, epoch: int, index: int) -> tuple[Any, ...]:
        """Return a batch of an epoch."""
        order = _order(self.num_examples, self.seed, epoch, self.shuffle)
        rows = order[index * self.batch_size : (index + 1) * self.batch_size]
        columns = _map(lambda array: array[rows], self.columns)
        return keras.utils.pack_x_y_sample_weight(*columns)


class IndexedBatches(EpochDataset):
    """The batches of a `keras.utils.PyDataset` or a Grain `MapDataset`, each by its number.

    While a batch is read, the generators of Python and NumPy have a seed that follows from its
    number. So the dataset may draw from them.
    """

    num_batches: int | None = None

    def __init__(self, dataset: Any, num_batches: int | None, shuffle: bool = False) -> None:
        names = ("workers", "use_multiprocessing", "max_queue_size")
        is_keras = isinstance(dataset, keras.utils.PyDataset)
        super().__init__(**{name: getattr(dataset, name) for name in names if is_keras})
        self.dataset = dataset
        self.num_batches = num_batches
        self.shuffle = shuffle and num_batches is not None
        # Batches of Grain have the same size, except for the last one.
        self.same_size = not is_keras and num_batches is not None

    def batch(self, epoch: int, index: int) -> Any:
        """Return a batch of an epoch."""
        place = index
        if self.shuffle:
            place = int(_order(self.num_batches, self.seed, epoch, shuffle=True)[index])
        with seeded(self.seed, epoch, index):
            return self.dataset[place]


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

    def _step(self, epoch, index):
        return epoch * (self.num_batches or 0) + index

    def batch(self, epoch: int, index: int) -> Any:
        """Return a batch of an epoch."""
        step = self._step(epoch, index)
        with self._lock:
            if step != self._next:
                self._next, state = self._known(step)
                self._iterator = iter(self.dataset)
                self._iterator.set_state(state)
            while self._next <= step:
                batch = next(self._iterator, None)
                if batch is None:
                    self._iterator = iter(self.dataset)
                    batch = next(self._iterator)
                self._next += 1
                self._states[self._next] = self._iterator.get_state()
        return batch

    def _known(self, step):
        """Return the last step up to `step` whose state is known, and the state."""
        known = max(each for each in self._states if each <= step)
        return known, self._states[known]

    def state(self, epoch: int, index: int) -> tuple[int, Any]:
        """Return for JSON how to continue at a batch, and forget earlier states."""
        with self._lock:
            known, state = self._known(self._step(epoch, index))
            # The first batches are read again to know the sizes of batches.
            kept = [each for each in self._states if each >= known or each == 0]
            self._states = {each: self._states[each] for each in kept}
        # Grain has bytes of text, or a dictionary.
        return known, state.decode() if isinstance(state, bytes) else state

    def set_state(self, state: tuple[int, Any]) -> None:
        """Take what `state` returned in an earlier process."""
        known, value = state
        self._states[known] = value.encode() if isinstance(value, str) else value


def resumable(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    shuffle: bool = False,
    steps: int | None = None,
) -> EpochDataset:
    """Return the data of `fit` as an `EpochDataset`.

    Args:
        x: Arrays or lists of numbers, or a dataset.
        y: Labels, or `None`.
        sample_weight: Weights, or `None`.
        batch_size: int or `None`.
        shuffle: bool.
        steps: int or `None`. The number of steps in an epoch. `None` means a pass over the data.

    Raises:
        ValueError: If the data cannot continue exactly at a batch.
    """
    if is_columns(x):
        return ArrayBatches(x, y, sample_weight, batch_size or _BATCH_SIZE, shuffle)
    check_can_resume(x)
    ignored = {"y": y, "sample_weight": sample_weight, "batch_size": batch_size}
    for name, value in ignored.items():
        if value is not None:
            raise ValueError(
                f"`{name}` must be `None` if `x` is a dataset. Received: x={type(x).__name__}. Its "
                "batches contain labels and weights."
            )
    if isinstance(x, EpochDataset):
        return x
    if isinstance(x, keras.utils.PyDataset):
        return IndexedBatches(x, x.num_batches, shuffle)
    if hasattr(x, "__getitem__"):
        # An endless dataset has the largest length that Python knows.
        return IndexedBatches(x, len(x) if len(x) < sys.maxsize else None)
    return IteratorBatches(x, None if steps else sum(1 for _ in x))


def is_columns(data: Any) -> bool:
    """Return whether data has an entry for each example: arrays, lists, and structures of them."""
    is_dataset = isinstance(data, keras.utils.PyDataset) or _is_grain(data)
    return isinstance(data, (list, tuple, dict)) or (hasattr(data, "shape") and not is_dataset)


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


def split(data: Any, validation_split: float) -> tuple[Any, Any]:
    """Return the first examples for training, and the last ones for validation, as Keras does."""
    place = math.floor(len(_leaves(data)[0]) * (1 - validation_split))
    return _map(lambda column: column[:place], data), _map(lambda column: column[place:], data)


class Steps(keras.utils.PyDataset):
    """What Keras reads: the steps of an epoch, from step `start` on.

    Args:
        data: The batches.
        num_steps: int or `None`. The number of steps of an epoch. They may begin within a pass over
            the data and end within another one. `None` means a pass.
        varies_length: bool. Whether the second axis has another size in other batches. Defaults to
            `False`.

    Attributes:
        epoch: int. The epoch whose steps are read.
        start: int. The number of steps of this epoch that were done before.
    """

    def __init__(
        self, data: EpochDataset, num_steps: int | None = None, varies_length: bool = False
    ) -> None:
        super().__init__(data.workers, data.use_multiprocessing, data.max_queue_size)
        self.data = data
        if num_steps is None and data.num_batches is None:
            raise ValueError(
                "`steps_per_epoch` must be a number if the data has no end. Received: "
                "steps_per_epoch=None. Pass the number of steps in an epoch."
            )
        self.num_steps = int(num_steps or data.num_batches)
        self.varies_length = varies_length or data.varies_length
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

    def examples(self) -> list[Any]:
        """Return the first batch, and if the data has an end the last one."""
        last = self.data.num_batches
        return [self.data.batch(0, index) for index in ([0, last - 1] if last else [0])]

    def facts(self) -> dict[str, Any]:
        """Return what must be the same when the training continues."""
        examples = self.examples()
        facts: dict[str, Any] = {
            "data": type(self.data).__name__,
            "number of examples": getattr(self.data, "num_examples", None),
            "number of batches": self.data.num_batches,
            "batch_size": _size(examples[0]),
            "shuffle": getattr(self.data, "shuffle", None),
            "size of the last batch": _size(examples[-1]),
            "first batch": _checksum(examples[0]),
            "last batch": _checksum(examples[-1]),
        }
        if self.data.has_own_seed:
            facts["seed of the data"] = self.data.seed
        return facts

    def position(self, epoch: int, step: int) -> dict[str, Any]:
        """Return what a later process needs to read from a step on."""
        state = getattr(self.data, "state", None)
        return {"seed": self.data.seed, "state": state and state(*self.place(epoch, step))}

    def continue_at(self, position: dict[str, Any]) -> None:
        """Take what `position` returned in an earlier process."""
        if not self.data.has_own_seed:
            self.data.seed = position["seed"]
        if position["state"] is not None:
            self.data.set_state(position["state"])

    def for_keras(self) -> Any:
        """Return this object, or a `tf.data.Dataset` with the right sizes of all batches.

        On TensorFlow, Keras takes the sizes of the first two batches for those of all.
        """
        if keras.config.backend() != "tensorflow":
            return self
        import tensorflow as tf

        same_size = getattr(self.data, "same_size", False)
        examples = [_tuple(batch) for batch in self.examples()]
        if self.num_steps > 1:
            examples.append(_tuple(self.data.batch(*self.place(0, 1))))

        def spec(*arrays):
            shape = [
                sizes.pop() if len(sizes) == 1 else None
                for sizes in map(set, zip(*(each.shape for each in arrays), strict=True))
            ]
            if not same_size:
                shape[0] = None
            if self.varies_length and len(shape) > 1:
                shape[1] = None
            return tf.TensorSpec(shape, arrays[0].dtype)

        dataset = tf.data.Dataset.from_generator(
            lambda: (_tuple(self[index]) for index in range(self.num_batches)),
            output_signature=keras.tree.map_structure(spec, *examples),
        )
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(self.num_batches))
        return dataset.prefetch(tf.data.AUTOTUNE)


def _tuple(batch):
    """Return a batch as TensorFlow needs it: a tuple of arrays."""
    batch = tuple(batch) if isinstance(batch, (list, tuple)) else (batch,)
    return _map(_as_array, batch)


def _size(batch):
    return next((len(leaf) for leaf in keras.tree.flatten(batch) if np.ndim(leaf)), None)


def _checksum(batch):
    """Return a number that other data, another order or another seed would change."""
    value = 0
    for leaf in keras.tree.flatten(batch):
        value = zlib.crc32(np.ascontiguousarray(_as_array(leaf)), value)
    return f"checksum {value:08x}"


# === Columns ===


def _map(function, columns):
    """Apply a function to each column. A list of numbers or texts is a column."""
    if columns is None:
        return None
    if isinstance(columns, dict):
        return {name: _map(function, column) for name, column in columns.items()}
    is_array = [hasattr(each, "shape") and len(each.shape) for each in columns[:1]]
    if isinstance(columns, tuple) or (isinstance(columns, list) and any(is_array)):
        return tuple(_map(function, column) for column in columns)
    return function(columns)


def _leaves(columns):
    leaves: list[Any] = []
    _map(leaves.append, columns)
    return leaves


def _as_array(column):
    # NumPy cannot read tensors that are on a GPU, or that record gradients.
    is_tensor = keras.ops.is_tensor(column)
    array = keras.ops.convert_to_numpy(column) if is_tensor else np.asarray(column)
    return array.astype(keras.config.floatx()) if array.dtype == "float64" else array


@functools.lru_cache(maxsize=4)
def _order(size, seed, epoch, shuffle):
    return np.random.default_rng((seed, epoch)).permutation(size) if shuffle else np.arange(size)
