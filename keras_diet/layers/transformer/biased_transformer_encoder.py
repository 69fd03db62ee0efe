"""One block of a Transformer encoder whose attention takes a score bias."""

from typing import Any

import keras

from keras_diet import _backend
from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.input_checks import (
    check_only_terms,
    check_symbolic_bias,
    without_defaults,
)
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import FeaturePair, ScoreTerms
from keras_diet.layers.transformer.transformer_block import TransformerBlock, takes_score_terms
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
        layer_norm_epsilon: float. Defaults to `1e-12`, as in BERT.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.
        normalize_first: bool. Pre-norm instead of post-norm. Defaults to `False`.
        self_attention: Layer or `None`. A custom attention layer, such as a
            `RelativeMultiHeadAttention`. The block calls it as `BiasedMultiHeadAttention`, and
            leaves out arguments that have their defaults. Defaults to `None`: a
            `BiasedMultiHeadAttention` made from the arguments above.
        activation_dropout: float. Dropout rate of the hidden units of the feed-forward network,
            after the activation. Defaults to `0.0`.
        recompute_attention: bool. Whether training keeps nothing of the attention layers, and
            computes them again for the gradient. Defaults to `False`.
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

    def build(self, inputs_shape: Shape) -> None:
        """Create and build the sublayers."""
        self.build_attention("self_attention", inputs_shape, inputs_shape)
        self.build_feed_forward(inputs_shape)
        self.built = True

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
        arguments: dict[str, Any] = {
            "attention_bias": attention_bias,
            "attention_features": attention_features,
            "attention_mask": attention_mask,
            "value_mask": padding_mask,
            "use_causal_mask": use_causal_mask,
            "block_size": block_size,
            "start_index": start_index,
        }
        options: dict[str, Any] = {"attention_plan": attention_plan}
        if score_terms is not None:
            check_only_terms(score_terms, **arguments)
            arguments = {"score_terms": score_terms}
            if not takes_score_terms(self.self_attention):
                arguments, options = _arguments_of_terms(score_terms), {}
        # A custom attention layer may lack arguments that nobody uses.
        options = without_defaults({**arguments, **options, "attention_hook": attention_hook})
        options |= {"return_attention_scores": return_attention_scores, "training": training}
        mask = get_keras_mask(inputs)

        def attend(x):
            attended = self.call_attention(self.self_attention, x, x, **options)
            # Attention takes the mask off its query, which may be the caller's tensor.
            set_keras_mask(inputs, mask)
            return attended if return_attention_scores else (attended, None)

        x, scores = self.residual("self_attention", attend, inputs, training)
        x = self.feed_forward(x, training)
        return (x, scores) if return_attention_scores else x

    def compute_output_spec(
        self,
        inputs: Tensor,
        attention_bias: Any = None,
        return_attention_scores: bool = False,
        score_terms: ScoreTerms | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the symbolic output, and the symbolic scores if they are asked for."""
        check_symbolic_bias(attention_bias, score_terms)
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        # Attention knows the number of its keys, of which Linformer has fewer than tokens.
        _, scores = self.self_attention.compute_output_spec(
            inputs, inputs, return_attention_scores=True
        )
        return output, scores


def _arguments_of_terms(terms):
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
