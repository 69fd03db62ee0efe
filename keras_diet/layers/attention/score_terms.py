"""Everything that is added to attention scores or excluded from them, and the checks of it."""

import dataclasses
import functools
from typing import Any, Self, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_diet import _backend, validation
from keras_diet.types import Shape, Tensor

FeaturePair: TypeAlias = tuple[Tensor, Tensor]
# The id of keys that are padding. No document has it.
NO_KEY = -(2**31)


@dataclasses.dataclass(frozen=True)
class ScoreTerms:
    """The terms of attention scores beside the products of queries and keys.

    A user passes this object to an attention layer or to a block. Attention checks it, makes a
    plan for it, and gives each term the form that the plan names.

    For query `i` and key `j`, a score is

        A_ij = scale q_i . k_j + bias_ij + sum over features of F_i . G_j

    and the query attends to the key only if all masks allow it.

    Attributes:
        bias: Tensor broadcastable to `(B, H, T, S)`, a bias layer, or `None`.
        features: tuple of pairs `(F, G)` of tensors `(B or 1, T, H or 1, r)` and
            `(B or 1, S, H or 1, r)`.
        pair_scores: Tensor broadcastable to `(B, H, T, S)`, added to the bias; or `None`.
        padding_mask: Boolean tensor `(B, S)`, `False` for keys that are padding; or `None`.
        attention_mask: Boolean tensor `(B or 1, T or 1, S)`, `(T, S)` or with an axis of heads,
            `False` for pairs that are excluded; or `None`.
        is_causal: bool. Whether a query attends only to keys at its position and before it.
        sliding_window: int or `None`. A query attends to keys at smaller distances than this.
        document_ids: Integer tensor `(B, T)`, or `None`. A query attends to keys with its id only,
            and positions begin again in each document. Queries and keys are the same tokens. Tokens
            with the same id are next to each other: ids that go back and forth are not checked.
        start_index: int or scalar tensor. Position of the first query. Keys begin at position 0.

    Example:

    ```python
    position_bias = keras_diet.layers.RelativePositionBias(num_heads=4, max_length=16)
    terms = keras_diet.layers.ScoreTerms(bias=position_bias, is_causal=True)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    y = attention(x, x, score_terms=terms)
    ```
    """

    bias: Any = None
    features: tuple[FeaturePair, ...] = ()
    padding_mask: Tensor | None = None
    attention_mask: Tensor | None = None
    is_causal: bool = False
    sliding_window: int | None = None
    document_ids: Tensor | None = None
    start_index: Any = 0
    pair_scores: Tensor | None = None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of some attributes."""
        return dataclasses.replace(self, **changes)

    def with_default_padding(self, padding_mask: Tensor | None) -> Self:
        """Return terms that have a padding mask, if there is one. Their own has precedence."""
        if self.padding_mask is not None or padding_mask is None:
            return self
        return self.replace(padding_mask=as_bool(padding_mask))

    @property
    def has_bias_layer(self) -> bool:
        """Whether the bias is a layer, which has not been asked for its scores yet."""
        return isinstance(self.bias, keras.layers.Layer)

    @property
    def num_features(self) -> int:
        """The number of features of all pairs together."""
        return sum(query.shape[-1] for query, _ in self.features)

    @property
    def starts_at_zero(self) -> bool:
        """Whether the first query is known to be at position 0."""
        return isinstance(self.start_index, int) and self.start_index == 0


def terms_of_arguments(
    attention_bias: Any,
    attention_features: FeaturePair | None,
    attention_mask: Tensor | None,
    query_mask: Tensor | None,
    value_mask: Tensor | None,
    key_mask: Tensor | None,
    use_causal_mask: bool,
    start_index: Any,
) -> ScoreTerms:
    """Return the arguments of a `BiasedMultiHeadAttention` as score terms.

    As in `keras.layers.MultiHeadAttention`, all masks become one mask of query-key pairs.
    """
    masks = [
        None if query_mask is None else ops.expand_dims(query_mask, -1),
        *(None if mask is None else ops.expand_dims(mask, -2) for mask in (value_mask, key_mask)),
        attention_mask,
    ]
    return ScoreTerms(
        bias=attention_bias,
        features=() if attention_features is None else (attention_features,),
        attention_mask=all_of(masks),
        is_causal=bool(use_causal_mask),
        start_index=start_index,
    )


def as_bool(mask: Tensor | None) -> Tensor | None:
    """Return a 0/1 mask as a boolean mask."""
    return None if mask is None else ops.cast(mask, "bool")


def all_of(masks: list[Tensor | None]) -> Tensor | None:
    """Return the conjunction of masks, of which some may be `None`, or `None` without any."""
    masks = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    if any(len(mask.shape) == 4 for mask in masks):
        masks = [with_score_axes(mask) for mask in masks]
    return functools.reduce(ops.logical_and, masks) if masks else None


def with_score_axes(mask: Tensor) -> Tensor:
    """Return a mask `(B, T, S)`, `(T, S)` or `(B, H, T, S)` with four axes."""
    while len(mask.shape) < 4:
        mask = ops.expand_dims(mask, -3)
    return mask


def mask_of_tokens(terms: ScoreTerms, query_length: int, key_length: int) -> Tensor | None:
    """Return the causal mask, the sliding window and the documents as one mask, or `None`.

    Its shape is `(T, S)`, and `(B, T, S)` with documents.
    """
    if not terms.is_causal and terms.sliding_window is None and terms.document_ids is None:
        return None
    masks = []
    query = _backend.arange(query_length) + terms.start_index
    if terms.is_causal or terms.sliding_window is not None:
        distance = ops.expand_dims(query, 1) - ops.expand_dims(_backend.arange(key_length), 0)
        if terms.is_causal:
            masks.append(ops.greater_equal(distance, 0))
        if terms.sliding_window is not None:
            masks.append(ops.less(ops.abs(distance), terms.sliding_window))
    if terms.document_ids is not None:
        ids = ops.take(terms.document_ids, query, axis=1)
        masks.append(ops.equal(ops.expand_dims(ids, 2), ops.expand_dims(terms.document_ids, 1)))
    return all_of(masks)


def ids_of_tokens(
    terms: ScoreTerms, batch_size: int, lengths: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return ids of queries `(B, T)` and keys `(B, S)`, whose tokens attend to each other if equal.

    They hold documents and padding.
    """
    query_ids, key_ids = (
        ops.zeros((batch_size, length), "int32")
        if terms.document_ids is None
        else ops.cast(terms.document_ids, "int32")
        for length in lengths
    )
    if terms.padding_mask is not None:
        key_ids = ops.where(terms.padding_mask, key_ids, NO_KEY)
    return query_ids, key_ids


def positions_in_documents(document_ids: Tensor) -> Tensor:
    """Return the position of each token in its document, `(B, T)`, for documents one after another.

    Args:
        document_ids: Integer tensor `(B, T)`. A document is a run of one id.
    """
    indices = _backend.arange(ops.shape(document_ids)[1])
    changes = ops.not_equal(document_ids[:, 1:], document_ids[:, :-1])
    begins = ops.concatenate([ops.ones_like(document_ids[:, :1], "bool"), changes], axis=1)
    first = ops.sort(ops.where(begins, indices, ops.shape(document_ids)[1]), axis=1)
    number = ops.cumsum(ops.cast(begins, "int32"), axis=1) - 1
    return indices - ops.take_along_axis(first, number, axis=1)


def check_masks(scores_shape: Shape, attention_mask: Any = None, **masks_of_tokens: Any) -> None:
    """Raise a `ValueError` unless masks hold booleans, or 0 and 1, and fit the scores.

    Booleans have no values to check. Other values are read only if they are in host memory.

    Args:
        scores_shape: `(B, H, T, S)`.
        attention_mask: Mask of query-key pairs, or `None`.
        **masks_of_tokens: Masks of the keys `(B, S)` by name, or `None`.
    """
    for name, mask in {"attention_mask": attention_mask, **masks_of_tokens}.items():
        if mask is not None:
            _check_mask(name, mask if hasattr(mask, "shape") else np.asarray(mask), scores_shape)


def _check_mask(name, mask, scores_shape):
    batch, heads, query, key = ((size, 1) for size in scores_shape)
    shapes, axes = [(batch, key[:1])], "length"
    if name == "attention_mask":
        shapes = [(query, key), (batch, query, key), (batch, heads, query, key)]
        axes = "query_length, key_length"
    # The rank of a tensor in a TensorFlow graph may be unknown.
    has_rank = getattr(mask.shape, "rank", 0) is not None
    values = None if "bool" in str(mask.dtype) else validation.host_value(mask)
    if has_rank and not any(validation.sizes_fit(mask.shape, sizes) for sizes in shapes):
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


def check_bias(bias: Any, scores_shape: Shape) -> None:
    """Raise a `ValueError` unless a bias is a layer, or a float tensor that fits the scores.

    Args:
        bias: The value to check, or `None`.
        scores_shape: `(B, H, T, S)`. Unknown sizes are `None` and are not checked.
    """
    if bias is None or isinstance(bias, keras.layers.Layer):
        return
    sizes = [(size, 1) for size in scores_shape[-len(bias.shape) or len(scores_shape) :]]
    if not keras.backend.is_float_dtype(bias.dtype):
        rule = "be a floating point tensor that is added to the scores"
        received = f"dtype={keras.backend.standardize_dtype(bias.dtype)}"
    elif not validation.sizes_fit(bias.shape, sizes):
        rule, received = "be broadcastable to the scores", f"shape={tuple(bias.shape)}"
    else:
        return
    raise ValueError(
        f"`attention_bias` must {rule}. They have the shape (batch_size, num_heads, query_length, "
        f"key_length) = {tuple(scores_shape)}. Received: {received}. Use size 1 for an axis along "
        "which it does not change, and pass a mask as `attention_mask`."
    )


def check_symbolic_bias(bias: Any, terms: Any) -> None:
    """Raise a `ValueError` if a functional model would not own the weights of a bias."""
    bias = bias if terms is None else terms.bias
    if isinstance(bias, keras.layers.Layer):
        raise ValueError(
            f"In a functional model `attention_bias` must be a tensor. Received: {bias}. "
            "Call the layer and pass its output, or call both layers inside a custom layer."
        )


def check_only_terms(name: str, **arguments: Any) -> None:
    """Raise a `ValueError` for arguments that score terms of this name replace."""
    # Tensors have no truth value. The defaults of the others are `None`, `False` and 0.
    given = [
        argument
        for argument, value in arguments.items()
        if value is not None and (not isinstance(value, int) or value)
    ]
    if given:
        raise ValueError(
            f"`{name}` replaces the arguments {', '.join(given)}. Received: both. Put these terms "
            f"into `{name}`."
        )
