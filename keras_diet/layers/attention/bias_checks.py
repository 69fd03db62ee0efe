"""Checks of what is added to the attention scores."""

from typing import Any

import keras

from keras_diet.types import Shape, Tensor


def check_score_bias(name: str, bias: Tensor, shape: Shape) -> None:
    """Raise a `ValueError` unless `bias` has a floating point dtype and broadcasts to the scores.

    Args:
        name: Name of the argument.
        bias: The tensor to check.
        shape: Shape of the scores, `(B, H, T, S)`. Unknown sizes are `None` and are not checked.
    """
    if not hasattr(bias, "dtype") or isinstance(bias, type):
        raise ValueError(
            f"`{name}` must be a tensor or a bias layer. Received: {type(bias).__name__}. Convert "
            "lists with `np.array`."
        )
    if not keras.backend.is_float_dtype(bias.dtype):
        raise ValueError(
            f"`{name}` must be a floating point tensor that is added to the scores. "
            f"Received: dtype={keras.backend.standardize_dtype(bias.dtype)}. "
            "Pass a boolean or integer mask as `attention_mask`."
        )
    sizes = zip(reversed(bias.shape), reversed(shape), strict=False)
    if len(bias.shape) > len(shape) or any(
        size not in (1, None, full) and full is not None for size, full in sizes
    ):
        raise ValueError(
            f"`{name}` must be broadcastable to the scores, (batch_size, num_heads, query_length, "
            f"key_length) = {tuple(shape)}. Received: shape={tuple(bias.shape)}. Use size 1 for an "
            "axis along which it does not change."
        )


def check_is_no_layer(name: str, bias: Any) -> None:
    """Raise a `ValueError` if `bias` is a layer. Call this for symbolic inputs only.

    A functional model would neither train nor save the weights of such a layer.
    """
    if isinstance(bias, keras.layers.Layer):
        raise ValueError(
            f"In a functional model `{name}` must be a tensor. Received: {name}={bias}. "
            "Call the layer and pass its output, or call both layers inside a custom layer."
        )


def check_heads_of_bias(name: str, bias: Any, num_heads: int) -> None:
    """Raise a `ValueError` if a bias layer has scores for another number of heads."""
    received = getattr(bias, "num_heads", num_heads)
    if received not in (1, num_heads):
        raise ValueError(
            f"`{name}` must have scores for {num_heads} heads. Received: a bias layer with "
            f"num_heads={received}. Pass the same `num_heads` to both layers."
        )


def check_score_features(name: str, features: Any, shape: Shape) -> None:
    """Raise a `ValueError` unless `features` are query and key features for scores of `shape`.

    Args:
        name: Name of the argument.
        features: The value to check. It should be a pair of tensors, `(B or 1, T, H or 1, r)` and
            `(B or 1, S, H or 1, r)`.
        shape: Shape of the scores, `(B, H, T, S)`. Unknown sizes are `None` and are not checked.
    """
    batch_size, num_heads, query_length, key_length = shape
    expected = [
        (batch_size, query_length, num_heads, None),
        (batch_size, key_length, num_heads, None),
    ]
    is_pair = isinstance(features, (tuple, list)) and len(features) == 2
    if is_pair and all(map(_is_feature, features, expected)):
        rank, key_rank = (tensor.shape[-1] for tensor in features)
        if rank == key_rank:
            return
    received: Any = type(features).__name__
    if is_pair:
        received = [getattr(x, "shape", type(x).__name__) for x in features]
    raise ValueError(
        f"`{name}` must be a pair of floating point tensors: query features (batch_size or 1, "
        "query_length, num_heads or 1, rank) and key features (batch_size or 1, key_length, "
        "num_heads or 1, rank). The scores have the shape (batch_size, num_heads, query_length, "
        f"key_length) = {tuple(shape)}. Received: {name}={received}"
    )


def _is_feature(tensor: Tensor, sizes: Shape) -> bool:
    """Return whether the dtype is floating point and the shape fits `sizes`."""
    return (
        hasattr(tensor, "dtype")
        and keras.backend.is_float_dtype(tensor.dtype)
        and len(tensor.shape) == 4
        and all(
            size in (None, full) or full is None or (size == 1 and axis in (0, 2))
            for axis, (size, full) in enumerate(zip(tensor.shape, sizes, strict=True))
        )
    )
