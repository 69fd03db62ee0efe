"""Scores by distance laid out by key position, and back, without a gather."""

from keras import ops

from keras_diet import _backend

_NUM_BLOCKS = 16


def distances_to_keys(scores, query_length, key_length):
    """Turn scores by distance into scores by key.

    Row `i` of the result is row `i` of `scores`, read from the distance of its first key on:

        out[..., i, j] = scores[..., i, (j - i) + (T - 1)]

    Pad each row by one entry, cut the flat result into rows that are one entry shorter, and each
    row has moved by one against the row above. That compiles to copies, and its gradient too,
    where a gather would become a scatter.

    Args:
        scores: Tensor `(..., T, T + S - 1)`; column `c` belongs to the distance `c - (T - 1)` of
            a key from its query, from `-(T - 1)` (last query, first key) to `S - 1`.
        query_length: int or scalar tensor, `T`.
        key_length: int or scalar tensor, `S`.

    Returns:
        Tensor `(..., T, S)`.
    """
    outer = tuple(ops.shape(scores)[:-2])
    num_distances = query_length + key_length - 1
    padded = ops.pad(scores, ((0, 0),) * (len(outer) + 1) + ((0, 1),))
    flat = ops.reshape(padded, (*outer, query_length * (num_distances + 1)))
    start = (0,) * len(outer) + (query_length - 1,)
    flat = ops.slice(flat, start, (*outer, query_length * num_distances))
    return ops.reshape(flat, (*outer, query_length, num_distances))[..., :key_length]


def keys_to_distances(scores, query_length, key_length):
    """Turn scores by key into scores by distance; distances without a key get zero.

    The transpose of `distances_to_keys`: `out[..., i, c] = scores[..., i, c + i - (T - 1)]`.

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
    flat = ops.reshape(padded, (*outer, query_length * num_distances))
    flat = ops.pad(flat, (*no_padding, (query_length - 1, 1)))
    rows = ops.reshape(flat, (*outer, query_length, num_distances + 1))
    return rows[..., :num_distances]


def scores_of_distances(by_distance, query_length, key_length):
    """Lay one scalar for each distance out as scores, the same in every row but shifted.

    Args:
        by_distance: Tensor `(T + S - 1, H)`, the distances as in `distances_to_keys`.
        query_length: int or scalar tensor, `T`.
        key_length: int or scalar tensor, `S`.

    Returns:
        Tensor `(1, H, T, S)`.
    """
    num_distances, num_heads = ops.shape(by_distance)
    by_head = ops.transpose(by_distance)
    windows = _backend.sliding_windows(by_head, key_length)
    if windows is not None:
        # The last query has the window that begins with the first distance.
        return ops.expand_dims(ops.flip(windows, axis=1), 0)
    if _is_cut_into_blocks(query_length, key_length):
        # The rows of a block are those of the block below, moved: one is made, the others read it.
        size = query_length // _NUM_BLOCKS
        rows = scores_of_distances(by_distance, size, num_distances + 1 - size)
        starts = range(query_length - size, -1, -size)
        return ops.concatenate([rows[..., s : s + key_length] for s in starts], axis=-2)
    rows = ops.reshape(by_head, (1, num_heads, 1, num_distances))
    rows = ops.broadcast_to(rows, (1, num_heads, query_length, num_distances))
    return distances_to_keys(rows, query_length, key_length)


def _is_cut_into_blocks(query_length, key_length):
    # Lengths that a graph does not know are tensors.
    if not (isinstance(query_length, int) and isinstance(key_length, int)):
        return False
    return query_length > _NUM_BLOCKS and query_length % _NUM_BLOCKS == 0
