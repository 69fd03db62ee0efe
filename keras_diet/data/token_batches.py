"""Batches with about the same number of tokens."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.data.epoch_dataset import EpochDataset


class TokenBatches(EpochDataset):
    """Batches of examples of similar length, with about the same number of tokens.

    An example belongs to the smallest of the `length_buckets` that holds it, or to the largest. A
    batch of the bucket `L` has `tokens_per_batch // L` examples, and at least one. The last batch
    of a bucket may be smaller. So the number of different shapes is small, and compiled steps are
    few. With a preprocessor of this library, no other argument is needed: it tells the lengths.

    Each epoch has new batches in a new order, which follow from `seed` and the number of the epoch.

    Args:
        columns: Tuple of sequences with one entry for each example, such as
            `(sources, targets)`.
        lengths: Sequence of int, or `None`. The length of each example in tokens, with the special
            tokens that the preprocessor adds. For pairs, the larger one. Defaults to `None`: the
            preprocessor makes each example once, to count them.
        length_buckets: Sequence of int, or `None`. Increasing lengths, those of the preprocessor.
            Defaults to `None`: the lengths that the preprocessor makes.
        tokens_per_batch: int. Largest number of tokens in a batch of several examples, with
            padding. Defaults to `4096`.
        seed: int. Defaults to `0`.
        preprocessor: Function of the columns of a batch, each a list, that returns the arrays for
            the model. Defaults to `None`, which returns the lists.
        **kwargs: Keyword arguments of `keras.utils.PyDataset`.

    Raises:
        ValueError: If the columns and `lengths` are empty or of different lengths. If
            `tokens_per_batch` is not positive. If the buckets do not increase. If the preprocessor
            makes longer examples than their bucket.

    Example:

    ```python
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "fox"]
    preprocessor = keras_diet.models.DietBertTextClassifierPreprocessor(
        keras_diet.models.DietBertTokenizer(vocabulary), sequence_length=8, length_buckets=(4,)
    )
    texts, labels = ["the fox", "fox", "the quick quick fox"], [1, 0, 1]
    batches = keras_diet.training.TokenBatches(
        (texts, labels), tokens_per_batch=8, preprocessor=preprocessor
    )
    len(batches)  # 2: two examples of 4 tokens, one of 8
    ```

    To train, pass a task's preprocessor, and `shuffle=False` to `fit`: the batches are shuffled
    already.
    """

    varies_length = True

    def __init__(
        self,
        columns: tuple[Sequence[Any], ...],
        lengths: Sequence[int] | None = None,
        length_buckets: Sequence[int] | None = None,
        tokens_per_batch: int = 4096,
        seed: int = 0,
        preprocessor: Callable[..., tuple[Any, ...]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(seed, **kwargs)
        self.columns = columns
        self.preprocessor = preprocessor
        if lengths is None and preprocessor is not None:
            lengths = [self._padded_length(row) for row in range(min(map(len, columns)))]
            length_buckets = length_buckets or sorted(set(lengths))
        sizes = np.array([] if lengths is None else lengths)
        numbers = [*map(len, columns), len(sizes)]
        if not columns or len(set(numbers)) > 1 or not numbers[0]:
            raise ValueError(
                "`columns` and `lengths` must have one entry for each example. Received: columns "
                f"with {numbers[:-1]} entries, and {numbers[-1]} lengths. Pass as many of each, "
                "or a `preprocessor` of this library without `lengths`."
            )
        buckets = validation.increasing_ints("length_buckets", length_buckets)
        validation.positive_int("tokens_per_batch", tokens_per_batch)
        self.tokens_per_batch = tokens_per_batch
        bucket_of = np.searchsorted(buckets[:-1], sizes)
        # For each bucket, its examples and the size of its batches.
        self._buckets = [
            (np.flatnonzero(bucket_of == i), max(1, tokens_per_batch // bucket))
            for i, bucket in enumerate(buckets)
        ]
        # Reading an epoch asks for its order again and again.
        self._order = functools.lru_cache(maxsize=2)(self._shuffle)

    def _padded_length(self, row):
        """Return the length that an example gets from the preprocessor, or 0 if nothing says it."""
        batch = self.preprocessor(*([column[row]] for column in self.columns))
        x = keras.utils.unpack_x_y_sample_weight(batch)[0]
        arrays = x.items() if isinstance(x, Mapping) else ()
        return max((ids.shape[1] for name, ids in arrays if name.endswith("token_ids")), default=0)

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
