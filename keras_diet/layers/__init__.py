"""Layers: attention with a score bias, the biases of the DIET paper, and an encoder of both."""

from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.disentangled_multi_head_attention import (
    DisentangledMultiHeadAttention,
)
from keras_diet.layers.attention.linformer_multi_head_attention import LinformerMultiHeadAttention
from keras_diet.layers.attention.relative_multi_head_attention import RelativeMultiHeadAttention
from keras_diet.layers.attention.rotary_multi_head_attention import RotaryMultiHeadAttention
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.layers.attention.transformer_xl_multi_head_attention import (
    TransformerXLMultiHeadAttention,
)
from keras_diet.layers.position.absolute_position_bias import AbsolutePositionBias
from keras_diet.layers.position.alibi_position_bias import AlibiPositionBias
from keras_diet.layers.position.bucketed_relative_position_bias import BucketedRelativePositionBias
from keras_diet.layers.position.coordinate_bias import CoordinateBias
from keras_diet.layers.position.fire_position_bias import FirePositionBias
from keras_diet.layers.position.forgetting_position_bias import ForgettingPositionBias
from keras_diet.layers.position.kerple_position_bias import KerplePositionBias
from keras_diet.layers.position.log_cpb_bias import LogCPBBias
from keras_diet.layers.position.pair_bias import PairBias
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.position_table import PositionTable
from keras_diet.layers.position.query_relative_position_bias import QueryRelativePositionBias
from keras_diet.layers.position.relative_position_bias import RelativePositionBias
from keras_diet.layers.position.sandwich_position_bias import SandwichPositionBias
from keras_diet.layers.position.segment_bias import SegmentBias
from keras_diet.layers.position.untied_position_bias import UntiedPositionBias
from keras_diet.layers.transformer.biased_transformer_decoder import BiasedTransformerDecoder
from keras_diet.layers.transformer.biased_transformer_encoder import BiasedTransformerEncoder
from keras_diet.layers.transformer.cached_positions import cache_positions
from keras_diet.layers.transformer.diet_decoder import DietDecoder
from keras_diet.layers.transformer.diet_encoder import DietEncoder
from keras_diet.layers.transformer.position_encodings import register_position_encoding

__all__ = [
    "AbsolutePositionBias",
    "AlibiPositionBias",
    "AttentionHook",
    "BiasedMultiHeadAttention",
    "BiasedTransformerDecoder",
    "BiasedTransformerEncoder",
    "BucketedRelativePositionBias",
    "CoordinateBias",
    "DietDecoder",
    "DietEncoder",
    "DisentangledMultiHeadAttention",
    "FirePositionBias",
    "ForgettingPositionBias",
    "KerplePositionBias",
    "LinformerMultiHeadAttention",
    "LogCPBBias",
    "PairBias",
    "PositionBias",
    "PositionEncoding",
    "PositionTable",
    "QueryRelativePositionBias",
    "RelativeMultiHeadAttention",
    "RelativePositionBias",
    "RotaryMultiHeadAttention",
    "SandwichPositionBias",
    "ScoreTerms",
    "SegmentBias",
    "TransformerXLMultiHeadAttention",
    "UntiedPositionBias",
    "cache_positions",
    "register_position_encoding",
]
