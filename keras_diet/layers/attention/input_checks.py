"""Checks of score terms, which backends would broadcast, cast or ignore without a word.

The outermost layer that a user calls checks its arguments once. What it calls trusts them.
"""

from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.types import Shape


def check_masks(scores_shape: Shape, attention_mask: Any = None, **masks_of_tokens: Any) -> None:
    """Raise a `ValueError` unless masks hold booleans, or 0 and 1, and fit the scores.

    Booleans have no values to check. Other values are read only if they are in host memory.

    Args:
        scores_shape: `(B, H, T, S)`.
        attention_mask: Mask of query-key pairs, or `None`.
        **masks_of_tokens: Masks of the keys `(B, S)` by name, or `None`.
    """
    batch, heads, query, key = ((size, 1) for size in scores_shape)
    shapes = [(query, key), (batch, query, key), (batch, heads, query, key)]
    _check_mask("attention_mask", attention_mask, shapes, scores_shape)
    for name, mask in masks_of_tokens.items():
        _check_mask(name, mask, [(batch, key[:1])], scores_shape)


def _check_mask(name, mask, shapes, scores_shape):
    if mask is None:
        return
    if not hasattr(mask, "shape"):
        mask = np.asarray(mask)
    # The rank of a tensor in a TensorFlow graph may be unknown.
    has_rank = getattr(mask.shape, "rank", 0) is not None
    values = None if "bool" in str(mask.dtype) else validation.host_value(mask)
    if has_rank and not any(_has_sizes(mask.shape, sizes) for sizes in shapes):
        axes = "query_length, key_length" if name == "attention_mask" else "length"
        rule, received = f"have the shape (batch_size, {axes})", f"shape={tuple(mask.shape)}"
    elif values is not None and not np.all((values == 0) | (values == 1)):
        rule = "be True or 1 for tokens to attend to, and False or 0 for others"
        received = f"values from {values.min()} to {values.max()}"
    else:
        return
    raise ValueError(
        f"`{name}` must {rule}, for scores of shape (batch_size, num_heads, query_length, "
        f"key_length) = {tuple(scores_shape)}. Received: {received}. Add other numbers to the "
        "scores as an `attention_bias`."
    )


def _has_sizes(shape, sizes):
    return len(shape) == len(sizes) and all(map(_fits, shape, sizes))


def _fits(size, allowed):
    """Return whether a size is allowed. Unknown and symbolic sizes are."""
    known = isinstance(size, int) and all(isinstance(each, int) for each in allowed)
    return not known or size in allowed


def check_bias(bias: Any, scores_shape: Shape) -> None:
    """Raise a `ValueError` unless a bias is a layer, or a float tensor that fits the scores.

    Args:
        bias: The value to check, or `None`.
        scores_shape: `(B, H, T, S)`. Unknown sizes are `None` and are not checked.
    """
    if bias is None or isinstance(bias, keras.layers.Layer):
        check_heads_of_bias("attention_bias", bias, scores_shape[1])
        return
    sizes = [(size, 1) for size in scores_shape[-len(bias.shape) or len(scores_shape) :]]
    if not keras.backend.is_float_dtype(bias.dtype):
        rule = "be a floating point tensor that is added to the scores"
        received = f"dtype={keras.backend.standardize_dtype(bias.dtype)}"
    elif not _has_sizes(bias.shape, sizes):
        rule, received = "be broadcastable to the scores", f"shape={tuple(bias.shape)}"
    else:
        return
    raise ValueError(
        f"`attention_bias` must {rule}. They have the shape (batch_size, num_heads, query_length, "
        f"key_length) = {tuple(scores_shape)}. Received: {received}. Use size 1 for an axis along "
        "which it does not change, and pass a mask as `attention_mask`."
    )


def check_heads_of_bias(name: str, bias: Any, num_heads: Any) -> None:
    """Raise a `ValueError` if a bias layer has scores for another number of heads."""
    received = getattr(bias, "num_heads", num_heads)
    if received not in (1, num_heads):
        raise ValueError(
            f"`{name}` must have scores for {num_heads} heads. Received: a bias layer with "
            f"num_heads={received}. Pass the same `num_heads` to both layers."
        )


def check_symbolic_bias(bias: Any, terms: Any) -> None:
    """Raise a `ValueError` if a functional model would not own the weights of a bias."""
    bias = bias if terms is None else terms.bias
    if isinstance(bias, keras.layers.Layer):
        raise ValueError(
            f"In a functional model `attention_bias` must be a tensor. Received: {bias}. "
            "Call the layer and pass its output, or call both layers inside a custom layer."
        )


def check_only_terms(name: str, **arguments: Any) -> None:
    """Raise a `ValueError` for arguments that score terms of this name replace."""
    # Tensors have no truth value. The defaults of the others are `None`, `False` and 0.
    given = [
        argument
        for argument, value in arguments.items()
        if value is not None and (not isinstance(value, int) or value)
    ]
    if given:
        raise ValueError(
            f"`{name}` replaces the arguments {', '.join(given)}. Received: both. Put these terms "
            f"into `{name}`."
        )
