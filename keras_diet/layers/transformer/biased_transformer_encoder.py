"""One block of a Transformer encoder whose attention takes a score bias."""

from typing import Any

import keras

from keras_diet import _backend, validation
from keras_diet._keras import get_keras_mask, set_keras_mask
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.plan_checks import check_is_plan
from keras_diet.layers.attention.score_shapes import (
    check_only_terms,
    check_symbolic_bias,
    without_defaults,
)
from keras_diet.layers.attention.score_terms import FeaturePair, ScoreTerms, as_bool
from keras_diet.layers.initializers import fresh
from keras_diet.layers.transformer.attention_arguments import (
    arguments_of_terms,
    takes_score_terms,
)
from keras_diet.layers.transformer.encoder_checks import check_mask_shapes
from keras_diet.types import Activation, Config, Initializer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class BiasedTransformerEncoder(keras.layers.Layer):
    """One Transformer encoder block: biased self-attention and a feed-forward network.

    With post-norm, as in BERT:

        x = LayerNorm(x + Attention(x, bias));  x = LayerNorm(x + W_2 activation(W_1 x))

    and with `normalize_first` (pre-norm):

        x = x + Attention(LayerNorm(x), bias);  x = x + W_2 activation(W_1 LayerNorm(x))

    The block is `keras_hub.layers.TransformerEncoder` with a score bias.

    Args:
        intermediate_dim: int. Width of the feed-forward network.
        num_heads: int. Number of attention heads; must divide the hidden size.
        dropout: float. Dropout rate of the outputs of both sublayers. Also the rate of the
            attention probabilities, unless `self_attention` is given. Defaults to `0.0`.
        activation: Activation of the feed-forward network. Defaults to `"gelu"`.
        layer_norm_epsilon: float. Defaults to `1e-12`, as in BERT.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.
        normalize_first: bool. Pre-norm instead of post-norm. Defaults to `False`.
        self_attention: Layer or `None`. A custom attention layer, such as a
            `RelativeMultiHeadAttention`. The block calls it as `BiasedMultiHeadAttention`, and
            leaves out arguments that have their defaults. Defaults to `None`: a
            `BiasedMultiHeadAttention` made from the arguments above.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, T, hidden_dim)`.
        attention_bias: Tensor broadcastable to `(B, num_heads, T, T)`, or `None`.
        attention_features: As in `BiasedMultiHeadAttention`, or `None`.
        attention_mask: Boolean or 0/1 tensor `(B, T or 1, T)`, `True` lets the query attend; or
            `None`.
        padding_mask: Boolean or 0/1 tensor `(B, T)`, `False` for padding; or `None`.
        use_causal_mask: bool. Whether a token attends only to itself and earlier tokens.
        return_attention_scores: bool. Whether to return the probabilities too.
        training: bool. Whether dropout is active.
        block_size: As in `BiasedMultiHeadAttention`.
        start_index: As in `BiasedMultiHeadAttention`.
        score_terms: As in `BiasedMultiHeadAttention`. Replaces the bias, features and masks above.
        attention_plan: As in `BiasedMultiHeadAttention`.
        attention_hook: As in `BiasedMultiHeadAttention`.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`, or a tuple of it and the attention probabilities
        `(B, num_heads, T, T)`.

    Raises:
        ValueError: If `num_heads` does not divide the hidden size, or differs from the `num_heads`
            of `self_attention`.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.RelativePositionBias(num_heads=4, max_length=16)
    block = keras_diet.layers.BiasedTransformerEncoder(intermediate_dim=64, num_heads=4)
    y = block(x, attention_bias=position_bias(x))
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

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
        if not isinstance(self_attention, keras.layers.Layer | None):
            raise ValueError(
                "`self_attention` must be an attention layer or `None`. Received: "
                f"self_attention={self_attention!r}. Pass a `BiasedMultiHeadAttention`."
            )
        self.self_attention = self_attention
        self._makes_attention = self_attention is None
        if getattr(self_attention, "num_heads", num_heads) != num_heads:
            raise ValueError(
                "`num_heads` must be equal to `self_attention.num_heads`. Received: "
                f"num_heads={num_heads}, self_attention.num_heads={self_attention.num_heads}. Pass "
                "the same number to both."
            )
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(self, inputs_shape: Shape) -> None:
        """Create and build the sublayers."""
        hidden_dim: Any = inputs_shape[-1]
        if self._makes_attention:
            self.self_attention = BiasedMultiHeadAttention(
                num_heads=self.num_heads,
                key_dim=validation.divisible_heads(hidden_dim, self.num_heads),
                dropout=self.dropout,
                kernel_initializer=fresh(self.kernel_initializer),
                bias_initializer=fresh(self.bias_initializer),
                dtype=self.dtype_policy,
                name="self_attention",
            )
        if not self.self_attention.built:
            # A layer that was loaded with its configuration is built already.
            self.self_attention.build(inputs_shape, inputs_shape)
        self.self_attention_layer_norm = self._layer_norm("self_attention_layer_norm")
        self.self_attention_layer_norm.build(inputs_shape)
        self.self_attention_dropout = self._dropout("self_attention_dropout")
        self.feedforward_layer_norm = self._layer_norm("feedforward_layer_norm")
        self.feedforward_layer_norm.build(inputs_shape)
        self.feedforward_intermediate_dense = self._dense(
            self.intermediate_dim, "feedforward_intermediate_dense", activation=self.activation
        )
        self.feedforward_intermediate_dense.build(inputs_shape)
        self.feedforward_output_dense = self._dense(hidden_dim, "feedforward_output_dense")
        self.feedforward_output_dense.build((*inputs_shape[:-1], self.intermediate_dim))
        self.feedforward_dropout = self._dropout("feedforward_dropout")
        self.built = True

    def _layer_norm(self, name):
        return keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def _dropout(self, name):
        return keras.layers.Dropout(self.dropout, dtype=self.dtype_policy, name=name)

    def _dense(self, units, name, activation=None):
        return keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=fresh(self.kernel_initializer),
            bias_initializer=fresh(self.bias_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def call(
        self,
        inputs: Tensor,
        attention_bias: Any = None,
        attention_features: FeaturePair | None = None,
        attention_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        block_size: int | None = None,
        start_index: int | Tensor = 0,
        score_terms: ScoreTerms | None = None,
        attention_plan: AttentionPlan | None = None,
        attention_hook: AttentionHook | None = None,
    ) -> Any:
        check_is_plan(attention_plan)
        check_mask_shapes(self, inputs, attention_mask, padding_mask)
        mask = get_keras_mask(inputs)
        x = self.self_attention_layer_norm(inputs) if self.normalize_first else inputs
        arguments = {
            "attention_bias": attention_bias,
            "attention_features": attention_features,
            "attention_mask": as_bool(attention_mask),
            "value_mask": as_bool(padding_mask),
            "use_causal_mask": use_causal_mask,
            "block_size": block_size,
            "start_index": start_index,
        }
        if score_terms is not None:
            check_only_terms(score_terms, **arguments)
            arguments = {"score_terms": score_terms, "attention_plan": attention_plan}
        attended = self._attend(
            x,
            arguments,
            return_attention_scores=return_attention_scores,
            training=training,
            attention_hook=attention_hook,
        )
        # Attention takes the mask off its query, which may be the caller's tensor.
        set_keras_mask(inputs, mask)
        x, scores = attended if return_attention_scores else (attended, None)
        x = self.self_attention_dropout(x, training=training) + inputs
        if not self.normalize_first:
            x = self.self_attention_layer_norm(x)
        x = self._feed_forward(x, training)
        return (x, scores) if return_attention_scores else x

    def _attend(self, x, arguments, attention_hook, **options):
        if takes_score_terms(self.self_attention):
            return self.self_attention(x, x, attention_hook=attention_hook, **arguments, **options)
        if attention_hook is not None:
            raise ValueError(
                "An `attention_hook` needs attention layers that derive from "
                f"`BiasedMultiHeadAttention`. Received: {self.self_attention}. Derive the layer "
                "from this class, or leave the hook out."
            )
        if "score_terms" in arguments:
            arguments = arguments_of_terms(arguments["score_terms"])
        # A custom layer may lack arguments that nobody uses.
        return self.self_attention(x, x, **without_defaults(arguments), **options)

    def _feed_forward(self, inputs, training):
        x = self.feedforward_layer_norm(inputs) if self.normalize_first else inputs
        x = _backend.dense(self.feedforward_intermediate_dense, x)
        x = _backend.dense(self.feedforward_output_dense, x)
        x = self.feedforward_dropout(x, training=training) + inputs
        return x if self.normalize_first else self.feedforward_layer_norm(x)

    def compute_output_spec(
        self,
        inputs: Tensor,
        attention_bias: Any = None,
        return_attention_scores: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the symbolic output, and the symbolic scores if they are asked for."""
        check_symbolic_bias(attention_bias, kwargs.get("score_terms"))
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        if not self._makes_attention:
            # It may have fewer keys, as Linformer does.
            _, scores = self.self_attention.compute_output_spec(
                inputs, inputs, return_attention_scores=True
            )
            return output, scores
        batch_size, length = inputs.shape[:2]
        shape = (batch_size, self.num_heads, length, length)
        return output, keras.KerasTensor(shape, dtype=self.compute_dtype)

    def compute_output_shape(self, inputs_shape: Shape) -> Shape:
        """Return the shape of the output, which is the shape of the inputs."""
        return inputs_shape

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
                "self_attention": None
                if self._makes_attention
                else keras.layers.serialize(self.self_attention),
            }
        )
        return config

    @classmethod
    def from_config(cls, config: Config) -> "BiasedTransformerEncoder":
        """Build the layer from its configuration, with a custom attention layer in it."""
        attention = config.get("self_attention")
        if isinstance(attention, dict):
            config = {**config, "self_attention": keras.layers.deserialize(attention)}
        return super().from_config(config)
