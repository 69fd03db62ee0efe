"""The shape of attention scores, and checks of the terms of a call."""

from typing import Any

from keras_diet import validation
from keras_diet.layers.attention.bias_checks import (
    check_heads_of_bias,
    check_is_no_layer,
    check_score_bias,
    check_score_features,
)
from keras_diet.layers.attention.input_checks import check_masks
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.layers.position.bias_layer import check_bias_layer
from keras_diet.types import Shape

# The arguments of a call that describe terms and whose default is not `None`.
DEFAULTS = {"use_causal_mask": False, "start_index": 0}


def scores_shape(attention: Any, query_shape: Shape, key_shape: Shape) -> Shape:
    """Return the shape of the scores, `(B, H, T, S)` with one sequence axis.

    Args:
        attention: A `BiasedMultiHeadAttention`.
        query_shape: Shape of the query, `(B, T, dim)`.
        key_shape: Shape of the key, `(B, S, dim)`.
    """
    attended = attention.attention_axes
    free = [query_shape[i] for i in range(1, len(query_shape) - 1) if i not in attended]
    query_sizes = [query_shape[axis] for axis in attended]
    key_sizes = [key_shape[axis] for axis in attended]
    return (query_shape[0], *free, attention.num_heads, *query_sizes, *key_sizes)


def without_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an attention layer that differ from their defaults."""
    return {name: value for name, value in arguments.items() if not _is_default(name, value)}


def _is_default(name, value):
    # Tensors cannot be compared here.
    has_default = isinstance(value, int) and name in DEFAULTS
    return value is None or (has_default and value == DEFAULTS[name])


def check_only_terms(score_terms: Any, name: str = "score_terms", **arguments: Any) -> None:
    """Raise a `ValueError` for arguments that score terms of this name replace."""
    if not isinstance(score_terms, ScoreTerms):
        raise ValueError(
            f"`{name}` must be a `keras_diet.layers.ScoreTerms`. Received: "
            f"{type(score_terms).__name__}. Pass `ScoreTerms(...)`."
        )
    names = list(without_defaults(arguments))
    if names:
        raise ValueError(
            f"`{name}` replaces the arguments {', '.join(names)}. Received: both. Put these "
            f"terms into `{name}`."
        )


def check_symbolic_bias(attention_bias: Any, score_terms: ScoreTerms | None) -> None:
    """Raise a `ValueError` if a functional model would not own the weights of a bias."""
    bias_of_terms = None if score_terms is None else score_terms.bias
    for bias in (attention_bias, bias_of_terms):
        check_is_no_layer("attention_bias", bias)


def check_terms(attention: Any, terms: ScoreTerms, query_shape: Shape, key_shape: Shape) -> None:
    """Raise a `ValueError` if a term does not fit the scores."""
    shape = scores_shape(attention, query_shape, key_shape)
    validation.start_index(terms.start_index)
    check_heads_of_bias("attention_bias", terms.bias, attention.num_heads)
    check_masks(shape, terms.attention_mask, padding_mask=terms.padding_mask)
    if terms.has_bias_layer:
        check_bias_layer("attention_bias", terms.bias)
    elif terms.bias is not None:
        check_score_bias("attention_bias", terms.bias, shape)
    for features in terms.features:
        if len(shape) != 4:
            raise ValueError(
                "`attention_features` need one sequence axis. Received: "
                f"attention_axes={attention.attention_axes}, query.shape={tuple(query_shape)}. Use "
                "`attention_bias`."
            )
        check_score_features("attention_features", features, shape)
