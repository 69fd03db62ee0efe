"""The arguments of a stack of blocks."""

from typing import Any, Self

import keras

from keras_diet import validation
from keras_diet.layers.attention.plan import IMPLEMENTATIONS
from keras_diet.layers.position.cached_position_bias import CachedPositionBias
from keras_diet.layers.position.position_encoding import (
    EncoderSizes,
    deserialize_position_encoding,
    serialize_position_encoding,
)
from keras_diet.layers.transformer.encoder_checks import check_segment_encoding
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.types import Activation, Config, Initializer

SEGMENT_ENCODINGS = ("per-head", "input", "none")
# Constructor arguments that a configuration holds as they are.
_PLAIN_ARGUMENTS = (
    *("num_layers", "num_heads", "intermediate_dim", "rank", "sharing", "segment_encoding"),
    *("num_segments", "max_sequence_length", "dropout", "layer_norm_epsilon", "normalize_first"),
    *("projection_dim", "attention_implementation", "encode_inputs", "cached_positions"),
)


class DietStack(keras.layers.Layer):
    """Base class of a stack: checks its arguments, keeps them, and writes the configuration.

    `DietEncoder` documents the arguments.
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        position_encoding: str | keras.layers.Layer = "diet_abs",
        rank: int | None = None,
        sharing: str | None = None,
        segment_encoding: str = "per-head",
        num_segments: int = 2,
        max_sequence_length: int = 512,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        layer_norm_epsilon: float = 1e-12,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        normalize_first: bool = False,
        projection_dim: int | None = None,
        attention_implementation: str = "auto",
        encode_inputs: bool = True,
        cached_positions: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if cached_positions and isinstance(position_encoding, keras.layers.Layer):
            # Keras would track the weights of the layer, although its scores are cached.
            position_encoding = CachedPositionBias.like(position_encoding)
        self.encoding = find_position_encoding(position_encoding, rank, sharing, projection_dim)
        self.num_layers = validation.positive_int("num_layers", num_layers)
        self.num_heads = validation.positive_int("num_heads", num_heads)
        validation.heads_of_bias("position_encoding", position_encoding, num_heads)
        self.intermediate_dim = validation.positive_int("intermediate_dim", intermediate_dim)
        self.position_encoding = position_encoding
        self.rank = rank
        self.sharing = sharing
        self.segment_encoding = validation.choice(
            "segment_encoding", segment_encoding, SEGMENT_ENCODINGS
        )
        check_segment_encoding(segment_encoding, projection_dim)
        self.num_segments = validation.positive_int("num_segments", num_segments)
        self.max_sequence_length = validation.positive_int(
            "max_sequence_length", max_sequence_length
        )
        self.dropout = validation.rate("dropout", dropout)
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = validation.positive_number(
            "layer_norm_epsilon", layer_norm_epsilon
        )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.normalize_first = validation.boolean("normalize_first", normalize_first)
        self.projection_dim = projection_dim
        self.attention_implementation = validation.choice(
            "attention_implementation", attention_implementation, IMPLEMENTATIONS
        )
        self.encode_inputs = validation.boolean("encode_inputs", encode_inputs)
        self.cached_positions = validation.boolean("cached_positions", cached_positions)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def sizes(self, hidden_dim: int) -> EncoderSizes:
        """Return the sizes for the functions of a `PositionEncoding`."""
        return EncoderSizes(
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden_dim=hidden_dim,
            max_length=self.max_sequence_length,
            rank=self.rank,
            projection_dim=self.projection_dim,
        )

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update({name: getattr(self, name) for name in _PLAIN_ARGUMENTS})
        config.update(
            position_encoding=serialize_position_encoding(self.position_encoding),
            activation=keras.activations.serialize(self.activation),
            kernel_initializer=keras.initializers.serialize(self.kernel_initializer),
            bias_initializer=keras.initializers.serialize(self.bias_initializer),
        )
        return config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Make the layer from its configuration, which may hold a custom bias layer."""
        return super().from_config(deserialize_position_encoding(config))
