"""Batches with about the same number of tokens."""

import numbers
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_diet import validation


class TokenBatches(keras.utils.PyDataset):
    """Batches of examples of similar length, with about the same number of tokens.

    An example belongs to the smallest of the `length_buckets` that holds it, or to the largest. A
    batch of the bucket `L` has `tokens_per_batch // L` examples, and at least one. The last batch
    of a bucket may be smaller. So the number of different shapes is small, and compiled steps are
    few.

    Each epoch has new batches in a new order, which follow from `seed` and the number of the epoch.

    Args:
        columns: Tuple of sequences with one entry for each example, such as
            `(sources, targets)`. A batch is a tuple of lists.
        lengths: Sequence of int. The length of each example in tokens. For pairs, the larger one.
        length_buckets: Sequence of int. Increasing lengths. The preprocessor should have the same.
        tokens_per_batch: int. Number of tokens in a batch, with padding. Defaults to `4096`.
        seed: int. Defaults to `0`.
        **kwargs: Keyword arguments of `keras.utils.PyDataset`.

    Raises:
        ValueError: If the columns and `lengths` are empty or of different lengths. If a number is
            not positive. If the length of an example is not an integer from 0 on. If the buckets
            do not increase.

    Example:

    ```python
    sources, targets = ["a fox", "the lazy dog"], ["ein Fuchs", "der faule Hund"]
    lengths = [max(len(s.split()), len(t.split())) for s, t in zip(sources, targets)]
    batches = keras_diet.training.TokenBatches(
        (sources, targets), lengths, length_buckets=(2, 4), tokens_per_batch=8
    )
    len(batches)  # 2
    ```

    Pass `shuffle=False` to `fit`. The batches are shuffled already.
    """

    def __init__(
        self,
        columns: tuple[Sequence[Any], ...],
        lengths: Sequence[int],
        length_buckets: Sequence[int],
        tokens_per_batch: int = 4096,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        numbers = [len(column) for column in (*columns, lengths)]
        if not columns or len(set(numbers)) > 1 or not numbers[0]:
            raise ValueError(
                "`columns` and `lengths` must have one entry for each example. Received: columns "
                f"with {numbers[:-1]} entries, and {numbers[-1]} lengths. Pass as many of each."
            )
        buckets = validation.increasing_ints("length_buckets", length_buckets)
        validation.positive_int("tokens_per_batch", tokens_per_batch)
        self.columns = columns
        self.seed = validation.not_negative_int("seed", seed)
        self.epoch = 0
        places = np.searchsorted(buckets[:-1], _checked_lengths(lengths))
        # For each bucket, its examples and the size of its batches.
        self._buckets = [
            (np.flatnonzero(places == i), max(1, tokens_per_batch // bucket))
            for i, bucket in enumerate(buckets)
        ]
        self._shuffle()

    def start_at(self, epoch: int) -> None:
        """Make the batches of an epoch, to resume a training. The first epoch is 0."""
        self.epoch = validation.not_negative_int("epoch", epoch)
        self._shuffle()

    def _shuffle(self):
        generator = np.random.default_rng((self.seed, self.epoch))
        batches: list[np.ndarray] = []
        for examples, size in self._buckets:
            order = generator.permutation(examples)
            batches += [order[start : start + size] for start in range(0, len(order), size)]
        self._batches = [batches[i] for i in generator.permutation(len(batches))]

    def __len__(self) -> int:
        """Return the number of batches, the same in each epoch."""
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple[list[Any], ...]:
        """Return a batch of this epoch."""
        return tuple([column[i] for i in self._batches[index]] for column in self.columns)

    def on_epoch_end(self) -> None:
        """Make the batches of the next epoch."""
        self.start_at(self.epoch + 1)


def _checked_lengths(lengths):
    for row, length in enumerate(lengths):
        if isinstance(length, bool) or not isinstance(length, numbers.Integral) or length < 0:
            raise ValueError(
                f"`lengths` must hold numbers of tokens. Received: {length!r} in row {row}. Pass "
                "an integer for each example."
            )
    return np.asarray(lengths)
