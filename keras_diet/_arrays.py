"""Questions about arrays and their shapes, and weights as arrays."""

import numpy as np
from keras import ops

from keras_diet.types import Shape


def float32_array(tensor):
    """Return a tensor or variable of any floating point dtype as a float32 array."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def mask_before_padding(token_ids: np.ndarray, pad_token_id: int) -> np.ndarray:
    """Return booleans that are true up to the last token of a sequence that is not padding.

    Padding is at the end. Inside of a text, the padding token is a token like others.

    Args:
        token_ids: Integers of shape `(..., L)`.
        pad_token_id: The id of the padding token.
    """
    token_ids = np.asarray(token_ids)
    positions = np.arange(token_ids.shape[-1])
    last = np.max(np.where(token_ids != pad_token_id, positions, -1), axis=-1, keepdims=True)
    return positions <= last


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` largest values, the largest first, and equal ones in order.

    Sorting all values would take ten times as long. NaN is kept, so that results show it.
    """
    limit = np.partition(values, -count)[-count] if len(values) > count else -np.inf
    best = np.flatnonzero(~(values < limit))
    return best[np.argsort(-values[best], kind="stable")][:count]


def sizes_fit(shape: Shape, other: Shape) -> bool:
    """Return whether two shapes are equal, where an unknown size fits every size."""
    return len(shape) == len(other) and all(
        None in sizes or sizes[0] == sizes[1] for sizes in zip(shape, other, strict=True)
    )


def are_integers_below(values: np.ndarray, limit: int) -> bool:
    """Return whether an array holds only integers in `[0, limit)`, of any dtype."""
    # The comparison fails for NaN.
    is_integer = values.dtype.kind in "iub" or bool(np.all(values == np.round(values)))
    return is_integer and bool(values.min() >= 0 and values.max() < limit)
