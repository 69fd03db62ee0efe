"""Gives each score term the form that the plan names."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention.key_memory import may_share_rows
from keras_diet.layers.attention.plan import ALIGNMENT, size_with_columns
from keras_diet.layers.attention.score_terms import (
    FeaturePair,
    ScoreTerms,
    all_of,
    mask_of_tokens,
    with_score_axes,
)
from keras_diet.layers.position.bias_layer import is_distance_only, scores_of
from keras_diet.types import DType, Tensor

# Finite, so that a query without any key has finite probabilities, and far below every score.
MASKED = -1e9
# `MASKED` would be infinite in float16.
MASKED_FLOAT16 = -3e4


@dataclasses.dataclass(frozen=True)
class LoweredScores:
    """What a program needs to compute scores, beside the scale in `AttentionOptions`.

    Attributes:
        query: Tensor `(B, T, H, size)`, with columns for features if the plan says so.
        key: Tensor `(B, S, H, size)`, with columns too.
        bias: Tensor `(B or 1, H or 1, T or 1, S or 1)`, or `None`.
        mask: Boolean tensor `(B or 1, H or 1, T or 1, S or 1)`, or `None`.
        is_causal: bool. Whether the program applies the causal mask itself.
        batch_first: bool. The `batch_first` of the plan.
    """

    query: Tensor
    key: Tensor
    bias: Tensor | None = None
    mask: Tensor | None = None
    is_causal: bool = False
    batch_first: bool = False


def lower_shared_terms(
    terms: ScoreTerms, query: Tensor, key: Tensor | None, dtype: DType
) -> ScoreTerms:
    """Give the terms that do not depend on projected queries and keys the form of the plan.

    A stack of blocks calls this once for all layers that share a bias and a window.

    Args:
        terms: The terms.
        query: Tensor whose length is the number of queries, for the bias layer.
        key: Tensor whose length is the number of keys, or `None` for `query`.
        dtype: Dtype of the computation.
    """
    terms = lower_bias(terms, query, key)
    plan = terms.plan
    if plan.program != "kernel" or terms.bias is None or terms.has_bias_layer:
        return terms
    bias = narrowed(terms.bias, dtype)
    # A compiler would keep the sum in memory; without one it is made once for all layers.
    adds_padding = plan.low_rank == "tensor" and not plan.masks_padding
    if adds_padding and terms.padding_mask is not None:
        bias = bias + padding_row(terms.padding_mask, dtype)
        terms = terms.replace(padding_mask=None)
    # A kernel takes no mask beside a bias. In blocks, only the mask of one block is in memory.
    if plan.block_size is None:
        lengths = [ops.shape(tensor)[1] for tensor in (query, query if key is None else key)]
        terms = terms.with_one_mask(*lengths)
        if terms.attention_mask is not None:
            bias = bias_with_mask(bias, with_score_axes(terms.attention_mask), dtype)
            terms = terms.replace(attention_mask=None)
    return terms.replace(bias=bias)


def lower_bias(terms: ScoreTerms, query: Tensor, key: Tensor | None) -> ScoreTerms:
    """Give a bias layer the form of the plan: scores, features, or weights that blocks read."""
    if not terms.has_bias_layer:
        return terms
    positions = None if is_distance_only(terms.bias) else terms.positions
    if terms.plan.bias == "tensor":
        scores = scores_of(terms.bias, query, key, terms.start_index)
        if positions is not None:
            scores = _scores_at(scores, positions, terms.bias)
        return terms.replace(bias=scores)
    if terms.plan.bias == "features":
        pair = terms.bias.features(query, key, terms.start_index)
        if positions is not None:
            pair = tuple(ops.take(_of_one_row(x, terms.bias), positions, axis=0) for x in pair)
        return terms.replace(bias=None, features=(*terms.features, pair))
    # The weights must exist before blocks read them.
    if not terms.bias.built:
        terms.bias(*(tensor[:, :1] for tensor in (query, key) if tensor is not None))
    return terms


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
    if scores.shape[0] != 1:
        raise ValueError(
            "With `document_ids`, the scores of a bias layer must depend on positions only, and "
            "have the shape (1, num_heads, length, length). Received: shape="
            f"{tuple(scores.shape)} from {bias}. If they depend on distances only, set "
            "`distance_only = True` in its class."
        )
    return scores[0]


def lower_columns(
    query: Tensor, key: Tensor, scale: float, terms: ScoreTerms
) -> tuple[Tensor, Tensor, ScoreTerms]:
    """Move features and padding to columns of queries and keys, if the plan says so.

    The program multiplies all columns by `scale`, so the features are divided by it.
    """
    if not has_columns(terms):
        return query, key, terms
    pairs = list(terms.features)
    if terms.padding_mask is not None and not terms.plan.masks_padding:
        pairs.append(padding_features(terms.padding_mask, key.dtype))
        terms = terms.replace(padding_mask=None)
    query_features, key_features = concatenate_features(*pairs)
    alignment = terms.plan.alignment
    query = append_columns(query, query_features / scale, alignment)
    key = append_columns(key, key_features, alignment)
    return query, key, terms.replace(features=())


def has_columns(terms: ScoreTerms) -> bool:
    """Whether terms become columns of queries and keys."""
    if terms.plan.low_rank != "columns":
        return False
    if terms.features:
        return True
    pads_scores = terms.padding_mask is not None and not terms.plan.masks_padding
    # Padding alone is a bias of one row, which is cheaper than a column.
    return pads_scores and terms.bias is not None


def lower_scores(query: Tensor, key: Tensor, terms: ScoreTerms) -> LoweredScores:
    """Give the remaining terms the form of one bias and one mask."""
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
    if terms.attention_mask is not None:
        masks.append(ops.cast(terms.attention_mask, "bool"))
    is_causal = terms.is_causal and _leaves_causal_mask_to_program(terms, bias, masks)
    is_causal = is_causal and not (plan.batch_first and may_share_rows(query, key))
    if not is_causal:
        mask = mask_of_tokens(terms, ops.shape(query)[1], ops.shape(key)[1])
        masks += [] if mask is None else [mask]
    mask = all_of([with_score_axes(mask) for mask in masks])
    return LoweredScores(query, key, bias, mask, is_causal, plan.batch_first)


def _leaves_causal_mask_to_program(terms, bias, masks):
    is_alone = bias is None and not masks and terms.sliding_window is None
    is_alone = is_alone and terms.document_ids is None
    return terms.plan.program == "kernel" and is_alone and terms.starts_at_zero


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
    masked = MASKED_FLOAT16 if _backend.is_float16(dtype) else MASKED
    row = ops.where(padding_mask, ops.cast(0.0, dtype), ops.cast(masked, dtype))
    return ops.expand_dims(ops.expand_dims(row, 1), 1)


def padding_features(padding_mask: Tensor, dtype: DType) -> FeaturePair:
    """Return features of rank 1 that exclude padding, for a boolean mask `(B, S)`."""
    # The same for all queries, however many they are.
    return ops.ones((1, 1, 1, 1), dtype), ops.swapaxes(padding_row(padding_mask, dtype), 1, 3)


def concatenate_features(*pairs: FeaturePair) -> FeaturePair:
    """Return features whose inner products are the sums of the products of all pairs."""
    if len(pairs) == 1:
        return pairs[0]
    query_features, key_features = (_concatenate(side) for side in zip(*pairs, strict=True))
    return query_features, key_features


def append_columns(heads: Tensor, features: Tensor, alignment: int = ALIGNMENT) -> Tensor:
    """Append features to the projected queries or keys `(B, T, H, key_dim)` of all heads.

    Zeros follow, up to a size that is a multiple of `alignment`.
    """
    outer, rank = ops.shape(heads)[:-1], features.shape[-1]
    features = ops.broadcast_to(ops.cast(features, heads.dtype), (*outer, rank))
    size = size_with_columns(heads.shape[-1], rank, alignment)
    zeros = ops.zeros((*outer, size - heads.shape[-1] - rank), heads.dtype)
    return ops.concatenate([heads, features, zeros], axis=-1)


def with_four_axes(bias: Tensor) -> Tensor:
    """Return a bias with leading axes of size 1, up to at least four axes."""
    while len(bias.shape) < 4:
        bias = ops.expand_dims(bias, 0)
    return bias


def _concatenate(tensors):
    shapes = [ops.shape(tensor)[:-1] for tensor in tensors]
    outer = [_common(sizes) for sizes in zip(*shapes, strict=True)]
    return ops.concatenate(
        [ops.broadcast_to(tensor, (*outer, tensor.shape[-1])) for tensor in tensors], axis=-1
    )


def _common(sizes):
    # The others are 1. A size that is not known before the call is the common one.
    return next((size for size in sizes if not isinstance(size, int) or size != 1), 1)
