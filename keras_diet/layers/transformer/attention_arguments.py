"""How a block calls its attention layer: with score terms, or as a custom layer."""

from typing import Any

import keras

from keras_diet import _backend
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import ScoreTerms

# How a custom attention layer gets the terms: all of them in one bias.
CUSTOM_ATTENTION_PLAN = AttentionPlan(program="custom", low_rank="tensor")


def takes_score_terms(attention: keras.layers.Layer) -> bool:
    """Whether an attention layer takes `score_terms`."""
    return isinstance(attention, BiasedMultiHeadAttention)


def arguments_of_terms(terms: ScoreTerms) -> dict[str, Any]:
    """Return score terms as arguments of `keras.layers.MultiHeadAttention` and a bias."""
    bias = terms.bias
    for query_features, key_features in terms.features:
        bias = _backend.add_products(bias, query_features, key_features)
    return {
        "attention_bias": bias,
        "attention_mask": terms.attention_mask,
        "value_mask": terms.padding_mask,
        "use_causal_mask": terms.is_causal,
    }
