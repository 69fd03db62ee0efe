"""What blocks and stacks of blocks have in common."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras

from keras_diet import _backend, validation
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.prepared_terms import (
    PreparedTerms,
    lower_bias,
    prepare,
    with_one_mask,
)
from keras_diet.layers.attention.score_terms import ScoreTerms, check_symbolic_bias
from keras_diet.layers.configuration import (
    constructor_arguments,
    deserialized,
    freeze_layers,
    frozen_layers,
    takes_arguments_of,
    with_arguments,
)
from keras_diet.layers.initializers import fresh
from keras_diet.layers.transformer.recomputed_call import call_recomputed
from keras_diet.types import Activation, Config, Initializer, Shape, Tensor

NORMALIZATIONS: dict[str, Callable[..., keras.layers.Layer]] = {
    "layer_norm": keras.layers.LayerNormalization,
    "layer_norm_without_beta": functools.partial(keras.layers.LayerNormalization, center=False),
    "rms_norm": keras.layers.RMSNormalization,
}


class TransformerLayer(keras.layers.Layer):
    """Base class of blocks and stacks: the arguments that both have.

    Args:
        intermediate_dim: int. Width of the feed-forward network.
        num_heads: int. Number of attention heads.
        dropout: float. Dropout rate of attention probabilities and of the outputs of sublayers.
        activation: Activation of the feed-forward network.
        layer_norm_epsilon: float. Epsilon of each layer normalization.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.
        normalize_first: bool. Pre-norm instead of post-norm.
        activation_dropout: float. Dropout rate of the hidden units of the feed-forward network.
        gated: bool. Whether a gate multiplies the hidden units of the feed-forward network.
        use_bias: bool. Whether the dense layers have biases.
        normalization: Name of the kind of normalization.
        normalize_inputs: bool. Whether pre-norm normalizes the inputs of the first self-attention.
        attention_dropout: float or `None`. Dropout rate of attention probabilities, if it is not
            `dropout`.
        head_dim: int or `None`. Size of a head. `None` means `hidden_dim / num_heads`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.
    """

    # Paths of layers inside that are frozen, from a configuration.
    frozen_layers: Sequence[str] = ()

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
        activation_dropout: float = 0.0,
        gated: bool = False,
        use_bias: bool = True,
        normalization: str = "layer_norm",
        normalize_inputs: bool = True,
        attention_dropout: float | None = None,
        head_dim: int | None = None,
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
        self.normalize_first = normalize_first
        self.activation_dropout = validation.rate("activation_dropout", activation_dropout)
        # "swiglu" would be true.
        self.gated = validation.choice("gated", gated, (False, True))
        self.use_bias = use_bias
        self.normalization = validation.choice(
            "normalization", normalization, tuple(NORMALIZATIONS)
        )
        self.normalize_inputs = normalize_inputs
        self.attention_dropout = attention_dropout
        if attention_dropout is not None:
            validation.rate("attention_dropout", attention_dropout)
        self.head_dim = validation.optional_positive_int("head_dim", head_dim)
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def finish_build(self) -> None:
        """Freeze the layers that a configuration names. All layers inside are built."""
        freeze_layers(self, self.frozen_layers)

    def size_of_heads(self, hidden_dim: int) -> int:
        """Return the size of a head for hidden states of a size."""
        return self.head_dim or validation.divisible_heads(hidden_dim, self.num_heads)

    def arguments_of_block(self) -> Config:
        """Return these arguments for a layer inside. Each call makes new initializers."""
        arguments = {name: getattr(self, name) for name in constructor_arguments(TransformerLayer)}
        return {**arguments, **self.arguments_of_dense()}

    @property
    def dropout_of_probabilities(self) -> float:
        """Dropout rate of the probabilities of attention layers that are made here."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    def arguments_of_dense(self) -> Config:
        """Return what dense and attention layers inside have in common. Initializers are new."""
        return {
            "use_bias": self.use_bias,
            "kernel_initializer": fresh(self.kernel_initializer),
            "bias_initializer": fresh(self.bias_initializer),
            "dtype": self.dtype_policy,
        }

    def make_layer_norm(self, name: str, inputs_shape: Shape) -> keras.layers.Layer:
        """Return a built normalization."""
        layer_norm = NORMALIZATIONS[self.normalization](
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )
        layer_norm.build(inputs_shape)
        return layer_norm

    def call_layer(
        self, layer: keras.layers.Layer, recompute: bool, *args: Any, **kwargs: Any
    ) -> Any:
        """Call a layer inside. In training, `recompute` runs it again for the gradient."""
        if recompute and kwargs["training"]:
            return call_recomputed(layer, *args, **kwargs)
        return layer(*args, **kwargs)

    def compute_output_shape(
        self, inputs_shape: Shape, encoder_outputs_shape: Shape | None = None
    ) -> Shape:
        """Return the shape of the output, which is the shape of the inputs."""
        return inputs_shape

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs of `call`."""
        arguments = inspect.signature(self.call).bind(*args, **kwargs).arguments
        for prefix in ("", "cross_"):
            names = (f"{prefix}attention_bias", f"{prefix}score_terms")
            check_symbolic_bias(*map(arguments.get, names))
        return self.output_spec(**arguments)

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        activation = keras.activations.serialize(self.activation)
        config = with_arguments({**super().get_config(), "activation": activation}, self)
        frozen = list(frozen_layers(self) if self.built else self.frozen_layers)
        return {**config, "frozen_layers": frozen} if frozen else config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Make the layer from its configuration, which may hold layers that the user made.

        `build` freezes layers inside.
        """
        config = deserialized(config)
        frozen = config.pop("frozen_layers", ())
        layer = super().from_config(config)
        layer.frozen_layers = frozen
        return layer


def takes_score_terms(attention: keras.layers.Layer) -> bool:
    """Whether an attention layer takes `score_terms`. Other custom layers take a bias tensor."""
    return isinstance(attention, BiasedMultiHeadAttention)


def without_missing(output: Any, *others: Any) -> Any:
    """Return a tuple of the output and the others that are not `None`, or the output alone."""
    given = [other for other in others if other is not None]
    return (output, *given) if given else output


def _arguments_of_terms(terms, query, value):
    """Return the arguments that a custom attention layer gets. It may lack unused arguments."""
    key = None if value is query else value
    if not isinstance(terms, PreparedTerms):
        terms = prepare(terms, AttentionPlan("scores"), query, key)
    terms = lower_bias(terms, query, key)
    if not terms.starts_at_zero:
        terms = with_one_mask(terms, query, key)
    bias = terms.bias
    for query_features, key_features in terms.features:
        bias = _backend.add_products(bias, query_features, key_features)
    arguments = {
        "attention_bias": bias,
        "attention_mask": terms.attention_mask,
        "value_mask": terms.padding_mask,
        "use_causal_mask": terms.is_causal or None,
    }
    return {name: value for name, value in arguments.items() if value is not None}


class TransformerBlock(TransformerLayer):
    """Base class of a block: its sublayers and their attention layers.

    Each sublayer has a layer normalization and a residual connection. With post-norm:

        x = LayerNorm(x + sublayer(x))

    and with `normalize_first` (pre-norm):

        x = x + sublayer(LayerNorm(x))

    The blocks document the arguments.
    """

    @takes_arguments_of(TransformerLayer)
    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        *,
        self_attention: keras.layers.Layer | None = None,
        recompute_attention: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(intermediate_dim, num_heads, **kwargs)
        self.self_attention = self_attention
        self.recompute_attention = recompute_attention
        # The attention layers that are not arguments of the constructor.
        self._made_attentions: tuple[str, ...] = ()

    def build_attention(self, name: str, inputs_shape: Shape, value_shape: Shape) -> None:
        """Create and build an attention sublayer, with its normalization and dropout."""
        hidden_dim: Any = inputs_shape[-1]
        if getattr(self, name) is None:
            self._made_attentions += (name,)
            key_dim = self.size_of_heads(hidden_dim)
            arguments: Config = {"dropout": self.dropout_of_probabilities, "name": name}
            arguments |= self.arguments_of_dense()
            setattr(self, name, BiasedMultiHeadAttention(self.num_heads, key_dim, **arguments))
        attention = getattr(self, name)
        if not attention.built:
            # A layer that was loaded with its configuration is built already.
            attention.build(inputs_shape, value_shape)
        self._make_residual(name, inputs_shape)

    def build_feed_forward(self, inputs_shape: Shape) -> None:
        """Create and build the feed-forward network, with its normalization and dropout."""
        self._make_residual("feedforward", inputs_shape)
        hidden_shape = (*inputs_shape[:-1], self.intermediate_dim)
        self._make_dense(
            "feedforward_intermediate_dense", inputs_shape, hidden_shape[-1], self.activation
        )
        if self.gated:
            self._make_dense("feedforward_gate_dense", inputs_shape, hidden_shape[-1])
        self._make_dense("feedforward_output_dense", hidden_shape, inputs_shape[-1])
        self._make_dropout("feedforward_intermediate_dropout", self.activation_dropout)

    def _make_dense(self, name, inputs_shape, units, activation=None):
        dense = keras.layers.Dense(units, activation, name=name, **self.arguments_of_dense())
        dense.build(inputs_shape)
        setattr(self, name, dense)

    def _make_residual(self, name, inputs_shape):
        layer_norm = f"{name}_layer_norm"
        is_left_out = name == "self_attention" and not self.normalize_inputs
        norm = None if is_left_out else self.make_layer_norm(layer_norm, inputs_shape)
        setattr(self, layer_norm, norm)
        self._make_dropout(f"{name}_dropout", self.dropout)

    def _make_dropout(self, name, rate):
        setattr(self, name, keras.layers.Dropout(rate, dtype=self.dtype_policy, name=name))

    def enter(self, name: str, inputs: Tensor) -> Tensor:
        """Return the inputs of a sublayer, which pre-norm normalizes."""
        norm = getattr(self, f"{name}_layer_norm") if self.normalize_first else None
        return inputs if norm is None else norm(inputs)

    def leave(self, name: str, output: Tensor, inputs: Tensor, training: bool | None) -> Tensor:
        """Return the output of a sublayer with its dropout, residual connection and post-norm."""
        x = getattr(self, f"{name}_dropout")(output, training=training) + inputs
        return x if self.normalize_first else getattr(self, f"{name}_layer_norm")(x)

    def attend(
        self,
        attention: keras.layers.Layer,
        query: Tensor,
        value: Tensor | None,
        terms: ScoreTerms,
        returns_scores: bool,
        training: bool | None,
        **arguments: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Call an attention layer, and return its output, and its probabilities or `None`."""
        if takes_score_terms(attention):
            arguments["score_terms"] = terms
        else:
            arguments |= _arguments_of_terms(terms, query, value)
        arguments |= {"return_attention_scores": returns_scores, "training": training}
        output = self.call_layer(attention, self.recompute_attention, query, value, **arguments)
        return output if returns_scores else (output, None)

    def feed_forward(self, inputs: Tensor, training: bool | None) -> Tensor:
        """Apply the feed-forward network."""
        x = self.enter("feedforward", inputs)
        hidden = _backend.dense(self.feedforward_intermediate_dense, x)
        if self.gated:
            hidden = hidden * _backend.dense(self.feedforward_gate_dense, x)
        hidden = self.feedforward_intermediate_dropout(hidden, training=training)
        x = _backend.dense(self.feedforward_output_dense, hidden)
        return self.leave("feedforward", x, inputs, training)

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        return {**super().get_config(), **dict.fromkeys(self._made_attentions)}
