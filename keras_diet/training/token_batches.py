"""Batches with about the same number of tokens."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_diet import validation
from keras_diet.training.epoch_dataset import EpochDataset


class TokenBatches(EpochDataset):
    """Batches of examples of similar length, with about the same number of tokens.

    An example belongs to the smallest of the `length_buckets` that holds it, or to the largest. A
    batch of the bucket `L` has `tokens_per_batch // L` examples, and at least one. The last batch
    of a bucket may be smaller. So the number of different shapes is small, and compiled steps are
    few.

    Each epoch has new batches in a new order, which follow from `seed` and the number of the epoch.

    Args:
        columns: Tuple of sequences with one entry for each example, such as
            `(sources, targets)`.
        lengths: Sequence of int. The length of each example in tokens. For pairs, the larger one.
        length_buckets: Sequence of int. Increasing lengths. The preprocessor should have the same.
        tokens_per_batch: int. Number of tokens in a batch, with padding. Defaults to `4096`.
        seed: int. Defaults to `0`.
        preprocessor: Function of the columns of a batch, each a list, that returns the arrays for
            the model. Defaults to `None`, which returns the lists.
        **kwargs: Keyword arguments of `keras.utils.PyDataset`.

    Raises:
        ValueError: If the columns and `lengths` are empty or of different lengths. If
            `tokens_per_batch` is not positive. If the buckets do not increase.

    Example:

    ```python
    sources, targets = ["a fox", "the lazy dog"], ["ein Fuchs", "der faule Hund"]
    lengths = [max(len(s.split()), len(t.split())) for s, t in zip(sources, targets)]
    batches = keras_diet.training.TokenBatches(
        (sources, targets), lengths, length_buckets=(2, 4), tokens_per_batch=8
    )
    len(batches)  # 2
    ```

    To train, pass a task's preprocessor, and `shuffle=False` to `fit`: the batches are shuffled
    already.
    """

    varies_length = True

    def __init__(
        self,
        columns: tuple[Sequence[Any], ...],
        lengths: Sequence[int],
        length_buckets: Sequence[int],
        tokens_per_batch: int = 4096,
        seed: int = 0,
        preprocessor: Callable[..., tuple[Any, ...]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed, **kwargs)
        numbers = [len(column) for column in (*columns, lengths)]
        if not columns or len(set(numbers)) > 1 or not numbers[0]:
            raise ValueError(
                "`columns` and `lengths` must have one entry for each example. Received: columns "
                f"with {numbers[:-1]} entries, and {numbers[-1]} lengths. Pass as many of each."
            )
        buckets = validation.increasing_ints("length_buckets", length_buckets)
        validation.positive_int("tokens_per_batch", tokens_per_batch)
        self.columns = columns
        self.tokens_per_batch = tokens_per_batch
        self.preprocessor = preprocessor
        bucket_of = np.searchsorted(buckets[:-1], lengths)
        # For each bucket, its examples and the size of its batches.
        self._buckets = [
            (np.flatnonzero(bucket_of == i), max(1, tokens_per_batch // bucket))
            for i, bucket in enumerate(buckets)
        ]
        # Reading an epoch asks for its order again and again.
        self._order = functools.lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(self, epoch):
        generator = np.random.default_rng((self.seed, epoch))
        batches: list[np.ndarray] = []
        for examples, size in self._buckets:
            order = generator.permutation(examples)
            batches += [order[start : start + size] for start in range(0, len(order), size)]
        return [batches[i] for i in generator.permutation(len(batches))]

    def __len__(self) -> int:
        """Return the number of batches, the same in each epoch."""
        return sum(-(-len(examples) // size) for examples, size in self._buckets)

    def batch(self, epoch: int, index: int) -> tuple[Any, ...]:
        """Return a batch of an epoch."""
        examples = self._order(epoch)[index]
        columns = tuple([column[i] for i in examples] for column in self.columns)
        return columns if self.preprocessor is None else self.preprocessor(*columns)
