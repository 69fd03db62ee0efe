"""One block of a Transformer decoder whose attention takes score biases."""

from typing import Any

import keras
from keras import ops, tree

from keras_diet import validation
from keras_diet._compat import keras_masks_removed
from keras_diet.layers.attention.input_checks import (
    check_masks,
    check_only_terms,
    check_symbolic_bias,
)
from keras_diet.layers.attention.key_memory import (
    KeyMemory,
    empty_memory,
    memory_length,
    swap_heads,
    write_keys,
)
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.score_terms import ScoreTerms, as_bool
from keras_diet.layers.transformer.transformer_block import TransformerBlock
from keras_diet.types import Shape, Tensor

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
        attention_plan: As in `BiasedMultiHeadAttention`, for self-attention.
        cross_score_terms: `ScoreTerms` of cross-attention. Replaces its bias and mask.
        cross_attention_plan: As in `BiasedMultiHeadAttention`, for cross-attention.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`. With `return_attention_scores`, the probabilities of
        self-attention `(B, num_heads, T, T or length)` and of cross-attention
        `(B, num_heads, T, S)` follow. With a `memory`, the next memory follows. All of them are in
        one tuple.

    Raises:
        ValueError: If `num_heads` does not divide the hidden size, or differs from the heads of an
            attention layer. If an attention layer does not derive from `BiasedMultiHeadAttention`,
            or projects keys along the sequence as Linformer does. If neither or both of
            `encoder_outputs` and `memory` are given. If the inputs do not fit into the memory. If
            a mask has another shape or other values than 0 and 1.

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
    """

    attention_names = ("self_attention", "cross_attention")

    attention_names = ("self_attention", "cross_attention")

    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        *,
        cross_attention: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(intermediate_dim, num_heads, **kwargs)
        self.set_attention("cross_attention", cross_attention)

    def set_attention(self, name: str, attention: keras.layers.Layer | None) -> None:
        """Keep the attention layer of an argument. `None` means that the block makes one."""
        if attention is not None and not getattr(attention, "takes_projected_keys", False):
            raise ValueError(
                f"`{name}` must derive from `BiasedMultiHeadAttention`, and may not project keys "
                "along the sequence, as Linformer does: a projected key mixes all tokens. "
                f"Received: {name}={attention}. Use another attention layer or encoding."
            )
        super().set_attention(name, attention)

    def build(self, inputs_shape: Shape, encoder_outputs_shape: Shape | None = None) -> None:
        """Create and build the sublayers. The default is a source of the width of the inputs."""
        self.build_attention("self_attention", inputs_shape, inputs_shape)
        source_shape = inputs_shape if encoder_outputs_shape is None else encoder_outputs_shape
        self.build_attention("cross_attention", inputs_shape, source_shape)
        self.build_feed_forward(inputs_shape)
        self.built = True

    def start_memory(self, batch_size: Any, length: int, encoder_outputs: Tensor) -> BlockMemory:
        """Return the memory before the first step: no target, keys and values of the source.

        Args:
            batch_size: int. Number of targets, a multiple of the number of sources. With two
                targets for each source, the first two targets belong to the first source.
            length: int. Number of positions of the target.
            encoder_outputs: Source of shape `(batch_size or fewer, S, source_dim)`.
        """
        source = ops.convert_to_tensor(encoder_outputs, dtype=self.compute_dtype)
        source_memory = swap_heads(self.cross_attention.project_keys(source))
        return empty_memory(self.self_attention, batch_size, length), source_memory

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
        start_index: int | Tensor = 0,
        memory: BlockMemory | None = None,
        score_terms: ScoreTerms | None = None,
        attention_plan: AttentionPlan | None = None,
        cross_score_terms: ScoreTerms | None = None,
        cross_attention_plan: AttentionPlan | None = None,
    ) -> Any:
        if attention_plan is None:
            # A stack that made a plan has checked its call.
            masks = {"padding_mask": padding_mask, "encoder_padding_mask": encoder_padding_mask}
            check_decoder_call(self, inputs, encoder_outputs, memory, start_index, **masks)
        if score_terms is not None:
            check_only_terms(score_terms, attention_bias=attention_bias, padding_mask=padding_mask)
        if cross_score_terms is not None:
            of_source = {"encoder_padding_mask": encoder_padding_mask}
            of_source |= {"cross_attention_bias": cross_attention_bias}
            check_only_terms(cross_score_terms, "cross_score_terms", **of_source)
        with keras_masks_removed(inputs, encoder_outputs) as (mask, encoder_mask):
            if score_terms is None:
                padding_mask = mask if padding_mask is None and memory is None else padding_mask
                score_terms = ScoreTerms(
                    bias=attention_bias,
                    padding_mask=as_bool(padding_mask),
                    is_causal=True,
                    start_index=start_index,
                )
            if cross_score_terms is None:
                source_mask = encoder_mask if encoder_padding_mask is None else encoder_padding_mask
                cross_score_terms = ScoreTerms(
                    bias=cross_attention_bias,
                    padding_mask=as_bool(source_mask),
                    start_index=start_index,
                )
            target_memory, source_memory = (None, None) if memory is None else memory

            def attend(attention, query, value, keys, terms, plan):
                arguments = {"projected_keys": keys, "score_terms": terms, "attention_plan": plan}
                arguments |= {"return_attention_scores": return_attention_scores}
                attended = self.call_attention(
                    attention, query, value, training=training, **arguments
                )
                return attended if return_attention_scores else (attended, None)

            def attend_to_target(x):
                value, keys, new = x, None, None
                if target_memory is not None:
                    new_keys = self.self_attention.project_keys(x)
                    new = write_keys(target_memory, new_keys, score_terms.start_index)
                    value, keys = None, swap_heads(new)
                terms = (score_terms, attention_plan)
                x, scores = attend(self.self_attention, x, value, keys, *terms)
                return x, (scores, new)

            def attend_to_source(x):
                keys = None if source_memory is None else swap_heads(source_memory)
                terms = (cross_score_terms, cross_attention_plan)
                return attend(self.cross_attention, x, encoder_outputs, keys, *terms)

            x, (scores, new) = self.residual("self_attention", attend_to_target, inputs, training)
            x, cross_scores = self.residual("cross_attention", attend_to_source, x, training)
            x = self.feed_forward(x, training)
        new_memory = None if memory is None else (new, source_memory)
        return without_missing(x, scores, cross_scores, new_memory)

    def compute_output_spec(
        self,
        inputs: Tensor,
        encoder_outputs: Tensor | None = None,
        attention_bias: Any = None,
        cross_attention_bias: Any = None,
        return_attention_scores: bool = False,
        memory: BlockMemory | None = None,
        score_terms: ScoreTerms | None = None,
        cross_score_terms: ScoreTerms | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the symbolic outputs."""
        check_symbolic_bias(attention_bias, score_terms)
        check_symbolic_bias(cross_attention_bias, cross_score_terms)
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        scores: list[Any] = []
        if return_attention_scores:
            batch_size, length = inputs.shape[:2]
            scores = [
                keras.KerasTensor((batch_size, self.num_heads, length, keys), self.compute_dtype)
                for keys in _lengths_of_keys(inputs, encoder_outputs, memory)
            ]
        new_memory = None
        if memory is not None:
            # Functional models identify tensors by object, so the next memory has its own.
            new_memory = tree.map_structure(
                lambda x: keras.KerasTensor(x.shape, dtype=x.dtype), memory
            )
        return without_missing(output, *scores, new_memory)


def without_missing(output: Any, *others: Any) -> Any:
    """Return a tuple of the output and the others that are not `None`, or the output alone."""
    given = [other for other in others if other is not None]
    return (output, *given) if given else output


def check_decoder_call(
    decoder: Any,
    inputs: Tensor,
    encoder_outputs: Tensor | None,
    memory: BlockMemory | None,
    start_index: int | Tensor,
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
    if (encoder_outputs is None) == (memory is None):
        raise ValueError(
            "A decoder needs either `encoder_outputs` or a `memory`, which holds the keys of the "
            f"source. Received: {'neither' if memory is None else 'both'}. Pass one of them."
        )
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
        return [memory_length(of_attention) for of_attention in memory]
    return [inputs.shape[1], encoder_outputs.shape[1]]
