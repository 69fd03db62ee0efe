"""FlexAttention: a kernel of PyTorch that computes terms from indices, where it needs them.

For the example `b` of the batch, the head `h`, the query `i` and the key `j`, all counted from 0,

    score(b, h, i, j) = by_distance[h, j - i + T - 1]
    mask(b, h, i, j)  = ids of queries[b, i] == ids of keys[b, j], and first <= j - i <= last

Ids hold documents and padding, and the limits of distances hold causality and windows. Features are
columns of the queries and keys. The functions read small tensors and no numbers of Python, and are
the same for all masks, because PyTorch compiles a program for each function.

The kernel has no row of scores in memory, and does not compute blocks that a mask excludes. On a
CPU it has no gradients.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.score_terms import ScoreTerms, ids_of_tokens
from keras_diet.types import Integer, Tensor

IndexFunction: TypeAlias = Callable[[Any, Any, Any, Any], Tensor]


def attend_by_flex(query: Tensor, key: Tensor, value: Tensor, terms: Any) -> tuple[Tensor, None]:
    """Return the output of all heads for `PreparedTerms`. Shapes are as in `attend`."""
    change = None
    if terms.by_distance is not None:
        score = score_of_indices(terms.by_distance, query.shape[1])

        def change(products, b, h, i, j):
            return products + score(b, h, i, j)

    output = _function("flex_attention", _backend.platform())(
        *(heads.transpose(1, 2) for heads in (query, key, value)),
        score_mod=change,
        block_mask=terms.block_mask,
        scale=terms.scale,
    )
    return output.transpose(1, 2), None


def make_block_mask(terms: ScoreTerms, query: Tensor, key: Tensor | None) -> Any:
    """Return which blocks of pairs the masks allow in part or as a whole, or `None` without masks.

    Args:
        terms: Terms without a mask of pairs. Queries begin at position 0.
        query: Tensor `(B, T, ...)`.
        key: Tensor `(B, S, ...)`, or `None` for `query`.
    """
    lengths = query.shape[1], (query if key is None else key).shape[1]
    mask = mask_of_indices(terms, query.shape[0], lengths)
    if mask is None:
        return None
    sizes = (query.shape[0], None, *lengths)
    make = _function("create_block_mask", _backend.platform())
    return make(mask, *sizes, device=str(query.device))


def score_of_indices(by_distance: Tensor, query_length: Integer) -> IndexFunction:
    """Return what is added to a score.

    Args:
        by_distance: Tensor `(H, T + S - 1)`, as in `PreparedTerms`.
        query_length: int or scalar tensor, `T`.
    """
    last = ops.convert_to_tensor(query_length - 1, dtype="int32")
    return lambda b, h, i, j: _backend.read(by_distance, h, j - i + last)


def mask_of_indices(
    terms: ScoreTerms, batch_size: int, lengths: tuple[int, int]
) -> IndexFunction | None:
    """Return whether a query attends to a key, or `None` if all attend to all."""
    tensors = terms.padding_mask, terms.document_ids
    is_full = terms.sliding_window is None and not terms.is_causal
    if is_full and all(tensor is None for tensor in tensors):
        return None
    before, after = lengths if terms.sliding_window is None else 2 * (terms.sliding_window - 1,)
    limits = -before, 0 if terms.is_causal else after
    first, last = (ops.convert_to_tensor(limit, dtype="int32") for limit in limits)
    query_ids, key_ids = ids_of_tokens(terms, batch_size, lengths)

    def mask(b, h, i, j):
        same = _backend.read(query_ids, b, i) == _backend.read(key_ids, b, j)
        return same & (j - i >= first) & (j - i <= last)

    return mask


@functools.cache
def _function(name, platform):
    """Return a function that PyTorch compiles at its first call, once for all lengths.

    Without a GPU it is not compiled, and computes all scores. This is for tests.
    """
    import torch
    from torch.nn.attention import flex_attention

    function = getattr(flex_attention, name)
    return torch.compile(function, dynamic=True) if platform == "gpu" else function
