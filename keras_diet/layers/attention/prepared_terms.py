"""Score terms in the form that the plan names, as a program gets them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.flex_attention import make_block_mask
from keras_diet.layers.attention.key_memory import may_share_rows
from keras_diet.layers.attention.plan import AttentionPlan, size_with_columns
from keras_diet.layers.attention.score_terms import (
    FeaturePair,
    ScoreTerms,
    all_of,
    mask_of_tokens,
    positions_in_documents,
    with_score_axes,
)
from keras_diet.layers.position.position_bias import (
    is_distance_only,
    keeps_keys,
    reads_content,
    scores_of,
)
from keras_diet.types import DType, Tensor

# Finite, so that a query without any key has finite probabilities, and far below every score.
MASKED = -1e9


@dataclasses.dataclass(frozen=True)
class PreparedTerms(ScoreTerms):
    """Score terms in the form that a plan names, and what else a program needs.

    A stack of blocks prepares the terms for its layers. A layer that is called on its own prepares
    the terms of its call. Nobody checks them again.

    Attributes:
        plan: The `AttentionPlan`.
        positions: Integer tensor `(B, T)`, the positions of tokens in their documents, or `None`.
        by_distance: Tensor `(H, T + S - 1)`, the scores of a bias layer by distance, or `None`. The
            score of query `i` and key `j` is in column `j - i + T - 1`.
        block_mask: All masks, in the form that FlexAttention takes, or `None`.
        scale: float. Factor of the products of queries and keys.
        hooks: tuple of `AttentionHook`, called one after the other.
        states: The hidden states of queries and keys, for a bias layer that reads them in blocks;
            or `None`.
        dropout: Function of the probabilities `(B, H, T, S)` of queries that begin at `start`, or
            `None`. In blocks it gives the same result each time it is called for a block.
    """

    plan: AttentionPlan = dataclasses.field(kw_only=True)
    positions: Tensor | None = None
    by_distance: Tensor | None = None
    block_mask: Any = None
    scale: float = 1.0
    hooks: tuple[AttentionHook, ...] = ()
    states: tuple[Tensor, Tensor] | None = None
    dropout: Callable[..., Tensor] | None = None

    def functions(self, name: str) -> list[Callable[..., Any]]:
        """Return the functions that hooks have for a step."""
        functions = [getattr(hook, name) for hook in self.hooks]
        return [function for function in functions if function is not None]


def prepare(
    terms: ScoreTerms, plan: AttentionPlan, query: Tensor, key: Tensor | None
) -> PreparedTerms:
    """Return the terms of a layer in the form of its plan.

    Args:
        terms: The terms.
        plan: The plan.
        query: Tensor whose length is the number of queries.
        key: Tensor whose length is the number of keys, or `None` for `query`.
    """
    ids = terms.document_ids
    positions = None if ids is None else positions_in_documents(ids)
    prepared = prepare_masks(terms, plan, query, key, positions)
    return fold_masks(lower_bias(prepared, query, key), query, key)


def prepare_masks(
    terms: ScoreTerms,
    plan: AttentionPlan,
    query: Tensor,
    key: Tensor | None,
    positions: Tensor | None,
) -> PreparedTerms:
    """Return terms whose window and documents are one mask, which layers may share."""
    prepared = PreparedTerms(**vars(terms), plan=plan, positions=positions)
    if plan.program == "flex":
        # Layers read it there. The kernel does not compute blocks that it excludes.
        return prepared.replace(block_mask=make_block_mask(terms, query, key))
    has_mask = terms.sliding_window is not None or terms.document_ids is not None
    # In blocks, only the mask of one block is in memory.
    in_parts = plan.reads_indices or plan.block_size is not None
    return with_one_mask(prepared, query, key) if has_mask and not in_parts else prepared


def with_one_mask(terms: PreparedTerms, query: Tensor, key: Tensor | None) -> PreparedTerms:
    """Return terms in which the mask of pairs also holds windows, documents and causality."""
    lengths = [ops.shape(tensor)[1] for tensor in (query, query if key is None else key)]
    mask = all_of([mask_of_tokens(terms, *lengths), terms.attention_mask])
    return terms.replace(
        attention_mask=mask, is_causal=False, sliding_window=None, document_ids=None
    )


def lower_bias(terms: PreparedTerms, query: Tensor, key: Tensor | None) -> PreparedTerms:
    """Give a bias layer the form of the plan: scores, features, or weights that blocks read."""
    if terms.pair_scores is not None:
        lowered = lower_bias(terms.replace(pair_scores=None), query, key)
        scores = terms.pair_scores
        return lowered.replace(bias=scores if lowered.bias is None else lowered.bias + scores)
    if not terms.has_bias_layer:
        return terms
    positions = None if is_distance_only(terms.bias) else terms.positions
    if terms.plan.bias == "tensor":
        scores = scores_of(terms.bias, query, key, terms.start_index)
        if positions is not None:
            scores = _scores_at(scores, positions, terms.bias)
        return terms.replace(bias=scores)
    # The weights must exist before blocks read them.
    if not terms.bias.built:
        terms.bias(*(tensor[:, :1] for tensor in (query, key) if tensor is not None))
    if terms.plan.bias in ("low_rank", "distances"):
        pair, scores = _parts_of(terms, query, key)
        if pair is not None and positions is not None:
            pair = tuple(ops.take(_of_one_row(x, terms.bias), positions, axis=0) for x in pair)
        pairs = () if pair is None else (pair,)
        return terms.replace(bias=None, by_distance=scores, features=(*terms.features, *pairs))
    if reads_content(terms.bias):
        key = query if key is None else key
        is_projected = not keeps_keys(terms.bias) or terms.plan.batch_first
        key = key if is_projected else terms.bias.project_keys(key)
        return terms.replace(states=(query, key))
    return terms


def _parts_of(terms, query, key):
    """Return features or `None`, and one score for each distance or `None`."""
    bias, start = terms.bias, terms.start_index
    if terms.plan.bias == "low_rank":
        return bias.features(query, key, start), None
    pair, scores = None, None
    if bias.parts is None:
        lengths = [ops.shape(tensor)[1] for tensor in (query, query if key is None else key)]
        scores = bias.by_distance(*lengths, start)
    else:
        pair, scores = bias.parts(query, key, start)
    return pair, None if scores is None else ops.cast(scores, "float32")


def fold_masks(terms: PreparedTerms, query: Tensor, key: Tensor | None) -> PreparedTerms:
    """Add masks to the bias of a kernel, once for all layers that share the bias."""
    plan, dtype = terms.plan, query.dtype
    if plan.program != "kernel" or terms.bias is None or terms.has_bias_layer:
        return terms
    bias = narrowed(terms.bias, dtype)
    # A compiler would keep the sum in memory; without one it is made once for all layers.
    if terms.padding_mask is not None and not (plan.columns or plan.masks_padding):
        bias = bias + padding_row(terms.padding_mask, dtype)
        terms = terms.replace(padding_mask=None)
    # A kernel takes no mask beside a bias. In blocks, only the mask of one block is in memory.
    if plan.block_size is None:
        terms = with_one_mask(terms, query, key)
        if terms.attention_mask is not None:
            bias = bias_with_mask(bias, with_score_axes(terms.attention_mask), dtype)
            terms = terms.replace(attention_mask=None)
    return terms.replace(bias=bias)


def _scores_at(scores, positions, bias):
    """Return the scores `(B, H, T, T)` of tokens at positions `(B, T)`."""
    length = ops.shape(positions)[1]
    scores = _of_one_row(with_four_axes(scores), bias)
    num_heads = ops.shape(scores)[0]
    scores = ops.reshape(
        ops.broadcast_to(scores, (num_heads, length, length)), (num_heads, length * length)
    )
    pairs = ops.expand_dims(positions * length, 2) + ops.expand_dims(positions, 1)
    return ops.swapaxes(ops.take(scores, pairs, axis=1), 0, 1)


def _of_one_row(scores, bias):
    if scores.shape[0] != 1 or reads_content(bias):
        raise ValueError(
            "With `document_ids`, the scores of a bias layer must depend on positions only, and "
            "have the shape (1, num_heads, length, length). Received: shape="
            f"{tuple(scores.shape)} from {bias}. If they depend on distances only, set "
            "`distance_only = True` in its class."
        )
    return scores[0]


def lower_columns(
    query: Tensor, key: Tensor, terms: PreparedTerms
) -> tuple[Tensor, Tensor, PreparedTerms]:
    """Move features and padding to columns of queries and keys, if the plan says so.

    The program multiplies all columns by the scale, so the features are divided by it.
    """
    if not has_columns(terms):
        return query, key, terms
    pairs = list(terms.features)
    if terms.padding_mask is not None and not terms.plan.masks_padding:
        pairs.append(padding_features(terms.padding_mask, key.dtype))
        terms = terms.replace(padding_mask=None)
    query_features, key_features = zip(*pairs, strict=True)
    query = append_columns(query, [x / terms.scale for x in query_features], terms.plan.alignment)
    key = append_columns(key, key_features, terms.plan.alignment)
    return query, key, terms.replace(features=())


def has_columns(terms: PreparedTerms) -> bool:
    """Whether terms become columns of queries and keys."""
    if not terms.plan.columns:
        return False
    if terms.features:
        return True
    pads_scores = terms.padding_mask is not None and not terms.plan.masks_padding
    # Padding alone is a bias of one row, which is cheaper than a column.
    return pads_scores and terms.bias is not None


def lower_scores(query: Tensor, key: Tensor, terms: PreparedTerms) -> PreparedTerms:
    """Return the remaining terms as one bias and one mask of pairs, both with four axes.

    `is_causal` is left if the program applies the causal mask itself.
    """
    dtype, plan = query.dtype, terms.plan
    if plan.program == "scores":
        dtype = keras.backend.result_type(dtype, "float32")
    bias = None if terms.bias is None else with_four_axes(narrowed(terms.bias, dtype))
    masks = []
    if terms.padding_mask is not None:
        if plan.masks_padding:
            masks.append(ops.expand_dims(terms.padding_mask, 1))
        else:
            row = padding_row(terms.padding_mask, dtype)
            bias = row if bias is None else bias + row
    for features in terms.features:
        bias = _backend.add_products(bias, *(ops.cast(tensor, dtype) for tensor in features))
    masks += [] if terms.attention_mask is None else [terms.attention_mask]
    is_alone = bias is None and not masks
    is_causal = is_alone and _leaves_causal_mask_to_program(terms, query, key)
    if not is_causal:
        mask = mask_of_tokens(terms, ops.shape(query)[1], ops.shape(key)[1])
        masks += [] if mask is None else [mask]
    return terms.replace(
        bias=bias,
        features=(),
        padding_mask=None,
        attention_mask=all_of([with_score_axes(mask) for mask in masks]),
        is_causal=is_causal,
        sliding_window=None,
        document_ids=None,
    )


def _leaves_causal_mask_to_program(terms, query, key):
    is_plain = terms.is_causal and terms.sliding_window is None and terms.document_ids is None
    folds_queries = terms.plan.batch_first and may_share_rows(query, key)
    return (
        is_plain and terms.plan.program == "kernel" and terms.starts_at_zero and not folds_queries
    )


def narrowed(bias: Tensor, dtype: DType) -> Tensor:
    """Return a bias in the dtype of a program.

    A kernel in bfloat16 takes a bias in bfloat16, which has its precision near zero. So each row
    moves until its largest value is zero. Softmax does not see that.
    """
    wide, narrow = map(keras.backend.standardize_dtype, (bias.dtype, dtype))
    if narrow == "bfloat16" and wide != narrow:
        bias = bias - ops.stop_gradient(ops.max(bias, axis=-1, keepdims=True))
    return ops.cast(bias, dtype)


def bias_with_mask(bias: Any, mask: Tensor, dtype: DType) -> Tensor:
    """Return a bias that excludes what a boolean mask does not allow."""
    return ops.cast(ops.where(mask, bias, MASKED), dtype)


def padding_row(padding_mask: Tensor, dtype: DType) -> Tensor:
    """Return a bias `(B, 1, 1, S)` that excludes padding, for a boolean mask `(B, S)`."""
    row = ops.where(padding_mask, ops.cast(0.0, dtype), ops.cast(MASKED, dtype))
    return ops.expand_dims(ops.expand_dims(row, 1), 1)


def padding_features(padding_mask: Tensor, dtype: DType) -> FeaturePair:
    """Return features of rank 1 that exclude padding, for a boolean mask `(B, S)`."""
    # The same for all queries, however many they are.
    return ops.ones((1, 1, 1, 1), dtype), ops.swapaxes(padding_row(padding_mask, dtype), 1, 3)


def append_columns(heads: Tensor, features: Sequence[Tensor], alignment: int) -> Tensor:
    """Append features to the projected queries or keys `(B, T, H, key_dim)` of all heads.

    Zeros follow, up to a size that is a multiple of `alignment`.
    """
    outer, key_dim = ops.shape(heads)[:-1], heads.shape[-1]
    columns = [
        ops.broadcast_to(ops.cast(tensor, heads.dtype), (*outer, tensor.shape[-1]))
        for tensor in features
    ]
    num_columns = sum(tensor.shape[-1] for tensor in features)
    num_zeros = size_with_columns(key_dim, num_columns, alignment) - key_dim - num_columns
    zeros = ops.zeros((*outer, num_zeros), heads.dtype)
    return ops.concatenate([heads, *columns, zeros], axis=-1)


def with_four_axes(bias: Tensor) -> Tensor:
    """Return a bias with leading axes of size 1, up to at least four axes."""
    while len(bias.shape) < 4:
        bias = ops.expand_dims(bias, 0)
    return bias
