"""A `keras.utils.PyDataset` whose batches a function changes."""

from collections.abc import Callable
from typing import Any

import keras


class MappedPyDataset(keras.utils.PyDataset):
    """The batches of a dataset of the user, with its settings for workers.

    Args:
        dataset: The `keras.utils.PyDataset`.
        preprocess: Function of one batch.
    """

    def __init__(self, dataset: keras.utils.PyDataset, preprocess: Callable[[Any], Any]) -> None:
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self.dataset = dataset
        self._preprocess = preprocess

    @property
    def num_batches(self) -> int | None:
        """The number of batches of the dataset."""
        return self.dataset.num_batches

    def __getitem__(self, index: int) -> Any:
        """Return a preprocessed batch."""
        return self._preprocess(self.dataset[index])

    def on_epoch_begin(self) -> None:
        """Tell the dataset that an epoch begins."""
        self.dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Tell the dataset that an epoch ends."""
        self.dataset.on_epoch_end()
