"""The attention layers that all pass the same contract, and what their tests share."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_diet.layers import (
    BiasedMultiHeadAttention,
    DisentangledMultiHeadAttention,
    LinformerMultiHeadAttention,
    RelativeMultiHeadAttention,
    RotaryMultiHeadAttention,
    TransformerXLMultiHeadAttention,
)
from tests import reference
from tests.helpers import attention_weights, normal, randomize

# Sizes that no other axis has.
BATCH, QUERIES, KEYS, HIDDEN, NUM_HEADS, KEY_DIM, VALUE_DIM = 2, 5, 7, 11, 3, 4, 6
MAX_LENGTH, PROJECTED = 13, 2
# Padding of the keys, and a mask of query-key pairs in which each query has a valid key.
VALID = np.array([[True] * 4 + [False] * 3, [True] * 7])
PAIRS = np.random.default_rng(5).random((BATCH, QUERIES, KEYS)) < 0.6
PAIRS[:, :, 0] = True
CAUSAL = np.tri(QUERIES, KEYS, dtype="bool")


@dataclasses.dataclass(frozen=True)
class Variant:
    """An attention layer.

    Attributes:
        kind: The class.
        arguments: Arguments of the constructor beside the sizes of the heads.
        num_keys: The number of keys in the scores, or `None` for all.
        zero_gradient: The weights without a gradient.
        new_weights: The number of weights beside those of `BiasedMultiHeadAttention`.
    """

    kind: Callable[..., Any]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    num_keys: int | None = None
    # A bias of the keys adds the same to the scores of all keys, which softmax removes.
    zero_gradient: tuple[str, ...] = ("key/bias",)
    new_weights: int = 0


SHAW = {"max_distance": 3}
VARIANTS = {
    "biased": Variant(BiasedMultiHeadAttention),
    "shaw": Variant(RelativeMultiHeadAttention, SHAW, new_weights=2),
    "shaw_keys": Variant(
        RelativeMultiHeadAttention,
        {**SHAW, "use_value_embedding": False},
        new_weights=1,
    ),
    # A bias of the keys is turned too.
    "rotary": Variant(RotaryMultiHeadAttention, {"max_wavelength": 23.0}, zero_gradient=()),
    "transformer_xl": Variant(TransformerXLMultiHeadAttention, new_weights=3),
    # A bias of the keys is in their products with the table, too.
    "deberta": Variant(
        DisentangledMultiHeadAttention,
        {"max_distance": 5, "num_buckets": 4},
        zero_gradient=(),
        new_weights=3,
    ),
    "deberta_v1": Variant(
        DisentangledMultiHeadAttention,
        {
            **{"max_distance": 4, "num_buckets": None, "share_projections": False},
            "normalize_table": False,
        },
        zero_gradient=("position_c2p/bias",),
        new_weights=5,
    ),
    "linformer": Variant(
        LinformerMultiHeadAttention,
        {"sequence_length": MAX_LENGTH, "projection_dim": PROJECTED},
        num_keys=PROJECTED,
        new_weights=2,
    ),
}
WITH_PAIRS = [name for name in VARIANTS if name != "linformer"]


def make(name, rng=None, key_dim=KEY_DIM, **kwargs):
    """A built layer, with random weights if there is a generator."""
    variant = VARIANTS[name]
    arguments = {"value_dim": VALUE_DIM, **variant.arguments, **kwargs}
    attention = variant.kind(NUM_HEADS, key_dim, **arguments)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    return attention if rng is None else randomize(attention, rng, scale=0.5)


def make_inputs(rng, query_length=QUERIES, key_length=KEYS):
    """A query and a value."""
    return normal(rng, BATCH, query_length, HIDDEN), normal(rng, BATCH, key_length, HIDDEN)


def expected(attention, query, value, valid=None, mask=None, scale=None, weights=None, **kwargs):
    """The output by the reference. `valid` is padding of the keys, `mask` is of pairs."""
    weights = {**attention_weights(attention), **(weights or {})}
    if scale is not None:
        weights["scale"] = scale
    if isinstance(attention, LinformerMultiHeadAttention):
        return reference.linformer_attention(query, value, weights, valid=valid, **kwargs)
    if valid is not None:
        mask = valid[:, None, None] & (True if mask is None else mask)
    return reference.multi_head_attention(query, value, weights, mask=mask, **kwargs)
