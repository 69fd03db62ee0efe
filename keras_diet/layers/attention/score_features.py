"""Padding as a term of the scores, and features put together.

Features of queries `(B or 1, T, H or 1, r)` and keys `(B or 1, S, H or 1, r)` add their inner
products to the attention scores, without a tensor of shape `(T, S)` in memory.
"""

import keras
from keras import ops

from keras_diet import _backend

# Infinite in float16.
_MASKED_FLOAT16 = -3e4
# Fused kernels on accelerators want head sizes that this divides.
_ALIGNMENT = 8


def padding_features(padding_mask, dtype):
    """Return features of rank 1 that exclude padding, for a boolean mask `(B, S)`."""
    masked = (
        _MASKED_FLOAT16 if keras.backend.standardize_dtype(dtype) == "float16" else _backend.MASKED
    )
    key = ops.where(padding_mask, ops.cast(0.0, dtype), ops.cast(masked, dtype))
    # Not `key[:, :, None, None]`, which LiteRT has no operation for.
    key = ops.expand_dims(ops.expand_dims(key, -1), -1)
    return ops.ones((1, ops.shape(key)[1], 1, 1), dtype), key


def concatenate_features(*pairs):
    """Return the features whose inner products are the sums of those of all pairs."""
    if len(pairs) == 1:
        return pairs[0]
    return tuple(_concatenate(tensors) for tensors in zip(*pairs, strict=True))


def features_as_bias(query_features, key_features, dtype):
    """Return the inner products of few features, `(B or 1, H or 1, T, S)`.

    As a sum of outer products, which XLA makes part of what reads it; a matrix product it would
    not.
    """
    features = (query_features, key_features)
    query, key = (ops.transpose(ops.cast(x, dtype), (3, 0, 2, 1)) for x in features)
    return sum(query[i][..., None] * key[i][..., None, :] for i in range(query.shape[0]))


def size_with_features(head_dim, rank):
    """Return the size of heads with features, which fused kernels want to be a multiple of 8."""
    return -(-(head_dim + rank) // _ALIGNMENT) * _ALIGNMENT if rank else head_dim


def append_features(heads, features):
    """Append features to the projected queries or keys `(B, T, H, key_dim)` of all heads.

    Zeros follow, up to a size that fused kernels take.
    """
    outer, rank = ops.shape(heads)[:-1], features.shape[-1]
    features = ops.broadcast_to(ops.cast(features, heads.dtype), (*outer, rank))
    size = size_with_features(heads.shape[-1], rank)
    zeros = ops.zeros((*outer, size - heads.shape[-1] - rank), heads.dtype)
    return ops.concatenate([heads, features, zeros], axis=-1)


def _concatenate(tensors):
    shapes = [ops.shape(tensor)[:-1] for tensor in tensors]
    outer = [_largest(sizes) for sizes in zip(*shapes, strict=True)]
    return ops.concatenate(
        [ops.broadcast_to(tensor, (*outer, tensor.shape[-1])) for tensor in tensors], axis=-1
    )


def _largest(sizes):
    # The others are 1, and a size that is not known before the call can only be itself.
    return next((size for size in sizes if not isinstance(size, int) or size > 1), 1)
