"""One block of a Transformer decoder whose attention takes score biases."""

from typing import Any

import keras
from keras import tree

from keras_diet import validation
from keras_diet._compat import keras_masks_removed
from keras_diet.layers.attention.key_memory import (
    KeyMemory,
    empty_memory,
    swap_heads,
    write_keys,
)
from keras_diet.layers.attention.prepared_terms import PreparedTerms
from keras_diet.layers.attention.score_terms import (
    ScoreTerms,
    as_bool,
    check_masks,
    check_only_terms,
)
from keras_diet.layers.configuration import takes_arguments_of
from keras_diet.layers.position.position_bias import keeps_keys
from keras_diet.layers.transformer.transformer_block import TransformerBlock, without_missing
from keras_diet.types import Integer, Shape, Tensor

BlockMemory = tuple[KeyMemory, KeyMemory]
"""Keys and values of the target, and those of the source."""


@keras.saving.register_keras_serializable(package="keras_diet")
class BiasedTransformerDecoder(TransformerBlock):
    """One Transformer decoder block: self-attention, cross-attention, a feed-forward network.

    With target `x` and source `y` (the output of an encoder), and post-norm:

        x = LayerNorm(x + Attention(x, x, bias))        causal: to itself and earlier tokens
        x = LayerNorm(x + Attention(x, y, cross_bias))
        x = LayerNorm(x + W_2 activation(W_1 x))

    and with `normalize_first` (pre-norm):

        x = x + Attention(LayerNorm(x), LayerNorm(x), bias)
        x = x + Attention(LayerNorm(x), y, cross_bias)
        x = x + W_2 activation(W_1 LayerNorm(x))

    Args:
        intermediate_dim: int. Width of the feed-forward network.
        num_heads: int. Number of attention heads; must divide the hidden size.
        dropout: float. Dropout rate of the outputs of all sublayers. Also the rate of the attention
            probabilities, unless the attention layers are given. Defaults to `0.0`.
        activation: Activation of the feed-forward network. Defaults to `"gelu"`.
        layer_norm_epsilon: float. Defaults to `1e-12`, as in BERT.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.
        normalize_first: bool. Pre-norm instead of post-norm. Defaults to `False`.
        self_attention: `BiasedMultiHeadAttention` or `None`. A custom attention layer, such as a
            `RelativeMultiHeadAttention`. Defaults to `None`: a `BiasedMultiHeadAttention` made from
            the arguments above.
        cross_attention: The same for the attention to the source.
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
        inputs: Target of shape `(B, T, hidden_dim)`.
        encoder_outputs: Source of shape `(B, S, source_dim)`. `None` with a `memory`, which holds
            the keys and values of the source.
        attention_bias: As in `BiasedMultiHeadAttention`, for self-attention; or `None`.
        cross_attention_bias: The same for cross-attention.
        padding_mask: Boolean or 0/1 tensor, `False` for padding: of the target, `(B, T)`, or of the
            positions of the `memory`, `(B, length)`. Defaults to the Keras mask of the inputs.
        encoder_padding_mask: Boolean or 0/1 tensor `(B, S)`, `False` for padding of the source.
            Defaults to the Keras mask of the source.
        return_attention_scores: bool. Whether to return the probabilities too.
        training: bool. Whether dropout is active.
        start_index: int or scalar tensor. Position of the first token of the inputs, with a
            `memory`. Defaults to `0`.
        memory: What `start_memory` or an earlier call returned, or `None`. The inputs are the
            tokens from `start_index` on, and attend to the earlier tokens in the memory.
        score_terms: `ScoreTerms` of self-attention, with `is_causal`. Replaces its bias, its mask
            and `start_index`.
        cross_score_terms: `ScoreTerms` of cross-attention. Replaces its bias and mask.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`. With `return_attention_scores`, the probabilities of
        self-attention `(B, num_heads, T, T or length)` and of cross-attention
        `(B, num_heads, T, S)` follow. With a `memory`, the next memory follows. All of them are in
        one tuple.

    Raises:
        ValueError: If `num_heads` does not divide the hidden size. If `encoder_outputs` and a
            `memory` are given. If the inputs do not fit into the memory. If a mask has another
            shape or other values than 0 and 1. If the memory was started with another kind of bias.

    Example:

    ```python
    source = np.random.normal(size=(2, 7, 32)).astype("float32")
    target = np.random.normal(size=(2, 5, 32)).astype("float32")
    block = keras_diet.layers.BiasedTransformerDecoder(intermediate_dim=64, num_heads=4)
    y = block(target, source)
    # The same, one token after the other.
    memory = block.start_memory(batch_size=2, length=5, encoder_outputs=source)
    for i in range(5):
        y, memory = block(target[:, i : i + 1], memory=memory, start_index=i)
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1
     - [Shazeer, 2020](https://arxiv.org/abs/2002.05202), gates
     - [Zhang and Sennrich, 2019](https://arxiv.org/abs/1910.07467), RMSNorm
    """

    @takes_arguments_of(TransformerBlock)
    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        *,
        cross_attention: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(intermediate_dim, num_heads, **kwargs)
        self.cross_attention = cross_attention

    def build(self, inputs_shape: Shape, encoder_outputs_shape: Shape | None = None) -> None:
        """Create and build the sublayers. The default is a source of the width of the inputs."""
        self.build_attention("self_attention", inputs_shape, inputs_shape)
        source_shape = inputs_shape if encoder_outputs_shape is None else encoder_outputs_shape
        self.build_attention("cross_attention", inputs_shape, source_shape)
        self.build_feed_forward(inputs_shape)
        self.finish_build()

    def start_memory(
        self, batch_size: Any, length: int, encoder_outputs: Tensor, attention_bias: Any = None
    ) -> BlockMemory:
        """Return the memory before the first step: no target, keys and values of the source.

        Args:
            batch_size: int. Number of targets, a multiple of the number of sources. With two
                targets for each source, the first two targets belong to the first source.
            length: int. Number of positions of the target.
            encoder_outputs: Source of shape `(batch_size or fewer, S, source_dim)`.
            attention_bias: As in the steps. Only needed for a layer with `project_keys`.
        """
        source_memory = swap_heads(self.cross_attention.project_keys(encoder_outputs))
        target = empty_memory(self.self_attention, batch_size, length, attention_bias)
        return target, source_memory

    def call(
        self,
        inputs: Tensor,
        encoder_outputs: Tensor | None = None,
        attention_bias: Any = None,
        cross_attention_bias: Any = None,
        padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        start_index: Integer = 0,
        memory: BlockMemory | None = None,
        score_terms: ScoreTerms | None = None,
        cross_score_terms: ScoreTerms | None = None,
    ) -> Any:
        if score_terms is None:
            padding = as_bool(padding_mask)
            score_terms = ScoreTerms(
                attention_bias, padding_mask=padding, is_causal=True, start_index=start_index
            )
        else:
            given = {"attention_bias": attention_bias, "padding_mask": padding_mask}
            check_only_terms("score_terms", **given, start_index=start_index)
            start_index = score_terms.start_index
        if not isinstance(score_terms, PreparedTerms):
            # A stack that prepared the terms has checked its call.
            masks = {"padding_mask": padding_mask, "encoder_padding_mask": encoder_padding_mask}
            check_decoder_call(self, inputs, encoder_outputs, memory, start_index, **masks)
        if cross_score_terms is None:
            padding = as_bool(encoder_padding_mask)
            cross_score_terms = ScoreTerms(
                cross_attention_bias, padding_mask=padding, start_index=start_index
            )
        else:
            given = {"cross_attention_bias": cross_attention_bias}
            given["encoder_padding_mask"] = encoder_padding_mask
            check_only_terms("cross_score_terms", **given)
        with keras_masks_removed(inputs, encoder_outputs) as (mask, source_mask):
            options = (return_attention_scores, training)
            x = self.enter("self_attention", inputs)
            value, keys, cross_keys, new_memory = x, None, None, None
            if memory is None:
                score_terms = score_terms.with_default_padding(mask)
            else:
                new_keys = self.self_attention.project_keys(x)
                if keeps_keys(score_terms.bias):
                    if not score_terms.bias.built:
                        score_terms.bias(x[:, :1])
                    new_keys = (*new_keys, score_terms.bias.project_keys(x))
                target = write_keys(memory[0], new_keys, score_terms.start_index)
                value, keys, cross_keys = None, swap_heads(target), swap_heads(memory[1])
                new_memory = (target, memory[1])
            x, scores = self.attend(
                self.self_attention, x, value, score_terms, *options, projected_keys=keys
            )
            residual = self.leave("self_attention", x, inputs, training)
            x = self.enter("cross_attention", residual)
            terms = cross_score_terms.with_default_padding(source_mask)
            x, cross_scores = self.attend(
                self.cross_attention, x, encoder_outputs, terms, *options, projected_keys=cross_keys
            )
            x = self.leave("cross_attention", x, residual, training)
            x = self.feed_forward(x, training)
        return without_missing(x, scores, cross_scores, new_memory)

    def output_spec(
        self,
        inputs: Tensor,
        encoder_outputs: Tensor | None = None,
        return_attention_scores: bool = False,
        memory: BlockMemory | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the symbolic output, and what `call` returns beside it."""
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        scores: list[Any] = []
        if return_attention_scores:
            batch_size, length = inputs.shape[:2]
            scores = [
                keras.KerasTensor((batch_size, self.num_heads, length, keys), self.compute_dtype)
                for keys in _lengths_of_keys(inputs, encoder_outputs, memory)
            ]
        # Functional models identify tensors by object, so the next memory has its own.
        new_memory = memory and tree.map_structure(
            lambda x: keras.KerasTensor(x.shape, dtype=x.dtype), memory
        )
        return without_missing(output, *scores, new_memory)


def check_decoder_call(
    decoder: Any,
    inputs: Tensor,
    encoder_outputs: Tensor | None,
    memory: BlockMemory | None,
    start_index: Integer,
    **masks: Any,
) -> None:
    """Raise a `ValueError` if the arguments of a call of a block or a stack do not go together.

    Args:
        decoder: The block, or a stack of such blocks.
        inputs: Target `(B, T, hidden_dim)`.
        encoder_outputs: Source, or `None` with a memory.
        memory: Memory of a block, or `None`.
        start_index: Position of the first token. Whether the value of a tensor that is compiled
            fits is not checked.
        **masks: `padding_mask` and `encoder_padding_mask`.
    """
    start = validation.start_index(start_index)
    batch_size, length = inputs.shape[:2]
    if memory is None and start != 0:
        raise ValueError(
            "`start_index` needs a `memory` with the tokens before it. Received: "
            f"start_index={start_index}, memory=None. Pass a memory, or leave it at 0."
        )
    if memory is not None:
        num_targets, _, num_positions, _ = memory[0][0].shape
        is_too_long = num_positions is not None and (start or 0) + (length or 0) > num_positions
        if is_too_long or (None not in (batch_size, num_targets) and batch_size != num_targets):
            raise ValueError(
                "The inputs must fit into the memory, with one target for each target of the "
                f"memory. Received: start_index={start_index}, inputs.shape={tuple(inputs.shape)}, "
                f"and a memory of {num_positions} positions for {num_targets} targets. Call "
                "`start_memory` with another `batch_size` or a larger `length`."
            )
    lengths = _lengths_of_keys(inputs, encoder_outputs, memory)
    for (name, mask), key_length in zip(masks.items(), lengths, strict=True):
        check_masks((batch_size, decoder.num_heads, length, key_length), **{name: mask})


def _lengths_of_keys(inputs, encoder_outputs, memory):
    """Return the number of keys of self-attention and of cross-attention."""
    if memory is not None:
        return [keys.shape[2] for keys, *_ in memory]
    return [inputs.shape[1], encoder_outputs.shape[1]]
