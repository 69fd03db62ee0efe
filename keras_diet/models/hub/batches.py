"""Preprocessed batches of what a user passes to `fit`, `evaluate` or `predict`.

All kinds of data become datasets that Keras reads on every backend. A thread preprocesses a few
batches ahead, so that the model need not wait. It is a single thread, so that random masks repeat
after `keras.utils.set_random_seed`.
"""

import itertools
import numbers
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_diet._batch_seed import batch_seed
from keras_diet._compat import IterableAdapter, adapter_of_py_dataset
from keras_diet._mapped_py_dataset import MappedPyDataset
from keras_diet._read_ahead import read_ahead
from keras_diet.models.hub.length_buckets import with_other_lengths

_END = object()


def preprocessed(
    data: Any, preprocess: Callable[[Any], Any], shuffle: bool = False, varies_length: bool = False
) -> Any:
    """Return preprocessed batches for `keras.Model.fit`.

    Args:
        data: Batches that `check_is_dataset` accepts: `ArrayBatches`, a `tf.data.Dataset`, a Grain
            dataset, a `keras.utils.PyDataset`, a PyTorch `DataLoader`, or another iterable.
        preprocess: Function of one batch `(x,)`, `(x, y)` or `(x, y, sample_weight)`. It returns
            such a tuple.
        shuffle: bool. Whether the batches of a `PyDataset` get a new order in each epoch. Defaults
            to `False`.
        varies_length: bool. Whether batches have sequences of different lengths. Defaults to
            `False`.

    Raises:
        ValueError: If `data` is empty.
    """
    if _num_batches(data) == 0:
        raise ValueError(_no_batches(f"{type(data).__name__} of length 0"))
    if is_tf_dataset(data):
        return _map_tf_dataset(data, preprocess)
    # Keras on TensorFlow would take the lengths of the first two batches for those of all.
    varies_length = varies_length and keras.config.backend() == "tensorflow"
    if isinstance(data, keras.utils.PyDataset):
        batches = MappedPyDataset(data, preprocess)
        if not varies_length:
            return batches
        return adapter_of_py_dataset(batches, shuffle, with_other_lengths(batches[0]))
    if is_data_loader(data):
        data = _PlainDataLoader(data)
    return PreprocessedBatches(data, preprocess, varies_length)


def check_is_dataset(name: str, data: Any) -> None:
    """Raise a `ValueError` unless `data` can be read batch by batch."""
    can_be_read = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if not can_be_read or isinstance(data, (type, set, frozenset)):
        raise ValueError(
            f"`{name}` must be an array, a list, a dataset, or a generator of batches. Received: "
            f"{type(data).__name__}. Put the examples into a list. Call a function that returns a "
            "generator."
        )


def check_left_out(data: Any, **arguments: Any) -> None:
    """Raise a `ValueError` for arguments that are given, although the data is a dataset."""
    for name, value in arguments.items():
        if value is not None:
            dataset = "validation_data" if name == "validation_batch_size" else "x"
            remedy = "Its batches contain the labels and the weights."
            if name.endswith("batch_size"):
                remedy = "Set the batch size in the dataset."
            raise ValueError(
                f"`{name}` must be `None` if `{dataset}` is a dataset or a generator. Received: "
                f"{dataset}={type(data).__name__}. {remedy}"
            )


def is_tf_dataset(data: Any) -> bool:
    """Return whether `data` is a `tf.data.Dataset`, without an import of TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    return hasattr(tensorflow, "data") and isinstance(data, tensorflow.data.Dataset)


def is_data_loader(data: Any) -> bool:
    """Return whether `data` is PyTorch's `DataLoader`, without an import of PyTorch."""
    torch = sys.modules.get("torch")
    return hasattr(torch, "utils") and isinstance(data, torch.utils.data.DataLoader)


def _map_tf_dataset(dataset, preprocess):
    import tensorflow as tf

    # Without autograph, errors are raised as they are. It would add pages about its own code.
    @tf.autograph.experimental.do_not_convert
    def of_element(*batch):
        return preprocess(batch)

    return dataset.map(of_element, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


class _PlainDataLoader:
    """A `DataLoader` whose batches are tuples of lists and tensors, as in other datasets."""

    def __init__(self, data_loader):
        self._data_loader = data_loader

    def __len__(self):
        return len(self._data_loader)

    def __iter__(self):
        return map(_plain, self._data_loader)


def _plain(batch):
    if isinstance(batch, list) and _holds_lists_of_numbers(batch):
        # PyTorch makes tensors of numbers, so these are of a user, such as the labels of words.
        return batch
    # PyTorch collects strings in tuples, and the parts of examples in lists.
    if isinstance(batch, (list, tuple)):
        is_text = all(isinstance(part, (str, bytes)) for part in batch)
        return list(batch) if is_text else tuple(map(_plain, batch))
    return batch


def _holds_lists_of_numbers(rows):
    lists = [row for row in rows if isinstance(row, list) and row]
    return len(lists) == len(rows) and all(isinstance(row[0], numbers.Real) for row in lists)


class PreprocessedBatches(IterableAdapter):
    """The batches of any iterable, in its order, as Keras reads them on each backend.

    Each epoch calls `iter(data)` again. An iterator cannot start again, so its first two batches
    are all that it has left for the second epoch, as in Keras.

    Args:
        data: The iterable.
        preprocess: Function of one batch.
        varies_length: bool. Whether TensorFlow must expect other lengths than those of the first
            two batches. Defaults to `False`.
    """

    def __init__(
        self, data: Any, preprocess: Callable[[Any], Any], varies_length: bool = False
    ) -> None:
        num_batches = _num_batches(data)
        # An endless dataset of Grain has this length.
        super().__init__(None if num_batches == sys.maxsize else num_batches)
        self.data = data
        self.preprocess = preprocess
        self._varies_length = varies_length
        self._is_iterator = hasattr(data, "__next__") and iter(data) is data
        self._first = list(itertools.islice(self._batches(), 2)) if self._is_iterator else []

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one pass."""
        batch = _END
        for batch in itertools.chain(self._first, self._batches()):
            yield batch
        if batch is _END:
            raise ValueError(_no_batches(f"{type(self.data).__name__} without batches"))

    def examples(self) -> list[Any]:
        """Return two batches, from which Keras on TensorFlow learns which sizes are fixed."""
        # These batches do not belong to a pass, so what they draw must not change it.
        with batch_seed((0,)):
            batches = map(self.preprocess, _one_pass(self.data))
            first = self._first or list(itertools.islice(batches, 2))
        if not first:
            raise ValueError(_no_batches(f"{type(self.data).__name__} without batches"))
        return with_other_lengths(first[0]) if self._varies_length else first

    def _batches(self):
        batches = map(self.preprocess, _one_pass(self.data))
        # What is read ahead of the last step would be lost to a later call.
        return batches if self._is_iterator else read_ahead(batches)


def _num_batches(batches: Any) -> int | None:
    try:
        return len(batches)
    except TypeError:
        # Generators, and a `DataLoader` of an iterable, have no length.
        return None


def _no_batches(received: str) -> str:
    return (
        f"A dataset must have at least one batch. Received: {received}. Pass data, or a smaller "
        "batch size if incomplete batches are dropped."
    )


def _one_pass(data: Any) -> Iterator[Any]:
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        # The iterator of a Grain dataset would read 500 batches ahead, in 16 threads.
        return (data[i] for i in range(len(data)))
    return iter(data)
