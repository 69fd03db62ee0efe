"""Attention in which several queries of the batch share their keys, as the beams of a search do.

`K` rows of queries belong to each row of keys: the first `K` to the first, and so on. The queries
of these rows become `K T` queries of one row, so keys and values are not repeated.
"""

from keras import ops

from keras_diet.layers.attention.lowering import repeat_rows, with_four_axes, with_score_axes
from keras_diet.layers.attention.score_terms import ScoreTerms, all_of, mask_of_positions
from keras_diet.types import Tensor


def has_shared_keys(query: Tensor, key: Tensor) -> bool:
    """Whether there may be fewer rows of keys than of queries. One row of keys is broadcast."""
    num_queries, num_keys = query.shape[0], key.shape[0]
    return num_keys != 1 and (num_keys is None or num_queries != num_keys)


def fold_queries(query: Tensor, key: Tensor, terms: ScoreTerms) -> tuple[Tensor, ScoreTerms]:
    """Return the queries as `(B, K T, H, key_dim)`, and their terms.

    Args:
        query: Projected queries `(B K, T, H, key_dim)`.
        key: Projected keys `(B, S, H, key_dim)`.
        terms: The terms, without a bias layer. Each of them has 1, `B` or `B K` rows.
    """
    num_rows, (num_queries, length) = ops.shape(key)[0], ops.shape(query)[:2]
    sizes = (num_rows, num_queries // num_rows, length)
    masks = [terms.attention_mask, mask_of_positions(terms, length, ops.shape(key)[1])]
    mask = all_of([with_score_axes(mask, 4) for mask in masks if mask is not None])
    terms = terms.replace(
        bias=None if terms.bias is None else _fold(with_four_axes(terms.bias), *sizes, axis=2),
        features=tuple((_fold(one, *sizes, axis=1), other) for one, other in terms.features),
        attention_mask=None if mask is None else _fold(mask, *sizes, axis=2),
        is_causal=False,
        sliding_window=None,
    )
    return _fold(query, *sizes, axis=1), terms


def unfold_output(output: Tensor, query: Tensor) -> Tensor:
    """Return the output `(B, K T, H, value_dim)` as `(B K, T, H, value_dim)`."""
    return ops.reshape(output, (*ops.shape(query)[:2], *ops.shape(output)[2:]))


def unfold_scores(scores: Tensor | None, query: Tensor) -> Tensor | None:
    """Return the probabilities `(B, H, K T, S)` as `(B K, H, T, S)`."""
    if scores is None:
        return None
    num_rows, num_heads, _, key_length = ops.shape(scores)
    num_queries, length = ops.shape(query)[:2]
    scores = ops.reshape(scores, (num_rows, num_heads, -1, length, key_length))
    scores = ops.swapaxes(scores, 1, 2)
    return ops.reshape(scores, (num_queries, num_heads, length, key_length))


def repeat_keys(
    query: Tensor, key: Tensor, value: Tensor, terms: ScoreTerms
) -> tuple[Tensor, Tensor, ScoreTerms]:
    """Return keys, values and padding with a row for each row of queries."""
    if terms.padding_mask is not None:
        terms = terms.replace(padding_mask=repeat_rows(terms.padding_mask, query))
    return repeat_rows(key, query), repeat_rows(value, query), terms


def _fold(tensor, num_rows, num_copies, length, axis):
    """Move the `K` rows of each row of keys to the axis of the `T` queries."""
    num_rows = 1 if tensor.shape[0] == 1 else num_rows
    is_shared = tensor.shape[0] in (1, num_rows)
    if is_shared and tensor.shape[axis] == 1:
        return tensor
    shape = list(ops.shape(tensor))
    copies = 1 if is_shared else num_copies
    tensor = ops.reshape(tensor, (num_rows, copies, *shape[1:]))
    shape[axis] = length
    tensor = ops.broadcast_to(tensor, (num_rows, num_copies, *shape[1:]))
    tensor = ops.moveaxis(tensor, 1, axis)
    shape[axis] = -1
    return ops.reshape(tensor, (num_rows, *shape[1:]))
