"""Texts as batches of arrays: the one place where what a user passes becomes batches."""

import itertools
import sys
from collections.abc import Iterator
from numbers import Real
from typing import Any

import keras

from keras_diet.models.hub.document_inputs import without_documents
from keras_diet.models.hub.preprocessor import HubPreprocessor
from keras_diet.models.hub.texts import holds_text
from keras_diet.models.hub.token_inputs import check_token_inputs
from keras_diet.training.columns import host_column, map_columns, number_of_rows
from keras_diet.training.epoch_dataset import as_tf_dataset
from keras_diet.training.resumable_data import BATCH_SIZE, Batches

_END = object()


class TaskData(Batches):
    """The batches of a task, made from texts and labels.

        batch(epoch, index) = preprocessor.make_batch(rows of columns, generator(epoch, index))

    Everything that is random, which is the order and masks, depends on the seed, the epoch and the
    index of a batch only.

    Args:
        task: The model. Its preprocessor makes the batches.
        data: Columns from `task.columns`, with `columns=True`. Or a dataset of batches of texts:
            `keras.utils.PyDataset`, Grain, `tf.data`, a PyTorch `DataLoader`, or another iterable.
        columns: bool. Whether `data` are columns.
        batch_size: int or `None`. The size of the batches of columns. Defaults to `None`, which
            means 32.
        shuffle: bool. Whether each epoch has a new order of the rows of columns, or of the batches
            of a dataset that can be indexed. Defaults to `False`.
        training: bool. Whether each epoch has new masks. Otherwise all epochs are the same.
            Defaults to `True`.
        steps: int or `None`. If the length of a dataset is not known, `None` reads it once to count
            its batches. Otherwise it is read again and again. Defaults to `None`.
        labels: bool. Whether the loss is computed, so that labels are read. Defaults to `True`.
    """

    def __init__(
        self,
        task: Any,
        data: Any,
        columns: bool,
        batch_size: int | None = None,
        shuffle: bool = False,
        training: bool = True,
        steps: int | None = None,
        labels: bool = True,
    ) -> None:
        # A generator serves one epoch, and continues in the next one with `steps_per_epoch`.
        self.is_iterator = hasattr(data, "__next__")
        can_be_indexed = columns or hasattr(data, "__getitem__")
        num_items = number_of_rows(x=data[0]) if columns else _length(data, steps)
        if num_items == 0:
            raise ValueError("A dataset must have at least one batch. Received: no batches")
        size = BATCH_SIZE if batch_size is None else batch_size
        is_random = training and (shuffle or getattr(task.preprocessor, "is_random", False))
        super().__init__(
            data if can_be_indexed or self.is_iterator else _Passes(data),
            num_items,
            size if columns else None,
            shuffle and can_be_indexed and num_items is not None,
            # `predict` draws nothing from NumPy's generator.
            seed=None if is_random else 0,
        )
        self.task = task
        self.same_size = self.same_size and not self._is_packed
        self.training = training
        self.labels = labels
        self._pass = 0

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return a batch of the current pass over the data."""
        # With `steps_per_epoch`, a pass takes several epochs.
        if index == 0 or self.workers > 1:
            self._pass = self.epoch
        return self.batch(self._pass, index)

    def batch(self, epoch: int, index: int) -> tuple[Any, ...]:
        """Return a batch of an epoch: arrays for the model."""
        if self.is_iterator:
            raise ValueError(
                "The batches of a generator have no index. Pass the generator to `fit`, or pass "
                f"`list(generator)`. Received: {type(self.data).__name__}"
            )
        epoch = epoch if self.training else 0
        rows = self.read(epoch, index)
        make = self._of_element if self.batch_size is None else self._arrays
        return make(rows, epoch, index)

    def _of_element(self, element, epoch, index):
        # A list of texts is not a list of inputs, labels and weights.
        element = (element,) if isinstance(element, list) and holds_text(element) else element
        parts = keras.utils.unpack_x_y_sample_weight(element)
        task = self.task
        columns = task.columns_of_examples(*parts) if self.labels else task.columns(parts[0])
        return self._arrays(columns, epoch, index)

    def _arrays(self, columns, epoch, index):
        # An example may have several texts, in a row of an array.
        shape = columns[0].shape if getattr(columns[0], "ndim", 1) > 1 else None
        if shape:
            columns = (columns[0].reshape(-1).tolist(), *columns[1:])
        if isinstance(self.task.preprocessor, HubPreprocessor):
            batch = self.task.preprocessor.make_batch(*columns, self.generator(epoch, index))
        else:
            # A function, or a preprocessor of KerasHub, which returns tensors.
            batch = keras.utils.unpack_x_y_sample_weight(self.task.preprocess_samples(*columns))
            batch = map_columns(host_column, batch)
        inputs = batch[0]
        if self.task.token_inputs:
            # For example, there may be more texts than segments.
            tokens = without_documents(inputs) if self._is_packed else inputs
            check_token_inputs(tokens, self.task.token_inputs)
        if shape and self._is_packed:
            inputs["document_first_tokens"] = inputs["document_first_tokens"].reshape(shape)
        elif shape:
            inputs = map_columns(lambda array: array.reshape(*shape, -1), inputs)
        batch = (inputs, *batch[1:])
        return keras.utils.pack_x_y_sample_weight(*batch) if batch[1] is not None else batch[:1]

    def on_epoch_begin(self) -> None:
        """Tell the dataset of the user that an epoch begins."""
        if isinstance(self.data, keras.utils.PyDataset):
            self.data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Count the epochs, and tell the dataset of the user that one ends."""
        super().on_epoch_end()
        if isinstance(self.data, keras.utils.PyDataset):
            self.data.on_epoch_end()

    # === What Keras reads ===

    @property
    def varies_length(self) -> bool:  # type: ignore[override]
        """Whether batches have the lengths of buckets."""
        return bool(getattr(self.task.preprocessor, "length_buckets", None))

    @property
    def _is_packed(self):
        return getattr(self.task.preprocessor, "packed", False)

    def for_keras(self) -> Any:
        """Return what `keras.Model.fit` reads: this object, a generator or a `tf.data.Dataset`.

        Keras on TensorFlow takes the lengths of the first two batches for those of all. So batches
        of different lengths need a dataset that says which sizes are fixed.
        """
        if keras.config.backend() != "tensorflow" or not self.varies_length:
            return self._one_pass() if self.is_iterator else self
        if not self.is_iterator:
            return as_tf_dataset(self._one_pass, self.num_batches, [self.batch(0, 0)], (0, 1, 2))
        batches = self._one_pass()
        first = next(batches)
        return as_tf_dataset(lambda: itertools.chain([first], batches), None, [first], (0, 1, 2))

    def _one_pass(self) -> Iterator[tuple[Any, ...]]:
        if self.is_iterator:
            for index, element in enumerate(self.data):
                yield self._of_element(element, 0, index)
            return
        epoch = self.epoch
        self.on_epoch_begin()
        for index in range(sys.maxsize if self.num_batches is None else self.num_batches):
            yield self.batch(epoch, index)
        self.on_epoch_end()


class _Passes:
    """An iterable whose elements are asked for in their order. Element 0 begins a new pass."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._next = 0
        self._iterator = iter(())

    def __getitem__(self, index: int) -> Any:
        if index < self._next:
            self._next, self._iterator = 0, iter(())
        element = _END
        while self._next <= index:
            element = next(self._iterator, _END)
            if element is _END:
                # A new pass. Data without a known end is read again.
                self._iterator = iter(self._data)
                element = next(self._iterator)
            self._next += 1
        return _plain(element) if _is_data_loader(self._data) else element


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
        is_counted = not (is_endless or steps or hasattr(data, "__next__"))
        return sum(1 for _ in data) if is_counted else None
    # An endless dataset of Grain has this length.
    return None if length == sys.maxsize else length
