"""Checks of queries, values and masks, which backends would broadcast or cast without a word."""

from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.types import Shape, Tensor


def check_sequences(query: Tensor, value: Tensor) -> None:
    """Raise a `ValueError` unless query and value are batches of vectors, one for each token."""
    shapes = (query.shape, value.shape)
    if any(len(shape) < 3 for shape in shapes) or len(set(map(len, shapes))) > 1:
        problem, remedy = "the same number of axes, at least 3", "Add the missing axes."
    elif not all(keras.backend.is_float_dtype(tensor.dtype) for tensor in (query, value)):
        problem, remedy = "floating point numbers", "Embed token ids, or cast the numbers."
    elif not _fits(query.shape[0], (value.shape[0], 1)) and value.shape[0] != 1:
        problem, remedy = "the same batch size", "Pass one value for each query."
    else:
        return
    received = ", ".join(
        f"{name} of dtype {keras.backend.standardize_dtype(tensor.dtype)} and shape "
        f"{tuple(tensor.shape)}"
        for name, tensor in (("query", query), ("value", value))
    )
    raise ValueError(f"`query` and `value` must have {problem}. Received: {received}. {remedy}")


def check_no_attention_axes(attention: keras.layers.Layer) -> None:
    """Raise a `ValueError` if `attention_axes` is set on a layer that supports only axis 1."""
    # Keras replaces `None` by the sequence axis when it builds the layer.
    if attention.attention_axes is not None and tuple(attention.attention_axes) != (1,):
        raise ValueError(
            f"`attention_axes` must be left at `None` in `{type(attention).__name__}`. "
            f"Received: attention_axes={attention.attention_axes}. Leave it out, or use "
            "`BiasedMultiHeadAttention`."
        )


def check_one_sequence_axis(query_shape: Shape, value_shape: Shape) -> None:
    """Raise a `ValueError` unless both shapes are `(batch_size, length, features)`."""
    if len(query_shape) != 3 or len(value_shape) != 3:
        raise ValueError(
            "`query` and `value` must have the shape (batch_size, length, features). Received: "
            f"query_shape={tuple(query_shape)}, value_shape={tuple(value_shape)}. Reshape them, or "
            "use `BiasedMultiHeadAttention`."
        )


def check_masks(scores_shape: Shape, attention_mask: Any = None, **masks_of_tokens: Any) -> None:
    """Raise a `ValueError` unless masks hold booleans, or 0 and 1, and fit the scores.

    Booleans have no values to check. Other values are read only if they are in host memory.

    Args:
        scores_shape: `(B, H, T, S)`. Shapes of masks for several sequence axes are not checked.
        attention_mask: Mask of query-key pairs, or `None`.
        **masks_of_tokens: Masks of shape `(B, S)` by name, or `None`. `query_mask` is `(B, T)`.
    """
    # For each axis, the sizes that a mask may have.
    for name, mask in masks_of_tokens.items():
        sizes: Any = None
        if len(scores_shape) == 4:
            length = scores_shape[2 if name == "query_mask" else 3]
            sizes = [((scores_shape[0], 1), (length,))]
        _check_mask(name, mask, sizes, "(batch_size, length)", scores_shape)
    sizes = None
    if len(scores_shape) == 4:
        batch, heads, query, key = ((size, 1) for size in scores_shape)
        sizes = [(query, key), (batch, query, key), (batch, heads, query, key)]
    rule = "(batch_size, query_length, key_length)"
    _check_mask("attention_mask", attention_mask, sizes, rule, scores_shape)


def _check_mask(name, mask, allowed, rule, scores_shape):
    if mask is None:
        return
    if not hasattr(mask, "shape"):
        mask = np.asarray(mask)
    # The rank of a tensor in a TensorFlow graph may be unknown.
    has_rank = getattr(mask.shape, "rank", 0) is not None
    if allowed and has_rank and not any(_has_sizes(mask.shape, sizes) for sizes in allowed):
        raise ValueError(
            f"`{name}` must have the shape {rule}, for scores of shape (batch_size, num_heads, "
            f"query_length, key_length) = {tuple(scores_shape)}. Received: shape="
            f"{tuple(mask.shape)}. Pass 1 to attend to a token, and 0 to leave it out."
        )
    is_boolean = "bool" in str(mask.dtype)
    values = None if is_boolean else validation.host_value(mask)
    if values is None or values.size == 0:
        return
    if values.dtype.kind not in "iuf" or not np.all((values == 0) | (values == 1)):
        shown = values.dtype if values.dtype.kind not in "iuf" else _range(values)
        raise ValueError(
            f"`{name}` must be True or 1 for tokens to attend to, and False or 0 for others. "
            f"Received: {shown}. Add other numbers to the scores as an `attention_bias`."
        )


def _has_sizes(shape, sizes):
    return len(shape) == len(sizes) and all(map(_fits, shape, sizes))


def _fits(size, allowed):
    """Return whether a size is allowed. Unknown and symbolic sizes are."""
    known = isinstance(size, int) and all(isinstance(each, int) for each in allowed)
    return not known or size in allowed


def _range(values):
    return f"values from {values.min()} to {values.max()}"
