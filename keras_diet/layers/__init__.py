"""Layers: attention with a score bias, the biases of the DIET paper, and an encoder of both."""

from keras_diet.layers.absolute_position_bias import AbsolutePositionBias
from keras_diet.layers.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.biased_transformer_encoder import BiasedTransformerEncoder
from keras_diet.layers.diet_encoder import DietEncoder
from keras_diet.layers.input_encoding import InputEncoding
from keras_diet.layers.position_bias import PositionBias
from keras_diet.layers.position_cache import cache_positions, drop_cached_positions
from keras_diet.layers.relative_position_bias import RelativePositionBias
from keras_diet.layers.segment_bias import SegmentBias

__all__ = [
    "AbsolutePositionBias",
    "BiasedMultiHeadAttention",
    "BiasedTransformerEncoder",
    "DietEncoder",
    "InputEncoding",
    "PositionBias",
    "RelativePositionBias",
    "SegmentBias",
    "cache_positions",
    "drop_cached_positions",
]
