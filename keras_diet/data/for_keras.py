"""The only door to Keras: what its methods read in place of an `EpochDataset`."""

import functools
import itertools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_diet.data.columns import arrays, is_columns
from keras_diet.data.epoch_dataset import EpochDataset, warn_of_workers
from keras_diet.data.random_states import seeded
from keras_diet.data.sources import OnePass
from keras_diet.types import Columns

# The rows of a batch, the texts of an example, and the tokens of a text.
_ALL_AXES: tuple[int, ...] = (0, 1, 2)


def for_keras(data: EpochDataset) -> Any:
    """Return what `keras.Model.fit` reads: the data, a generator or a `tf.data.Dataset`.

    Keras on TensorFlow takes the lengths of the first two batches for those of all. So batches of
    different lengths need a dataset that says which sizes are fixed.
    """
    is_plain = keras.config.backend() != "tensorflow" or not data.varies_length
    if isinstance(data, OnePass):
        batches = data.iterator
        if is_plain:
            return batches
        first = next(batches)
        return tf_dataset_of(lambda: itertools.chain([first], batches), None, [first], _ALL_AXES)
    if is_plain:
        return data

    def one_epoch():
        epoch = data.epoch
        data.on_epoch_begin()
        for index in range(sys.maxsize if data.num_batches is None else data.num_batches):
            yield data.batch(epoch, index)
        data.on_epoch_end()

    return tf_dataset_of(one_epoch, data.num_batches, [data.batch(0, 0)], _ALL_AXES)


def without_preprocessor(
    x: Any, y: Any, sample_weight: Any, read: Callable[..., Columns]
) -> Columns:
    """Return what a user passes: columns after `read` has checked them, and datasets as they are.

    Keras reads arrays and datasets of arrays itself.
    """
    if is_columns(x):
        return read(x, y, sample_weight)
    if isinstance(x, keras.utils.PyDataset):
        warn_of_workers(x)
    return x, y, sample_weight


def tf_dataset_of(
    batches: Callable[[], Iterable[tuple[Any, ...]]],
    num_batches: int | None,
    examples: list[tuple[Any, ...]],
    varying_axes: tuple[int, ...],
) -> Any:
    """Return a `tf.data.Dataset` that tells which sizes all batches share.

    Args:
        batches: Function without arguments that begins to read the batches.
        num_batches: int or `None`. The number of batches, `-1` for endless ones, or `None` if it is
            not known.
        examples: Some of the batches. A size in which they differ is not fixed.
        varying_axes: The axes whose sizes are not fixed. But Keras must know that labels and
            weights are a column `(n, 1)`.
    """
    import tensorflow as tf

    def spec_of(is_input, *arrays):
        sizes = list(arrays[0].shape)
        for axis, size in enumerate(sizes):
            is_column = axis > 0 and size == 1 and not is_input
            # Only token ids have two axes of texts. Floats have features there.
            is_feature = axis > 1 and np.issubdtype(arrays[0].dtype, np.floating)
            is_varying = axis in varying_axes and not (is_column or is_feature)
            if is_varying or any(each.shape[axis] != size for each in arrays):
                sizes[axis] = None
        return tf.TensorSpec(sizes, arrays[0].dtype)

    signature = tuple(
        keras.tree.map_structure(functools.partial(spec_of, part == 0), *of_examples)
        for part, of_examples in enumerate(zip(*examples, strict=True))
    )
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    if num_batches is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
    return dataset.prefetch(tf.data.AUTOTUNE)


class Steps(keras.utils.PyDataset):
    """The steps of an epoch, from step `start` on. They need not be a pass over the data.

    Args:
        data: The batches.
        num_steps: int or `None`. The number of steps of an epoch. They may begin within a pass over
            the data and end within another one. `None` means a pass.

    Attributes:
        epoch: int. The epoch whose steps are read.
        start: int. The number of steps of this epoch that were done before.
    """

    def __init__(self, data: EpochDataset, num_steps: int | None = None) -> None:
        super().__init__()
        self.data = data
        number = num_steps or data.num_batches
        if number is None:
            raise ValueError(
                "`steps_per_epoch` must be a number if the data has no end. Received: "
                "steps_per_epoch=None. Pass the number of steps in an epoch."
            )
        self.num_steps = int(number)
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
        return self._batch(*self.place(self.epoch, self.start + index))

    def _batch(self, epoch, index):
        """Return a batch. If reading draws random numbers, it draws the same ones each time."""
        with seeded(self.data.seed, epoch, index):
            return self.data.batch(epoch, index)

    @functools.cached_property
    def examples(self) -> list[tuple[Any, ...]]:
        """The first two batches, and the last one of data that can be read from any place."""
        last = 1 if self.data.in_order else (self.data.num_batches or 2) - 1
        indices = (0, min(1, last), last)
        batches = {index: _new_arrays(self._batch(0, index)) for index in dict.fromkeys(indices)}
        return [batches[index] for index in indices]

    def for_keras(self) -> Any:
        """Return this object, or a `tf.data.Dataset` with the right sizes of all batches."""
        if keras.config.backend() != "tensorflow":
            return self
        axes = _ALL_AXES if self.data.varies_length else _ALL_AXES[:1]
        axes = tuple(axis for axis in axes if axis or not self.data.same_size)
        return tf_dataset_of(
            lambda: (_new_arrays(self[index]) for index in range(self.num_batches)),
            self.num_batches,
            self.examples,
            axes,
        )


def _new_arrays(batch):
    """Return a tuple of new arrays.

    TensorFlow does not copy what it reads, and a replica may write its results there.
    """
    batch = tuple(batch) if isinstance(batch, (list, tuple)) else (batch,)
    return keras.tree.map_structure(lambda leaf: np.array(arrays(leaf)), batch)
