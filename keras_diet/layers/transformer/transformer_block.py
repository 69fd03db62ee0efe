"""What the blocks of encoders and decoders have in common."""

from collections.abc import Callable
from typing import Any, Self

import keras

from keras_diet import _backend, validation
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.initializers import fresh
from keras_diet.layers.transformer.recomputed_call import call_recomputed
from keras_diet.types import Activation, Config, Initializer, Shape, Tensor


class TransformerBlock(keras.layers.Layer):
    """Base class of a block: its arguments, sublayers and configuration.

    Each sublayer has a layer normalization and a residual connection. With post-norm:

        x = LayerNorm(x + sublayer(x))

    and with `normalize_first` (pre-norm):

        x = x + sublayer(LayerNorm(x))

    The blocks document the arguments.
    """

    # The attention sublayers, each of which is an argument of the constructor.
    attention_names: tuple[str, ...] = ("self_attention",)

    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        layer_norm_epsilon: float = 1e-12,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        normalize_first: bool = False,
        self_attention: keras.layers.Layer | None = None,
        activation_dropout: float = 0.0,
        recompute_attention: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = validation.positive_int("intermediate_dim", intermediate_dim)
        self.num_heads = validation.positive_int("num_heads", num_heads)
        self.dropout = validation.rate("dropout", dropout)
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = validation.positive_number(
            "layer_norm_epsilon", layer_norm_epsilon
        )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.normalize_first = validation.boolean("normalize_first", normalize_first)
        self.activation_dropout = validation.rate("activation_dropout", activation_dropout)
        self.recompute_attention = validation.boolean("recompute_attention", recompute_attention)
        self._made_attentions: tuple[str, ...] = ()
        self.set_attention("self_attention", self_attention)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def set_attention(self, name: str, attention: keras.layers.Layer | None) -> None:
        """Keep the attention layer of an argument. `None` means that the block makes one."""
        if not isinstance(attention, keras.layers.Layer | None):
            raise ValueError(
                f"`{name}` must be an attention layer or `None`. Received: {name}={attention!r}. "
                "Pass a `BiasedMultiHeadAttention`."
            )
        heads = getattr(attention, "num_heads", self.num_heads)
        if heads != self.num_heads:
            raise ValueError(
                f"`num_heads` must be equal to `{name}.num_heads`. Received: "
                f"num_heads={self.num_heads}, {name}.num_heads={heads}. Pass the same number to "
                "both."
            )
        setattr(self, name, attention)
        if attention is None:
            self._made_attentions += (name,)

    def makes_attention(self, name: str) -> bool:
        """Whether the block makes an attention sublayer itself."""
        return name in self._made_attentions

    def build_attention(self, name: str, inputs_shape: Shape, value_shape: Shape) -> None:
        """Create and build an attention sublayer, with its normalization and dropout."""
        hidden_dim: Any = inputs_shape[-1]
        if self.makes_attention(name):
            attention = BiasedMultiHeadAttention(
                num_heads=self.num_heads,
                key_dim=validation.divisible_heads(hidden_dim, self.num_heads),
                dropout=self.dropout,
                kernel_initializer=fresh(self.kernel_initializer),
                bias_initializer=fresh(self.bias_initializer),
                dtype=self.dtype_policy,
                name=name,
            )
            setattr(self, name, attention)
        attention = getattr(self, name)
        if not attention.built:
            # A layer that was loaded with its configuration is built already.
            attention.build(inputs_shape, value_shape)
        self._build_layer_norm(name, inputs_shape)
        self._make_dropout(name, self.dropout)

    def build_feed_forward(self, inputs_shape: Shape) -> None:
        """Create and build the feed-forward network, with its normalization and dropout."""
        self._build_layer_norm("feedforward", inputs_shape)
        self.feedforward_intermediate_dense = self._dense(
            self.intermediate_dim, "feedforward_intermediate_dense", activation=self.activation
        )
        self.feedforward_intermediate_dense.build(inputs_shape)
        self.feedforward_output_dense = self._dense(inputs_shape[-1], "feedforward_output_dense")
        self.feedforward_output_dense.build((*inputs_shape[:-1], self.intermediate_dim))
        self._make_dropout("feedforward_intermediate", self.activation_dropout)
        self._make_dropout("feedforward", self.dropout)

    def _build_layer_norm(self, name, inputs_shape):
        layer_norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=_name(name, "layer_norm")
        )
        layer_norm.build(inputs_shape)
        setattr(self, _name(name, "layer_norm"), layer_norm)

    def _make_dropout(self, name, rate):
        dropout = keras.layers.Dropout(rate, dtype=self.dtype_policy, name=_name(name, "dropout"))
        setattr(self, _name(name, "dropout"), dropout)

    def _dense(self, units, name, activation=None):
        return keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=fresh(self.kernel_initializer),
            bias_initializer=fresh(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def residual(
        self,
        name: str,
        sublayer: Callable[[Tensor], tuple[Tensor, Any]],
        inputs: Tensor,
        training: bool | None,
    ) -> tuple[Tensor, Any]:
        """Apply a sublayer with its normalization, dropout and residual connection.

        Args:
            name: Name of the sublayer.
            sublayer: Function of the normalized inputs. It returns its output and something else.
            inputs: Tensor `(B, T, hidden_dim)`.
            training: bool or `None`.

        Returns:
            A tensor like `inputs`, and what else the function returned.
        """
        layer_norm = getattr(self, _name(name, "layer_norm"))
        x, others = sublayer(layer_norm(inputs) if self.normalize_first else inputs)
        x = getattr(self, _name(name, "dropout"))(x, training=training) + inputs
        return (x if self.normalize_first else layer_norm(x)), others

    def call_attention(self, attention: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        """Call an attention layer. With `recompute_attention` it runs again for the gradient."""
        if self.recompute_attention and kwargs["training"]:
            return call_recomputed(attention, *args, **kwargs)
        return attention(*args, **kwargs)

    def feed_forward(self, inputs: Tensor, training: bool | None) -> Tensor:
        """Apply the feed-forward network."""

        def network(x):
            x = _backend.dense(self.feedforward_intermediate_dense, x)
            x = self.feedforward_intermediate_dropout(x, training=training)
            return _backend.dense(self.feedforward_output_dense, x), None

        return self.residual("feedforward", network, inputs, training)[0]

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update(
            {
                "intermediate_dim": self.intermediate_dim,
                "num_heads": self.num_heads,
                "dropout": self.dropout,
                "activation": keras.activations.serialize(self.activation),
                "layer_norm_epsilon": self.layer_norm_epsilon,
                "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
                "bias_initializer": keras.initializers.serialize(self.bias_initializer),
                "normalize_first": self.normalize_first,
                "activation_dropout": self.activation_dropout,
                "recompute_attention": self.recompute_attention,
            }
        )
        for name in self.attention_names:
            attention = getattr(self, name)
            is_own = self.makes_attention(name)
            config[name] = None if is_own else keras.layers.serialize(attention)
        return config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Make the block from its configuration, with custom attention layers in it."""
        layers = {
            name: keras.layers.deserialize(config[name])
            for name in cls.attention_names
            if isinstance(config.get(name), dict)
        }
        return super().from_config({**config, **layers})


def _name(sublayer, part):
    """Return the name of a layer that belongs to a sublayer, such as its dropout."""
    return f"{sublayer}_{part}"
