"""Score terms as functions of indices, for programs that never have a row of scores in memory.

For the example `b` of the batch, the head `h`, the query `i` and the key `j`, all counted from 0,

    score(b, h, i, j) = by_distance[h, j - i + T - 1]
    mask(b, h, i, j)  = key j is a token, not behind i, in its window and in its document

FlexAttention of PyTorch takes these functions. They read small tensors: one score for each
distance, the ids of documents, and the padding mask. Features are not in them, because they are
columns of the queries and keys.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.types import Integer, Tensor

IndexFunction: TypeAlias = Callable[[Any, Any, Any, Any], Tensor]


def score_of_indices(by_distance: Tensor, query_length: Integer) -> IndexFunction:
    """Return what is added to a score.

    Args:
        by_distance: Tensor `(H, T + S - 1)`, as in `PreparedTerms`.
        query_length: int or scalar tensor, `T`.
    """
    # Some compilers make a program for each number, but one program for all tensors.
    last = ops.convert_to_tensor(query_length - 1, dtype="int32")
    return lambda b, h, i, j: _backend.read(by_distance, h, j - i + last)


def mask_of_indices(terms: ScoreTerms) -> IndexFunction | None:
    """Return whether a query attends to a key, or `None` if all attend to all."""
    masks: list[IndexFunction] = []
    start, window = terms.start_index, terms.sliding_window
    padding, ids = (
        None if term is None else ops.convert_to_tensor(term)
        for term in (terms.padding_mask, terms.document_ids)
    )
    if padding is not None:
        masks.append(lambda b, h, i, j: _backend.read(padding, b, j))
    if terms.is_causal:
        masks.append(lambda b, h, i, j: j <= i + start)
    if window is not None:
        masks.append(lambda b, h, i, j: (i + start - j < window) & (j - i - start < window))
    if ids is not None:
        masks.append(
            lambda b, h, i, j: _backend.read(ids, b, i + start) == _backend.read(ids, b, j)
        )
    if not masks:
        return None
    return lambda b, h, i, j: functools.reduce(operator.and_, [mask(b, h, i, j) for mask in masks])
