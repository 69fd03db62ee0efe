"""Preprocessed batches of what a user passes to `fit`, `evaluate` or `predict`.

All kinds of data become datasets that Keras reads on every backend. A thread preprocesses a few
batches ahead, so that the model need not wait. It is a single thread, so that random masks repeat
after `keras.utils.set_random_seed`.
"""

import collections
import concurrent.futures
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras

_READ_AHEAD = 4
_END = object()


def preprocessed(data: Any, preprocess: Callable[[Any], Any]) -> Any:
    """Return a dataset of preprocessed batches for `keras.Model.fit`.

    Args:
        data: Batches that `check_is_dataset` accepts: `ArrayBatches`, a `tf.data.Dataset`, a Grain
            dataset, a `keras.utils.PyDataset`, a PyTorch `DataLoader`, or another iterable.
        preprocess: Function of one batch `(x,)`, `(x, y)` or `(x, y, sample_weight)`.

    Raises:
        ValueError: If `data` is empty.
    """
    if _num_batches(data) == 0:
        raise ValueError(
            f"A dataset must have at least one batch. Received: {type(data).__name__} of length 0. "
            "Pass data, or a smaller batch size if incomplete batches are dropped."
        )
    if is_tf_dataset(data):
        return _map_tf_dataset(data, preprocess)
    if isinstance(data, keras.utils.PyDataset):
        return _MappedPyDataset(data, preprocess)
    if is_data_loader(data):
        data = _PlainDataLoader(data)
    if _num_batches(data) is not None:
        return _PreprocessedBatches(data, preprocess)
    if hasattr(data, "map"):
        # A dataset of Grain. Keras starts it again for each epoch.
        return data.map(preprocess)
    return (preprocess(batch) for batch in data)


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
            raise ValueError(
                f"`{name}` must be `None` if `x` is a dataset or a generator. Received: "
                f"x={type(data).__name__}. Its batches contain the labels and the weights."
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
    # PyTorch collects strings in tuples, and the parts of examples in lists.
    if isinstance(batch, (list, tuple)):
        is_text = all(isinstance(part, (str, bytes)) for part in batch)
        return list(batch) if is_text else tuple(map(_plain, batch))
    return batch


class _PreprocessedBatches(keras.utils.PyDataset):
    """Batches in the order of a sized iterable. Each pass over them starts with batch 0."""

    def __init__(self, batches, preprocess):
        super().__init__()
        self._batches = batches
        self._preprocess = preprocess
        self._pass = iter(())

    @property
    def num_batches(self):
        # An endless dataset of Grain has this length.
        num_batches = _num_batches(self._batches)
        return None if num_batches == sys.maxsize else num_batches

    def __getitem__(self, index):
        if index == 0:
            self._pass = _read_ahead(map(self._preprocess, _one_pass(self._batches)))
        return next(self._pass)


def _num_batches(batches: Any) -> int | None:
    try:
        return len(batches)
    except TypeError:
        # Generators, and a `DataLoader` of an iterable, have no length.
        return None


def _one_pass(batches: Any) -> Iterator[Any]:
    if hasattr(batches, "__getitem__"):
        # The iterator of a Grain dataset would read 500 batches ahead, in 16 threads.
        return (batches[i] for i in range(len(batches)))
    return iter(batches)


def _read_ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the elements of an iterator that a thread keeps a few elements ahead."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as thread:
        pending: collections.deque[concurrent.futures.Future[Any]]
        pending = collections.deque(thread.submit(next, batches, _END) for _ in range(_READ_AHEAD))
        while (batch := pending.popleft().result()) is not _END:
            pending.append(thread.submit(next, batches, _END))
            yield batch


class _MappedPyDataset(keras.utils.PyDataset):
    """The batches of a dataset of the user, with its settings for workers."""

    def __init__(self, dataset, preprocess):
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self._dataset = dataset
        self._preprocess = preprocess

    @property
    def num_batches(self):
        return self._dataset.num_batches

    def __getitem__(self, index):
        return self._preprocess(self._dataset[index])

    def on_epoch_begin(self):
        self._dataset.on_epoch_begin()

    def on_epoch_end(self):
        self._dataset.on_epoch_end()
