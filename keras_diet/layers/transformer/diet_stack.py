"""What stacks of blocks have in common: their arguments, and layers beside the blocks."""

from typing import Any, Self

import keras

from keras_diet import validation
from keras_diet.layers.attention.input_checks import check_heads_of_bias
from keras_diet.layers.attention.plan import IMPLEMENTATIONS, check_implementation
from keras_diet.layers.position.cached_position_bias import CachedPositionBias
from keras_diet.layers.position.input_encoding import InputEncoding, make_input_encoding
from keras_diet.layers.position.position_encoding import (
    EncoderSizes,
    deserialize_position_encoding,
    serialize_position_encoding,
)
from keras_diet.layers.transformer.cached_weights import copy_with_cached_positions
from keras_diet.layers.transformer.encoder_checks import check_is_tensor
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.layers.transformer.recomputed_call import RECOMPUTE, call_recomputed
from keras_diet.types import Activation, Config, Initializer, Shape

# Constructor arguments that a configuration holds as they are.
_PLAIN_ARGUMENTS = (
    *("num_layers", "num_heads", "intermediate_dim", "rank", "sharing", "max_sequence_length"),
    *("dropout", "layer_norm_epsilon", "normalize_first", "attention_implementation"),
    *("encode_inputs", "cached_positions", "activation_dropout", "max_distance", "recompute"),
)


class DietStack(keras.layers.Layer):
    """Base class of a stack: checks its arguments, keeps them, and writes the configuration.

    `DietEncoder` and `DietDecoder` document the arguments.
    """

    # Number of projected keys of Linformer, which only an encoder can have.
    projection_dim: int | None = None
    # `keras_diet.layers.cache_positions` calls it.
    with_cached_positions = copy_with_cached_positions

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        position_encoding: str | keras.layers.Layer = "diet_abs",
        rank: int | None = None,
        sharing: str | None = None,
        max_sequence_length: int = 512,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        layer_norm_epsilon: float = 1e-12,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        normalize_first: bool = False,
        attention_implementation: str = "auto",
        encode_inputs: bool = True,
        cached_positions: bool = False,
        activation_dropout: float = 0.0,
        max_distance: int | None = None,
        recompute: str = "none",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if cached_positions and isinstance(position_encoding, keras.layers.Layer):
            # Keras would track the weights of the layer, although its scores are cached.
            position_encoding = CachedPositionBias.like(position_encoding)
        self.encoding = find_position_encoding(
            position_encoding, rank, sharing, max_distance=max_distance
        )
        self.num_layers = validation.positive_int("num_layers", num_layers)
        self.num_heads = validation.positive_int("num_heads", num_heads)
        check_heads_of_bias("position_encoding", position_encoding, num_heads)
        self.intermediate_dim = validation.positive_int("intermediate_dim", intermediate_dim)
        self.position_encoding = position_encoding
        self.rank = rank
        self.sharing = sharing
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
        self.attention_implementation = validation.choice(
            "attention_implementation", attention_implementation, IMPLEMENTATIONS
        )
        self.encode_inputs = validation.boolean("encode_inputs", encode_inputs)
        self.cached_positions = validation.boolean("cached_positions", cached_positions)
        self.activation_dropout = validation.rate("activation_dropout", activation_dropout)
        self.max_distance = max_distance
        self.recompute = validation.choice("recompute", recompute, RECOMPUTE)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Check that the inputs are one tensor, and call the layer."""
        check_is_tensor(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def sizes(self, hidden_dim: Any) -> EncoderSizes:
        """Return the sizes for the functions of a `PositionEncoding`."""
        return EncoderSizes(
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden_dim=hidden_dim,
            max_length=self.max_sequence_length,
            rank=self.rank,
            projection_dim=self.projection_dim,
            max_distance=self.max_distance,
        )

    def call_block(self, block: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        """Call a block. In training, `recompute` says whether it runs again for the gradient."""
        if self.recompute == "block" and kwargs["training"]:
            return call_recomputed(block, *args, **kwargs)
        return block(*args, **kwargs)

    def all_position_biases(self) -> list[keras.layers.Layer]:
        """Return the bias layers of all attention layers."""
        return list(self.position_biases)

    def make_input_encoding(
        self, sizes: EncoderSizes, num_segments: int | None = None
    ) -> InputEncoding | None:
        """Return the layer that encodes the inputs, or `None`."""
        if not self.encode_inputs:
            return None
        return make_input_encoding(self.encoding, sizes, num_segments, dtype=self.dtype_policy)

    def check_implementation(
        self, attention: keras.layers.Layer, biases: list[keras.layers.Layer]
    ) -> None:
        """Raise a `ValueError` if a layer cannot compute attention as the caller asks."""
        bias = biases[0] if biases else None
        check_implementation(self.attention_implementation, attention, bias)

    def build_output_layer_norm(self, inputs_shape: Shape) -> None:
        """Create and build the last layer normalization, which pre-norm blocks need."""
        self.output_layer_norm = None
        if self.normalize_first:
            self.output_layer_norm = keras.layers.LayerNormalization(
                epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="output_layer_norm"
            )
            self.output_layer_norm.build(inputs_shape)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        """Return the shape of the output, which is the shape of the inputs."""
        return inputs_shape

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
