"""More rows of queries than of keys, as in a search whose beams share their source."""

from typing import Any

from keras import ops

from keras_diet.types import Tensor


def may_share_rows(query: Tensor, key: Tensor) -> bool:
    """Whether there may be more rows of queries than of keys. Their numbers may be unknown."""
    return query.shape[0] is None or query.shape[0] != key.shape[0]


def repeat_rows(tensor: Tensor, num_rows: Any) -> Tensor:
    """Return a tensor with each row repeated, so that it has `num_rows` rows."""
    if isinstance(num_rows, int) and num_rows == tensor.shape[0]:
        return tensor
    return ops.repeat(tensor, num_rows // ops.shape(tensor)[0], axis=0)


def with_repeated_keys(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values with the same number of rows."""
    if not may_share_rows(query, key):
        return query, key, value
    num_rows = ops.shape(query)[0]
    return query, repeat_rows(key, num_rows), repeat_rows(value, num_rows)
