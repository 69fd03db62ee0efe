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
from typing import Any

from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.score_terms import ScoreTerms, ids_of_tokens
from keras_diet.types import Tensor


def attend_by_flex(query: Tensor, key: Tensor, value: Tensor, terms: Any) -> tuple[Tensor, None]:
    """Return the output of all heads for `PreparedTerms`. Shapes are as in `attend`."""
    change, by_distance = None, terms.by_distance
    if by_distance is not None:
        last = ops.convert_to_tensor(query.shape[1] - 1, dtype="int32")

        def change(products, b, h, i, j):
            return products + by_distance[h, j - i + last]

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
    tensors = terms.padding_mask, terms.document_ids
    is_full = terms.sliding_window is None and not terms.is_causal
    if is_full and all(tensor is None for tensor in tensors):
        return None
    lengths = query.shape[1], (query if key is None else key).shape[1]
    before, after = lengths if terms.sliding_window is None else 2 * (terms.sliding_window - 1,)
    limits = -before, 0 if terms.is_causal else after
    first, last = (ops.convert_to_tensor(limit, dtype="int32") for limit in limits)
    query_ids, key_ids = ids_of_tokens(terms, query.shape[0], lengths)

    def mask(b, h, i, j):
        same = query_ids[b, i] == key_ids[b, j]
        return same & (j - i >= first) & (j - i <= last)

    make = _function("create_block_mask", _backend.platform())
    return make(mask, query.shape[0], None, *lengths, device=str(query.device))


@functools.cache
def _function(name, platform):
    """Return a function that PyTorch compiles at its first call, once for all lengths.

    Without a GPU it is not compiled, and computes all scores. This is for tests.
    """
    import torch
    from torch.nn.attention import flex_attention

    function = getattr(flex_attention, name)
    return torch.compile(function, dynamic=True) if platform == "gpu" else function
