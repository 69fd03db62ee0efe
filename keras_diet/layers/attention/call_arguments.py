"""The keys and the score terms of a call of an attention layer, after checks."""

from typing import Any

from keras_diet.layers.attention.input_checks import check_masks, check_sequences
from keras_diet.layers.attention.key_memory import KeysAndValues
from keras_diet.layers.attention.score_shapes import check_only_terms, check_terms, scores_shape
from keras_diet.layers.attention.score_terms import ScoreTerms, terms_of_arguments
from keras_diet.types import Tensor


def keys_of_call(
    query: Tensor, value: Tensor | None, key: Tensor | None, projected_keys: KeysAndValues | None
) -> tuple[Tensor, Tensor]:
    """Return the key and the value. Only the rows and lengths of projected ones may be read.

    Raises:
        ValueError: If they do not fit the query, or are given in both ways or in neither.
    """
    if projected_keys is not None:
        if value is not None or key is not None:
            name = "key" if value is None else "value"
            raise ValueError(
                f"`projected_keys` replace the argument `{name}`. Received: both. Pass {name}=None."
            )
        check_rows(query, projected_keys)
        return projected_keys
    if value is None:
        raise ValueError(
            "Attention needs a `value`, or `projected_keys` in its place. Received: neither. Pass "
            "`value`."
        )
    check_sequences(query, value)
    return (value if key is None else key), value


def check_rows(query: Tensor, projected_keys: KeysAndValues) -> None:
    """Raise a `ValueError` unless the rows of the query can share the rows of the keys."""
    num_queries, num_keys = query.shape[0], projected_keys[0].shape[0]
    if num_queries is None or num_keys in (None, num_queries):
        return
    if num_keys == 0 or num_queries % num_keys:
        raise ValueError(
            "The batch size of the query must be a multiple of the batch size of `projected_keys`, "
            "because the same number of queries shares each row of keys. Received: "
            f"query.shape={tuple(query.shape)}, keys of shape {tuple(projected_keys[0].shape)}. "
            "Project the keys of as many rows."
        )


def terms_of_call(
    attention: Any,
    query: Tensor,
    value: Tensor,
    score_terms: ScoreTerms | None,
    is_planned: bool,
    **arguments: Any,
) -> ScoreTerms:
    """Return the score terms.

    Args:
        attention: The `BiasedMultiHeadAttention`.
        query: Tensor `(B, T, dim)`.
        value: Tensor `(B, S, ...)`.
        score_terms: All terms in one object, or `None`.
        is_planned: bool. Whether a stack of blocks has made a plan for the terms.
        **arguments: The terms in separate arguments, as in the call of the layer.

    Raises:
        ValueError: If terms do not fit the scores, or are given in both ways.
    """
    if score_terms is None:
        shape = scores_shape(attention, query.shape, value.shape)
        masks = {name: arguments[name] for name in ("attention_mask", "value_mask", "key_mask")}
        check_masks(shape, **masks)
        score_terms = terms_of_arguments(**arguments)
    else:
        check_only_terms(score_terms, **arguments)
    if not is_planned:
        # A stack of blocks has checked its terms.
        check_terms(attention, score_terms, query.shape, value.shape)
    return score_terms
