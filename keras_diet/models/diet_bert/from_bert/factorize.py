"""Scores of positions as the parameters of DIET: products of low rank, and scalars of distances."""

import numpy as np


def low_rank_factors(scores, rank, generator):
    """Return the factors of the best approximation of matrices by those of a rank.

    It is the truncated singular value decomposition `U S V^T`, with `P_Q = U sqrt(S)` and
    `P_K = V sqrt(S)`. A singular value of zero leaves both sides without a gradient; where there
    are such, the column of `P_Q` is drawn as BERT's weights are and that of `P_K` is zero.

    Args:
        scores: Array of shape `(H, n, n)`.
        rank: int.
        generator: `numpy.random.Generator`.

    Returns:
        `P_Q` and `P_K`, float32 arrays of shape `(n, H, rank)`.
    """
    num_heads, length, _ = scores.shape
    left, values, right = np.linalg.svd(scores, full_matrices=False)
    count = min(rank, length)
    left, values, right = left[..., :count], values[:, :count], right[:, :count]
    query = generator.normal(scale=0.02, size=(num_heads, length, rank))
    key = np.zeros((num_heads, length, rank))
    kept = values > 1e-6 * np.maximum(values[:, :1], 1e-6)
    root = np.sqrt(np.where(kept, values, 0.0))[:, None, :]
    query[..., :count] = np.where(kept[:, None, :], left * root, query[..., :count])
    key[..., :count] = np.swapaxes(right, 1, 2) * root
    return tuple(np.transpose(factor, (1, 0, 2)).astype("float32") for factor in (query, key))


def diagonal_means(scores):
    """Return the scalars of distances that come closest to matrices: the means of diagonals.

    Args:
        scores: Array of shape `(H, n, n)`.

    Returns:
        float32 array of shape `(2 n - 1, H)`; row `i - j + n - 1` is that of query `i` and key `j`.
    """
    length = scores.shape[-1]
    offsets = range(length - 1, -length, -1)
    means = [np.diagonal(scores, offset, 1, 2).mean(axis=-1) for offset in offsets]
    return np.stack(means).astype("float32")
