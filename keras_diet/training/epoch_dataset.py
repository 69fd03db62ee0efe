"""The base class of data that can be read from any epoch and any batch on."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np


class EpochDataset(keras.utils.PyDataset):
    """A `keras.utils.PyDataset` whose batches depend only on a seed, the epoch and their index.

        batch = f(seed, epoch, index)

    So a training can resume at any batch, and two readers of the same data get the same batches.
    The batches are arrays that a model takes: `(x,)`, `(x, y)` or `(x, y, sample_weight)`. The
    models of this library hand an `EpochDataset` to Keras as it is, without their preprocessor.

    A subclass implements `batch` and `num_batches`.

    Args:
        seed: int or `None`. Seed of all that is random. Defaults to `None`, which draws it from
            NumPy's global generator, so that `keras.utils.set_random_seed` determines it.
        **kwargs: Keyword arguments of `keras.utils.PyDataset`.

    Attributes:
        epoch: int. The epoch whose batches `dataset[index]` returns. `fit` counts it up, also if
            `steps_per_epoch` ends an epoch within a pass. `ExactResume` counts the passes.
        has_own_seed: bool. Whether `seed` was passed.
        varies_length: bool. Whether the second axis of arrays, such as the length of sequences,
            has another size in other batches. `ExactResume` tells TensorFlow. Defaults to `False`.

    Example:

    ```python
    class NoisyBatches(keras_diet.training.EpochDataset):
        num_batches = 3

        def batch(self, epoch, index):
            x = self.generator(epoch, index).normal(size=(4, 2))
            return x, x.sum(axis=1)

    NoisyBatches(seed=5).batch(epoch=2, index=1)[0].shape  # (4, 2)
    ```
    """

    varies_length = False

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.has_own_seed = seed is not None
        self.seed = int(np.random.randint(2**31)) if seed is None else seed
        self.epoch = 0

    def batch(self, epoch: int, index: int) -> tuple[Any, ...]:
        """Return a batch of an epoch."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return a batch of the current epoch."""
        return self.batch(self.epoch, index)

    def generator(self, epoch: int, index: int) -> np.random.Generator:
        """Return the random numbers of a batch."""
        return np.random.default_rng((self.seed, epoch, index))

    def on_epoch_end(self) -> None:
        """Begin the next epoch."""
        self.epoch += 1


def as_tf_dataset(
    batches: Callable[[], Iterable[tuple[Any, ...]]],
    num_batches: int | None,
    examples: list[tuple[Any, ...]],
    varying_axes: tuple[int, ...],
) -> Any:
    """Return a `tf.data.Dataset` that tells which sizes all batches share.

    Keras on TensorFlow takes the sizes of the first two batches of a `keras.utils.PyDataset` for
    those of all.

    Args:
        batches: Function without arguments that begins to read the batches.
        num_batches: int or `None`. The number of batches, `-1` for endless ones, or `None` if it is
            not known.
        examples: Some of the batches. A size in which they differ is not fixed.
        varying_axes: The axes whose sizes are never fixed.
    """
    import tensorflow as tf

    def spec(*arrays):
        sizes = list(arrays[0].shape)
        for axis, size in enumerate(sizes):
            if axis in varying_axes or any(each.shape[axis] != size for each in arrays):
                sizes[axis] = None
        return tf.TensorSpec(sizes, arrays[0].dtype)

    signature = keras.tree.map_structure(spec, *examples)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    if num_batches is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
    return dataset.prefetch(tf.data.AUTOTUNE)


def with_ranks(data: Any) -> Any:
    """Return a dataset of `tf.data` whose tensors have a known rank, which Keras needs.

    `from_generator` with types only does not know it. Then the first batch is read.
    """

    def is_unknown(part):
        return getattr(getattr(part, "shape", None), "rank", 0) is None

    if not any(map(is_unknown, keras.tree.flatten(getattr(data, "element_spec", ())))):
        return data
    first = next(iter(data))

    def with_rank(part, example):
        if is_unknown(part):
            part.set_shape([None] * len(example.shape))
        return part

    first = first if isinstance(first, tuple) else (first,)
    return data.map(lambda *parts: keras.tree.map_structure(with_rank, parts, first))
