"""FlexAttention: a kernel of PyTorch that computes terms from indices, where it needs them.

The kernel has no row of scores in memory, and does not compute blocks that a mask excludes. On a
CPU it has no gradients.
"""

import functools
from typing import Any

from keras_diet import _backend
from keras_diet.layers.attention.index_form import mask_of_indices, score_of_indices
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.types import Tensor


def attend_by_flex(query: Tensor, key: Tensor, value: Tensor, terms: Any) -> tuple[Tensor, None]:
    """Return the output of all heads for `PreparedTerms`. Shapes are as in `attend`."""
    change = None
    if terms.by_distance is not None:
        score = score_of_indices(terms.by_distance, query.shape[1])

        def change(products, b, h, i, j):
            return products + score(b, h, i, j)

    output = _function("flex_attention")(
        *(heads.transpose(1, 2) for heads in (query, key, value)),
        score_mod=change,
        block_mask=terms.block_mask,
        scale=terms.scale,
    )
    return output.transpose(1, 2), None


def make_block_mask(terms: ScoreTerms, query: Tensor, key: Tensor | None) -> Any:
    """Return which blocks of pairs the masks allow in part or as a whole, or `None` without masks.

    Args:
        terms: Terms without a mask of pairs.
        query: Tensor `(B, T, ...)`.
        key: Tensor `(B, S, ...)`, or `None` for `query`.
    """
    mask = mask_of_indices(terms)
    if mask is None:
        return None
    has_examples = terms.padding_mask is not None or terms.document_ids is not None
    key = query if key is None else key
    sizes = (query.shape[0] if has_examples else None, None, query.shape[1], key.shape[1])
    return _function("create_block_mask")(mask, *sizes, device=str(query.device))


def _function(name):
    # Uncompiled functions compute all scores. They are for tests without a GPU.
    return _compiled(name) if _backend.platform() == "gpu" else _uncompiled(name)


def _uncompiled(name):
    from torch.nn.attention import flex_attention

    return getattr(flex_attention, name)


@functools.cache
def _compiled(name):
    """Return a function that PyTorch compiles at its first call, once for all lengths."""
    import torch

    return torch.compile(_uncompiled(name), dynamic=True)
