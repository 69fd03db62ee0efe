"""The batches of a training that can begin at any batch.

Three kinds of data can tell any of their batches, or can continue where they stopped: arrays and
lists, a `keras.utils.PyDataset`, and a Grain dataset.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_diet._keras_fit import data_of_adapter
from keras_diet._mapped_py_dataset import MappedPyDataset
from keras_diet.training.resume_grain import IteratorSource, MapSource
from keras_diet.training.resume_source import Source, as_array, checksum


class ArraySource(Source):
    """Batches of the examples in arrays or lists.

    Args:
        examples: Function from the numbers of some examples to their batch.
        num_examples: int. Number of examples.
        batch_size: int. Number of examples in a batch.
        shuffle: bool. Whether each pass has a new order.
    """

    def __init__(
        self,
        examples: Callable[[np.ndarray], Any],
        num_examples: int,
        batch_size: int,
        shuffle: bool,
    ) -> None:
        self.examples = examples
        self.num_examples = num_examples
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.num_batches = math.ceil(num_examples / batch_size)
        self.size_of_batches = None if num_examples % batch_size else batch_size

    def facts(self) -> dict[str, Any]:
        """Return what must be the same when the training continues."""
        rows = np.arange(self.num_examples)
        return {
            "number of examples": self.num_examples,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "first examples": checksum(self.examples(rows[: self.batch_size])),
            "last examples": checksum(self.examples(rows[-self.batch_size :])),
        }

    def read(self, seed: int, pass_number: int, start: int) -> Iterator[Any]:
        """Yield the batches of a pass over the examples, from batch `start` on."""
        order = _order(self.num_examples, seed, pass_number, self.shuffle)
        for first in range(start * self.batch_size, self.num_examples, self.batch_size):
            yield self.examples(order[first : first + self.batch_size])


class PyDatasetSource(Source):
    """Batches of a `keras.utils.PyDataset`.

    Args:
        dataset: The dataset. If it has a method `start_at`, each pass calls it with its number.
        shuffle: bool. Whether each pass has a new order of the batches.
        standardize: Function of a batch.
    """

    def __init__(
        self, dataset: keras.utils.PyDataset, shuffle: bool, standardize: Callable[[Any], Any]
    ) -> None:
        self.dataset = dataset
        # The dataset of the user, if a task preprocesses its batches.
        self.original = dataset.dataset if isinstance(dataset, MappedPyDataset) else dataset
        self.num_batches = dataset.num_batches
        self.shuffle = bool(shuffle) and self.num_batches is not None
        self.standardize = standardize
        _check_py_dataset(self.original)

    def facts(self) -> dict[str, Any]:
        """Return what must be the same when the training continues."""
        names = ("batch_size", "tokens_per_batch", "seed")
        settings = {name: getattr(self.original, name, None) for name in names}
        self._begin(pass_number=0)
        facts = {
            "dataset": type(self.original).__name__,
            "number of batches": self.num_batches,
            "shuffle": self.shuffle,
            **{name: value for name, value in settings.items() if isinstance(value, int)},
            "first batch": checksum(self.original[0]),
        }
        if self.num_batches:
            facts["last batch"] = checksum(self.original[self.num_batches - 1])
        return facts

    def read(self, seed: int, pass_number: int, start: int) -> Iterator[Any]:
        """Yield the batches of a pass over the dataset, from batch `start` on."""
        self._begin(pass_number)
        index = start
        order = None
        if self.shuffle:
            order = _order(self.num_batches, seed, pass_number, shuffle=True)
        while self.num_batches is None or index < self.num_batches:
            yield self.standardize(self.dataset[index if order is None else int(order[index])])
            index += 1

    def _begin(self, pass_number):
        if hasattr(self.original, "start_at"):
            self.original.start_at(pass_number)


def source_of(adapter: Any) -> Source:
    """Return the source of the batches that an adapter of Keras or of this library reads.

    Raises:
        ValueError: If the data cannot continue exactly at a batch.
    """
    if hasattr(adapter, "preprocess"):
        return _source_of_data(adapter.data)
    kind, arguments = data_of_adapter(adapter)
    if kind == "arrays":
        return _source_of_arrays(*arguments)
    if kind == "py_dataset":
        return PyDatasetSource(*arguments)
    if kind == "grain":
        return _source_of_data(*arguments)
    raise _cannot_resume(type(adapter).__name__.removesuffix("Adapter"))


def _source_of_data(data):
    if hasattr(data, "num_examples"):
        return ArraySource(data.examples, data.num_examples, data.batch_size, data.shuffle)
    if any(base.__module__.partition(".")[0] == "grain" for base in type(data).__mro__):
        return MapSource(data) if hasattr(data, "__getitem__") else IteratorSource(data)
    raise _cannot_resume(type(data).__name__.removeprefix("_Plain"))


def _source_of_arrays(inputs, batch_size, shuffle):
    if shuffle == "batch":
        raise ValueError(
            "`shuffle` must be a bool with `ExactResume`. Received: shuffle='batch'. Pass "
            "`shuffle=True` for a new order of all examples in each epoch."
        )
    arrays = keras.tree.map_structure(as_array, inputs, none_is_leaf=False)

    def examples(rows):
        return keras.tree.map_structure(lambda array: array[rows], arrays, none_is_leaf=False)

    num_examples = len(keras.tree.flatten(arrays)[0])
    return ArraySource(examples, num_examples, batch_size, bool(shuffle))


def _check_py_dataset(dataset):
    base = keras.utils.PyDataset
    changes = any(
        getattr(type(dataset), name) is not getattr(base, name)
        for name in ("on_epoch_begin", "on_epoch_end")
    )
    if changes and not hasattr(dataset, "start_at"):
        raise ValueError(
            "A `PyDataset` that changes between epochs needs a method `start_at(epoch)`, so that "
            f"`ExactResume` can continue with any epoch. Received: {type(dataset).__name__} with "
            "`on_epoch_begin` or `on_epoch_end`, and without `start_at`. Add the method, as "
            "`keras_diet.training.TokenBatches` has."
        )
    if dataset.workers > 1 or dataset.use_multiprocessing:
        raise ValueError(
            "`ExactResume` reads a `PyDataset` without workers. Received: "
            f"workers={dataset.workers}, use_multiprocessing={dataset.use_multiprocessing}. Pass "
            "`workers=1` and `use_multiprocessing=False`. A Grain `IterDataset` reads ahead."
        )


def _cannot_resume(received):
    return ValueError(
        "`ExactResume` needs data that can continue at any batch. Received: "
        f"{received}, which does not tell where to continue. Pass arrays, lists, a "
        "`keras.utils.PyDataset`, or a Grain dataset to `fit`. Grain shuffles with a seed."
    )


def _order(size, seed, pass_number, shuffle):
    order = np.arange(size)
    if shuffle:
        np.random.default_rng((seed, pass_number)).shuffle(order)
    return order
