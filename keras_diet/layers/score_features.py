"""Padding as a term of the scores, and features put together.

Features of queries `(B or 1, T, H or 1, r)` and keys `(B or 1, S, H or 1, r)` add their inner
products to the attention scores, without a tensor of shape `(T, S)`.
"""

import keras
from keras import ops

# Far below every score, and finite, so that a query without any key yields no NaN.
_MASKED = -1e9
_MASKED_FLOAT16 = -3e4


def padding_features(padding_mask, dtype):
    """Return features of rank 1 that exclude padding, for a boolean mask `(B, S)`."""
    masked = _MASKED_FLOAT16 if keras.backend.standardize_dtype(dtype) == "float16" else _MASKED
    key = ops.where(padding_mask, ops.cast(0.0, dtype), ops.cast(masked, dtype))
    return ops.ones((1, ops.shape(key)[1], 1, 1), dtype), key[:, :, None, None]


def concatenate_features(*pairs):
    """Return the features whose inner products are the sums of those of all pairs."""
    if len(pairs) == 1:
        return pairs[0]
    return tuple(_concatenate(tensors) for tensors in zip(*pairs, strict=True))


def append_features(heads, features):
    """Append features to the projected queries or keys `(B, T, H, key_dim)` of all heads."""
    shape = (*ops.shape(heads)[:-1], features.shape[-1])
    features = ops.broadcast_to(ops.cast(features, heads.dtype), shape)
    return ops.concatenate([heads, features], axis=-1)


def _concatenate(tensors):
    shapes = [ops.shape(tensor)[:-1] for tensor in tensors]
    outer = [_largest(sizes) for sizes in zip(*shapes, strict=True)]
    return ops.concatenate(
        [ops.broadcast_to(tensor, (*outer, tensor.shape[-1])) for tensor in tensors], axis=-1
    )


def _largest(sizes):
    # The others are 1, and a size that is not known before the call can only be itself.
    return next((size for size in sizes if not isinstance(size, int) or size > 1), 1)
