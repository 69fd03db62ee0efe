"""The base class of data that can be read from any epoch and any batch on."""

import warnings
from collections.abc import Callable
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
        **kwargs: Keyword arguments of `keras.utils.PyDataset`. Several `workers` give a warning,
            because Keras would lose batches. Batches are read in one thread.

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
    # Whether all batches but the last one have the same number of rows.
    same_size = False
    # Whether a batch can only be read after those before it.
    in_order = False

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        warn_of_workers(self)
        self.workers, self.use_multiprocessing = 1, False
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

    def map(
        self,
        function: Callable[[Any, np.random.Generator], tuple[Any, ...]],
        same_epochs: bool = False,
        varies_length: bool = False,
        same_size: bool = False,
    ) -> "EpochDataset":
        """Return this data with a function applied to each batch when it is read.

        Args:
            function: Function of a batch and its random numbers.
            same_epochs: bool. Whether each epoch has the random numbers of the first one, as in
                validation. Defaults to `False`.
            varies_length: bool. As the attribute, of the new batches. Defaults to `False`.
            same_size: bool. Whether the function keeps the number of rows. Defaults to `False`.
        """
        return MappedBatches(self, function, same_epochs, varies_length, same_size)

    # === Data that is read in its order ===

    def state(self, index: int) -> Any:
        """Return for JSON what it takes to read from a batch on. By default, nothing."""
        return None

    def set_state(self, state: Any) -> None:
        """Take what `state` returned in an earlier process."""


class MappedBatches(EpochDataset):
    """What `EpochDataset.map` returns. The seed comes from the data.

    Args:
        source: The data.
        function: As in `EpochDataset.map`, like the other arguments.
        same_epochs: bool.
        varies_length: bool.
        same_size: bool.
    """

    def __init__(
        self,
        source: EpochDataset,
        function: Callable[[Any, np.random.Generator], tuple[Any, ...]],
        same_epochs: bool,
        varies_length: bool,
        same_size: bool,
    ) -> None:
        self.source = source
        super().__init__(source.seed)
        self.has_own_seed = source.has_own_seed
        self.function = function
        self.same_epochs = same_epochs
        self.varies_length = varies_length
        self.same_size = same_size and source.same_size
        self.in_order = source.in_order
        self._pass = 0

    @property
    def num_batches(self) -> int | None:
        """The number of batches in an epoch. Endless data has `None`."""
        return self.source.num_batches

    @property
    def seed(self) -> int:  # type: ignore[override]
        """Seed of all that is random, in the data too."""
        return self.source.seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self.source.seed = seed

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Return a batch of the current pass over the data."""
        # With `steps_per_epoch`, a pass takes several epochs.
        if index == 0:
            self._pass = self.epoch
        return self.batch(self._pass, index)

    def batch(self, epoch: int, index: int) -> tuple[Any, ...]:
        """Return a batch of an epoch."""
        generator = self.generator(0 if self.same_epochs else epoch, index)
        return self.function(self.source.batch(epoch, index), generator)

    def on_epoch_begin(self) -> None:
        """Tell the data that an epoch begins."""
        self.source.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Begin the next epoch, and tell the data."""
        super().on_epoch_end()
        self.source.on_epoch_end()

    def state(self, index: int) -> Any:
        """Return for JSON what it takes to read from a batch on."""
        return self.source.state(index)

    def set_state(self, state: Any) -> None:
        """Take what `state` returned in an earlier process."""
        self.source.set_state(state)


def warn_of_workers(data: keras.utils.PyDataset) -> None:
    """Warn of a dataset that Keras would read in several threads or processes."""
    if data.workers > 1 or data.use_multiprocessing:
        warnings.warn(
            "Keras loses batches of a dataset with several workers, and reads some before "
            "`on_epoch_begin` (keras issues 20394 and 23283). Received: "
            f"workers={data.workers}, use_multiprocessing={data.use_multiprocessing}. "
            "`EpochDataset` and data with texts are read in one thread. Pass `workers=1`, or a "
            "`DataLoader` of PyTorch, which has its own workers.",
            stacklevel=3,
        )
