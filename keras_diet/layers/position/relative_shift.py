"""Converts scores by distance to scores by key position, and back, without a gather."""

from typing import Any

from keras import ops

from keras_diet import _backend
from keras_diet.types import Integer, Tensor

_NUM_BLOCKS = 16


def distances_of_pairs(query_length: Integer, key_length: Integer, start_index: Integer) -> Tensor:
    """Return all distances `j - i` of a key from a query, the smallest first.

    Args:
        query_length: int or scalar tensor, `T`.
        key_length: int or scalar tensor, `S`.
        start_index: int or scalar tensor. Position of the first query. The first key is at 0.

    Returns:
        Integer tensor `(T + S - 1,)`, in the order of `distances_to_keys`.
    """
    smallest = -(start_index + query_length - 1)
    return _backend.arange(query_length + key_length - 1) + smallest


def distances_to_keys(scores: Tensor, query_length: Integer, key_length: Integer) -> Tensor:
    """Turn scores by distance into scores by key.

    Row `i` of the result is a part of row `i` of `scores`. It begins at the distance of key 0:

        out[..., i, j] = scores[..., i, (j - i) + (T - 1)]

    The function drops the first `T - 1` entries of all rows together, and cuts the rest into rows
    that are one entry shorter. Each row has then moved by one entry relative to the row above.
    These steps and their gradients compile to copies. The gradient of a gather would be a scatter.

    Args:
        scores: Tensor `(..., T, T + S - 1)`. Column `c` belongs to the distance `c - (T - 1)` of
            a key from its query. Distances go from `-(T - 1)` (last query, first key) to `S - 1`.
        query_length: int or scalar tensor, `T`.
        key_length: int or scalar tensor, `S`.

    Returns:
        Tensor `(..., T, S)`.
    """
    outer = tuple(ops.shape(scores)[:-2])
    num_distances = query_length + key_length - 1
    if isinstance(query_length, int) and query_length > 1:
        size = query_length * num_distances
        rest = ops.reshape(scores, (*outer, size))[..., query_length - 1 : size - 1]
        return ops.reshape(rest, (*outer, query_length, num_distances - 1))[..., :key_length]
    # The rows of one query would be too short by one entry. So they get one first.
    padded = ops.pad(scores, ((0, 0),) * (len(outer) + 1) + ((0, 1),))
    flat = ops.reshape(padded, (*outer, query_length * (num_distances + 1)))
    rest = flat[..., query_length - 1 : query_length - 1 + query_length * num_distances]
    return ops.reshape(rest, (*outer, query_length, num_distances))[..., :key_length]


def keys_to_distances(scores: Tensor, query_length: Integer, key_length: Integer) -> Tensor:
    """Turn scores by key into scores by distance. Distances without a key get zero.

    This is the transpose of `distances_to_keys`:

        out[..., i, c] = scores[..., i, c + i - (T - 1)]

    Args:
        scores: Tensor `(..., T, S)`.
        query_length: int or scalar tensor, `T`.
        key_length: int or scalar tensor, `S`.

    Returns:
        Tensor `(..., T, T + S - 1)`.
    """
    outer = tuple(ops.shape(scores)[:-2])
    num_distances = query_length + key_length - 1
    no_padding = ((0, 0),) * len(outer)
    padded = ops.pad(scores, (*no_padding, (0, 0), (0, query_length - 1)))
    all_rows = ops.reshape(padded, (*outer, num_distances, query_length))
    all_rows = ops.pad(all_rows, (*no_padding, (1, 0), (0, 0)))
    return ops.reshape(all_rows, (*outer, query_length, num_distances + 1))[..., 1:]


def scores_of_distances(by_distance: Tensor, query_length: Integer, key_length: Integer) -> Tensor:
    """Return the scores that have one scalar for each distance (a Toeplitz matrix).

    Args:
        by_distance: Tensor `(T + S - 1, H)`. The order of distances is as in `distances_to_keys`.
        query_length: int or scalar tensor, `T`.
        key_length: int or scalar tensor, `S`.

    Returns:
        Tensor `(1, H, T, S)`.
    """
    num_distances, num_heads = ops.shape(by_distance)
    by_head = ops.transpose(by_distance)
    windows = _backend.sliding_windows(by_head, key_length)
    if windows is not None:
        # The window of the last query begins with the first distance.
        return ops.expand_dims(ops.flip(windows, axis=1), 0)
    if _is_cut_into_blocks(query_length, key_length):
        # All blocks have the same rows, moved by the block size. So one block is computed, and the
        # other blocks are slices of it.
        size = query_length // _NUM_BLOCKS
        rows = scores_of_distances(by_distance, size, num_distances + 1 - size)
        starts = range(query_length - size, -1, -size)
        return ops.concatenate([rows[..., s : s + key_length] for s in starts], axis=-2)
    rows = ops.reshape(by_head, (1, num_heads, 1, num_distances))
    rows = ops.broadcast_to(rows, (1, num_heads, query_length, num_distances))
    return distances_to_keys(rows, query_length, key_length)


def scores_of_vectors(
    query: Tensor,
    vectors: Tensor,
    scale: float,
    query_length: Any,
    key_length: Any,
    rows: Tensor | None = None,
) -> Tensor:
    """Return the products `(B, H, T, S)` of queries and the vectors of their distances to keys.

    Args:
        query: Tensor `(B, T, H, key_dim)`.
        vectors: Vectors of all `T + S - 1` distances, `(T + S - 1, key_dim)`, or for each head
            `(T + S - 1, H, key_dim)`. With `rows`, any number of vectors.
        scale: float. Factor of the products.
        query_length: int or scalar tensor, `T`.
        key_length: int or scalar tensor, `S`.
        rows: Integer tensor `(T + S - 1,)`, the row of each distance in `vectors`; or `None`.
    """
    windows = None
    if rows is not None:
        # On PyTorch, products of few vectors and a gather take half the time of more products.
        windows = _backend.sliding_windows(rows, key_length)
        if windows is None:
            # Keras takes rows of a matrix for any length, but not those of three axes.
            matrix = ops.reshape(vectors, (vectors.shape[0], -1))
            vectors = ops.reshape(ops.take(matrix, rows, axis=0), (-1, *vectors.shape[1:]))
    if _backend.is_float16(query.dtype):
        query = ops.cast(query, "float32")
    query = ops.multiply(query, ops.cast(scale, query.dtype))
    # b: batch; t: query positions; h: heads; k: head size; c: distances
    equation = "bthk,ck->hbtc" if len(vectors.shape) == 2 else "bthk,chk->hbtc"
    scores = ops.einsum(equation, query, ops.cast(vectors, query.dtype))
    if windows is None:
        scores = distances_to_keys(scores, query_length, key_length)
    else:
        # The window of the last query begins with the first distance.
        scores = _backend.take_along_axis(scores, ops.flip(windows, axis=0), -1)
    return ops.swapaxes(scores, 0, 1)


def _is_cut_into_blocks(query_length, key_length):
    # A length is a tensor if the graph does not know it.
    if not (isinstance(query_length, int) and isinstance(key_length, int)):
        return False
    return query_length > _NUM_BLOCKS and query_length % _NUM_BLOCKS == 0
