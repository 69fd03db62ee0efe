"""Checks of score terms, which backends would broadcast, cast or ignore without a word.

The outermost layer that a user calls checks its arguments once. What it calls trusts them.
"""

from typing import Any

import keras
import numpy as np

from keras_diet import validation
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.types import Shape, Tensor


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


def check_masks_of_call(scores_shape: Shape, terms: ScoreTerms | None, **arguments: Any) -> None:
    """Raise a `ValueError` unless masks fit, in score terms or in arguments but not in both."""
    if terms is None:
        names = ("attention_mask", "value_mask", "key_mask")
        check_masks(scores_shape, **{name: arguments[name] for name in names})
    else:
        check_only_terms(terms, **arguments)
        check_masks(scores_shape, terms.attention_mask, padding_mask=terms.padding_mask)


def check_terms(scores_shape: Shape, terms: ScoreTerms) -> None:
    """Raise a `ValueError` unless bias, features and `start_index` fit scores `(B, H, T, S)`."""
    validation.start_index(terms.start_index)
    if terms.has_bias_layer:
        check_heads_of_bias("attention_bias", terms.bias, scores_shape[1])
    elif terms.bias is not None:
        check_score_bias("attention_bias", terms.bias, scores_shape)
    for features in terms.features:
        check_score_features("attention_features", features, scores_shape)


def check_score_bias(name: str, bias: Tensor, shape: Shape) -> None:
    """Raise a `ValueError` unless `bias` has a floating point dtype and broadcasts to the scores.

    Args:
        name: Name of the argument.
        bias: The tensor to check.
        shape: Shape of the scores, `(B, H, T, S)`. Unknown sizes are `None` and are not checked.
    """
    sizes = [(size, 1) for size in shape[-len(getattr(bias, "shape", ())) or len(shape) :]]
    if not hasattr(bias, "shape"):
        rule, received = "be a tensor or a bias layer", type(bias).__name__
    elif not keras.backend.is_float_dtype(bias.dtype):
        rule = "be a floating point tensor that is added to the scores"
        received = f"dtype={keras.backend.standardize_dtype(bias.dtype)}"
    elif not _has_sizes(bias.shape, sizes):
        rule, received = "be broadcastable to the scores", f"shape={tuple(bias.shape)}"
    else:
        return
    raise ValueError(
        f"`{name}` must {rule}. They have the shape (batch_size, num_heads, query_length, "
        f"key_length) = {tuple(shape)}. Received: {received}. Use size 1 for an axis along which "
        "it does not change, and pass a mask as `attention_mask`."
    )


def check_heads_of_bias(name: str, bias: Any, num_heads: Any) -> None:
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
    batch, heads = ((size, 1) for size in shape[:2])
    shapes = [tuple(getattr(tensor, "shape", ())) for tensor in features]
    are_floats = all(keras.backend.is_float_dtype(getattr(x, "dtype", "bool")) for x in features)
    ranks = {sizes[3:] for sizes in shapes}
    fits = len(shapes) == 2 and are_floats and len(ranks) == 1 and len(shapes[0]) == 4
    expected = [(batch, (length,), heads) for length in shape[2:]]
    if not fits or not all(
        _has_sizes(sizes[:3], each) for sizes, each in zip(shapes, expected, strict=True)
    ):
        raise ValueError(
            f"`{name}` must be a pair of floating point tensors: query features (batch_size or 1, "
            "query_length, num_heads or 1, rank) and key features (batch_size or 1, key_length, "
            "num_heads or 1, rank). The scores have the shape (batch_size, num_heads, "
            f"query_length, key_length) = {tuple(shape)}. Received: {name} of shapes {shapes}."
        )


def check_symbolic_bias(attention_bias: Any, score_terms: ScoreTerms | None) -> None:
    """Raise a `ValueError` if a functional model would not own the weights of a bias."""
    for bias in (attention_bias, None if score_terms is None else score_terms.bias):
        if isinstance(bias, keras.layers.Layer):
            raise ValueError(
                f"In a functional model `attention_bias` must be a tensor. Received: {bias}. "
                "Call the layer and pass its output, or call both layers inside a custom layer."
            )


def without_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the terms in the arguments of a call that differ from the defaults, `None` and 0."""
    # Tensors cannot be compared here.
    given = {name: value for name, value in arguments.items() if value is not None}
    return {name: value for name, value in given.items() if not isinstance(value, int) or value}


def check_only_terms(score_terms: Any, name: str = "score_terms", **arguments: Any) -> None:
    """Raise a `ValueError` for arguments that score terms of this name replace."""
    names = ", ".join(without_defaults(arguments))
    if names:
        raise ValueError(
            f"`{name}` replaces the arguments {names}. Received: both. Put these terms into "
            f"`{name}`."
        )
