"""Batches of the examples in arrays and lists."""

import math
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_diet.models.hub.host_data import map_parts

BATCH_SIZE = 32


class ArrayBatches:
    """Batches of examples in host memory, in a new order for each pass.

    Args:
        data: A tuple of inputs, labels and weights from `checked_data`. Each is an array, a list of
            strings, `None`, or a tuple or dictionary of them. All hold the same number of examples.
        batch_size: int or `None`. Defaults to `None`, which means 32, as in Keras.
        shuffle: bool. Whether each pass has a new random order. Defaults to `False`.
    """

    def __init__(self, data: Any, batch_size: int | None = None, shuffle: bool = False) -> None:
        self.data = data
        self.num_examples = _num_examples(data)
        self.batch_size = batch_size or BATCH_SIZE
        # `keras.utils.set_random_seed` seeds NumPy's global generator.
        self._rng = np.random.default_rng(np.random.randint(2**31)) if shuffle else None
        self.shuffle = shuffle

    def __len__(self) -> int:
        """Return the number of batches."""
        return math.ceil(self.num_examples / self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one pass over the examples."""
        order = np.arange(self.num_examples)
        if self._rng is not None:
            self._rng.shuffle(order)
        for start in range(0, self.num_examples, self.batch_size):
            yield self.examples(order[start : start + self.batch_size])

    def examples(self, rows: np.ndarray) -> Any:
        """Return the examples with some numbers as a batch."""
        return take(self.data, rows)


def split(data: Any, validation_split: float) -> tuple[Any, Any]:
    """Return the first examples for training and the last ones for validation, as Keras does.

    Args:
        data: What `checked_data` returned.
        validation_split: float. The fraction of the examples to hold out.
    """
    is_number = isinstance(validation_split, numbers.Real)
    if not is_number or not 0.0 < validation_split < 1.0:
        raise ValueError(
            "`validation_split` must be a number between 0 and 1. Received: "
            f"validation_split={validation_split}. Pass the fraction of the examples to hold out."
        )
    num_examples = _num_examples(data)
    end = math.floor(num_examples * (1.0 - validation_split))
    if end == 0:
        raise ValueError(
            f"`validation_split` leaves no example for training. Received: {num_examples} examples,"
            f" validation_split={validation_split}. Pass more examples or a smaller fraction."
        )
    return take(data, np.arange(end)), take(data, np.arange(end, num_examples))


def take(data: Any, rows: np.ndarray) -> Any:
    """Return some examples."""
    return map_parts(
        lambda part: [part[i] for i in rows] if isinstance(part, list) else part[rows], data
    )


def _num_examples(data: Any) -> int:
    if isinstance(data, (tuple, dict)):
        parts = data.values() if isinstance(data, dict) else data
        return next(_num_examples(part) for part in parts if part is not None)
    return len(data)
