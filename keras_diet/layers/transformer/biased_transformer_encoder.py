"""One block of a Transformer encoder whose attention takes a score bias."""

from typing import Any

import keras

from keras_diet._compat import keras_masks_removed
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.score_terms import (
    ScoreTerms,
    as_bool,
    check_masks,
    check_only_terms,
)
from keras_diet.layers.transformer.transformer_block import TransformerBlock
from keras_diet.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class BiasedTransformerEncoder(TransformerBlock):
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
        layer_norm_epsilon: float. Epsilon of each layer normalization. Defaults to `1e-12`, as in
            BERT.
        kernel_initializer: Initializer of the kernels. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of the biases. Defaults to `"zeros"`.
        normalize_first: bool. Pre-norm instead of post-norm. Defaults to `False`.
        self_attention: Layer or `None`. A custom attention layer, such as a
            `RelativeMultiHeadAttention`. The block calls it as `BiasedMultiHeadAttention`, and
            leaves out arguments that have their defaults. Defaults to `None`: a
            `BiasedMultiHeadAttention` made from the arguments above.
        activation_dropout: float. Dropout rate of the hidden units of the feed-forward network,
            after the activation. Defaults to `0.0`.
        gated: bool. Whether the feed-forward network is `W_2 (activation(W_1 x) * (W_g x))`. With
            `"gelu"` this is GeGLU, with `"silu"` SwiGLU. Defaults to `False`.
        use_bias: bool. Whether the dense layers have biases. Defaults to `True`.
        normalization: `"layer_norm"`, `"layer_norm_without_beta"` or `"rms_norm"`, which is
            `gamma x / sqrt(mean(x^2) + epsilon)`. Defaults to `"layer_norm"`.
        normalize_inputs: bool. `False` leaves out the normalization before self-attention, with
            `normalize_first`, for inputs that are normalized already. Defaults to `True`.
        attention_dropout: float or `None`. Dropout rate of the attention probabilities. With `0`
            fused kernels compute attention in training too, which have no dropout. Defaults to
            `None`, which means `dropout`.
        head_dim: int or `None`. Size of a head. Defaults to `None`: `hidden_dim / num_heads`.
        recompute_attention: bool. Whether training keeps nothing of the attention layers, and
            computes them again for the gradient. Defaults to `False`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, T, hidden_dim)`.
        attention_bias: Tensor broadcastable to `(B, num_heads, T, T)`, or `None`.
        attention_mask: Boolean or 0/1 tensor `(B, T or 1, T)`, `True` lets the query attend; or
            `None`.
        padding_mask: Boolean or 0/1 tensor `(B, T)`, `False` for padding; or `None`.
        use_causal_mask: bool. Whether a token attends only to itself and earlier tokens.
        return_attention_scores: bool. Whether to return the probabilities too.
        training: bool. Whether dropout is active.
        score_terms: `ScoreTerms` or `None`. All terms in one object. It replaces the bias and the
            masks above, and may hold features.
        attention_hook: As in `BiasedMultiHeadAttention`.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`, or a tuple of it and the attention probabilities
        `(B, num_heads, T, T)`.

    Raises:
        ValueError: If `num_heads` does not divide the hidden size, or a mask has another shape or
            other values than 0 and 1.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.RelativePositionBias(num_heads=4, max_length=16)
    block = keras_diet.layers.BiasedTransformerEncoder(intermediate_dim=64, num_heads=4)
    y = block(x, attention_bias=position_bias(x))
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
     - [Shazeer, 2020](https://arxiv.org/abs/2002.05202), gates
     - [Zhang and Sennrich, 2019](https://arxiv.org/abs/1910.07467), RMSNorm
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    def build(self, inputs_shape: Shape) -> None:
        """Create and build the sublayers."""
        self.build_attention("self_attention", inputs_shape, inputs_shape)
        self.build_feed_forward(inputs_shape)
        self.finish_build()

    def call(
        self,
        inputs: Tensor,
        attention_bias: Any = None,
        attention_mask: Tensor | None = None,
        padding_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        score_terms: ScoreTerms | None = None,
        attention_hook: AttentionHook | None = None,
    ) -> Any:
        masks = {"attention_mask": attention_mask, "padding_mask": padding_mask}
        if score_terms is None:
            batch_size, length = inputs.shape[:2]
            check_masks((batch_size, self.num_heads, length, length), **masks)
            of_keys, of_pairs = as_bool(padding_mask), as_bool(attention_mask)
            score_terms = ScoreTerms(attention_bias, (), of_keys, of_pairs, use_causal_mask)
        else:
            arguments = {"attention_bias": attention_bias, "use_causal_mask": use_causal_mask}
            check_only_terms("score_terms", **arguments, **masks)
        # A custom attention layer may lack the argument.
        hook = {} if attention_hook is None else {"attention_hook": attention_hook}
        with keras_masks_removed(inputs) as (keras_mask,):
            terms = score_terms.with_default_padding(keras_mask)
            x = self.enter("self_attention", inputs)
            x, scores = self.attend(
                self.self_attention, x, x, terms, return_attention_scores, training, **hook
            )
            x = self.leave("self_attention", x, inputs, training)
            x = self.feed_forward(x, training)
        return (x, scores) if return_attention_scores else x

    def output_spec(
        self, inputs: Tensor, return_attention_scores: bool = False, **kwargs: Any
    ) -> Any:
        """Return the symbolic output, and the symbolic scores if the caller asks for them."""
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        # Attention knows the number of its keys, of which Linformer has fewer than tokens.
        _, scores = self.self_attention.compute_output_spec(
            inputs, inputs, return_attention_scores=True
        )
        return output, scores
