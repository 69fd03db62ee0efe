"""A stack of Transformer decoder blocks, and its memory."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_diet import validation
from keras_diet._compat import get_keras_mask, keras_masks_removed
from keras_diet.layers.attention.key_memory import KeyMemory, repeat_rows
from keras_diet.layers.attention.score_terms import ScoreTerms, as_bool, check_masks
from keras_diet.layers.configuration import takes_arguments_of
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.transformer.biased_transformer_decoder import (
    BiasedTransformerDecoder,
    BlockMemory,
    check_decoder_call,
)
from keras_diet.layers.transformer.diet_stack import DietStack
from keras_diet.layers.transformer.transformer_block import without_missing
from keras_diet.types import Integer, Shape, Tensor


class DecoderMemory(NamedTuple):
    """The keys and values of all blocks of a `DietDecoder`, in tensors of fixed sizes.

    It is a nest of tensors, so it can be a variable of a compiled loop. Beam search reorders
    `target`. The other fields never change. There may be several targets for each source: with two,
    the first two targets belong to the first source.

    Attributes:
        target: For each block, keys and values of self-attention,
            `(num_targets, num_heads, length, size)`. Positions that are not decoded yet hold zeros.
            A third tensor is for a bias that reads the content of keys.
        source: For each block, keys and values of cross-attention,
            `(num_sources, num_heads, S, size)`.
        source_padding_mask: Boolean tensor `(num_sources, S)`, `False` for padding of the source.
    """

    target: tuple[KeyMemory, ...]
    source: tuple[KeyMemory, ...]
    source_padding_mask: Tensor

    def of_block(self, index: int) -> BlockMemory:
        """Return the memory of one block."""
        return self.target[index], self.source[index]


@keras.saving.register_keras_serializable(package="keras_diet")
class DietDecoder(DietStack):
    """A stack of Transformer decoder blocks with a choice of position encodings.

    The target `x` attends to itself and to a source `y`, the output of an encoder. In each layer
    and head, self-attention has the scores

        A_ij = (x_i W_Q) . (x_j W_K) / sqrt(d_h) + B_ij    for j <= i

    and cross-attention, with its own projections `W'` and its own position parameters in `C`,

        A_ij = (x_i W'_Q) . (y_j W'_K) / sqrt(d_h) + C_ij

    where `i` is a position of the target. In cross-attention `j` is a position of the source.
    `position_encoding` says what `B` and `C` are, as in the table of `DietEncoder`: for example,
    DIET-REL has `C_ij = R'_{i-j}`. Without `cross_attention_positions` there is no `C`.

    The paper changes the positions of "all the attention layers both in the encoder and decoder"
    (appendix A) and gives no equation for cross-attention. That `i` and `j` count from the
    beginnings of target and source, and that cross-attention has its own parameters, is our
    reading. `sharing` holds for both kinds of attention: with `"layer-wise"`, all layers share `B`,
    and all layers share `C`. T5's bins of `B` are for keys before the query, as in T5.

    The decoder holds no state. `start_memory` returns a memory for decoding in steps. A call takes
    the memory and the position of its first token, and returns the next memory. Outputs are the
    same as in one pass.

    Args:
        num_layers: int. Number of blocks.
        num_heads: int. Number of attention heads. It must divide the hidden size.
        intermediate_dim: int. Width of the feed-forward networks.
        position_encoding: As in `DietEncoder`. A bias layer takes a `key` of another length than
            the query. Steps need its `rows(query, key, start_index)`. Defaults to `"diet_abs"`.
        rank: As in `DietEncoder`. Defaults to `None`.
        sharing: As in `DietEncoder`. Defaults to `None`.
        cross_attention_positions: bool. Whether cross-attention has position parameters too.
            `False` is the way of Tensor2Tensor's relative attention. It makes no difference to
            encodings at the input only, and to those that compare tokens of one sequence, such as
            `"deberta"`. Defaults to `True`.
        max_sequence_length: int. Number of positions of the target. Also of the source, if
            cross-attention has a position bias. Defaults to `512`.
        dropout: float. Dropout rate of attention probabilities and of the outputs of sublayers.
            Defaults to `0.0`.
        activation: Activation of the feed-forward networks. Defaults to `"gelu"`.
        layer_norm_epsilon: float. Epsilon of each layer normalization. Defaults to `1e-12`, as in
            BERT.
        kernel_initializer: Initializer of the kernels. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of the biases. Defaults to `"zeros"`.
        normalize_first: bool. Whether to use pre-norm blocks and a final layer normalization,
            instead of post-norm blocks. Defaults to `False`.
        attention_implementation: As in `DietEncoder`. Defaults to `"auto"`.
        encode_inputs: bool. Whether the decoder adds positions to its inputs, if they belong there.
            Pass `False` if the model adds them before. Defaults to `True`.
        cached_positions: As in `DietEncoder`. Defaults to `False`.
        activation_dropout: As in `DietEncoder`. Defaults to `0.0`.
        max_distance: As in `DietEncoder`. Defaults to `None`.
        recompute: As in `DietEncoder`. Defaults to `"none"`.
        gated: As in `DietEncoder`. Defaults to `False`.
        use_bias: As in `DietEncoder`. Defaults to `True`.
        normalization: As in `DietEncoder`. Defaults to `"layer_norm"`.
        normalize_inputs: As in `DietEncoder`. Defaults to `True`.
        attention_dropout: As in `DietEncoder`. Defaults to `None`.
        head_dim: As in `DietEncoder`. Defaults to `None`.
        attention_windows: As in `DietEncoder`, for self-attention. Defaults to `None`.
        attention_scale: As in `DietEncoder`. Defaults to `None`.
        max_wavelength: As in `DietEncoder`. Defaults to `None`.
        rope_scaling: As in `DietEncoder`. Defaults to `None`.
        initial_score_stddev: As in `DietEncoder`. Defaults to `None`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Target of shape `(B, T, hidden_dim)`, e.g. token embeddings.
        encoder_outputs: Source of shape `(B, S, source_dim)`. `None` with a `memory`, which holds
            the keys and values of the source.
        padding_mask: Boolean or 0/1 tensor, `False` for padding: of the target, `(B, T)`, or of the
            positions of the `memory`, `(B, length)`. Defaults to the Keras mask of the inputs, if
            there is no memory.
        encoder_padding_mask: Boolean or 0/1 tensor `(B, S)`, `False` for padding of the source.
            Defaults to the Keras mask of the source. Not with a `memory`, which holds it.
        training: bool. Whether dropout is active.
        return_attention_scores: bool. Whether to return the probabilities too.
        memory: What `start_memory` or an earlier call returned, or `None`. The inputs are the
            tokens from `start_index` on, and attend to the earlier tokens in the memory.
        start_index: int or scalar tensor. Position of the first token of the inputs, with a
            `memory`. Defaults to `0`.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`. With `return_attention_scores`, two lists follow: the
        probabilities of self-attention of each layer, `(B, num_heads, T, T or length)`, and those
        of cross-attention, `(B, num_heads, T, S)`. With a `memory`, the next memory follows. All of
        them are in one tuple.

    Raises:
        ValueError: If an argument of the constructor is refused by `DietEncoder` too. If an
            attention layer projects keys along the sequence. If neither or both of
            `encoder_outputs` and `memory` are given. If a sequence is longer than
            `max_sequence_length` or the memory. If a mask has another shape or other values than 0
            and 1.

    Example:

    ```python
    source = np.random.normal(size=(2, 7, 32)).astype("float32")
    target = np.random.normal(size=(2, 5, 32)).astype("float32")
    decoder = keras_diet.layers.DietDecoder(
        num_layers=2, num_heads=4, intermediate_dim=64, max_sequence_length=16
    )
    y = decoder(target, source)
    # The same, one token after the other.
    memory = decoder.start_memory(batch_size=2, length=5, encoder_outputs=source)
    for i in range(5):
        y, memory = decoder(target[:, i : i + 1], memory=memory, start_index=i)
    ```

    References:
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.1
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 4.3
    """

    @takes_arguments_of(DietStack)
    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        position_encoding: str | keras.layers.Layer = "diet_abs",
        rank: int | None = None,
        sharing: str | None = None,
        cross_attention_positions: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_layers, num_heads, intermediate_dim, position_encoding, rank, sharing, **kwargs
        )
        self.cross_attention_positions = cross_attention_positions
        has_none = self.encoding.self_attention_only or not cross_attention_positions
        # An empty `PositionEncoding` adds no positions.
        self.cross_encoding = PositionEncoding() if has_none else self.encoding

    def build(self, inputs_shape: Shape, encoder_outputs_shape: Shape | None = None) -> None:
        """Create and build the sublayers. The default is a source of the width of the inputs."""
        source_shape = inputs_shape if encoder_outputs_shape is None else encoder_outputs_shape
        hidden_dim = inputs_shape[-1]
        encoding, cross = self.encoding, self.cross_encoding
        of_self = (encoding, self.arguments_of_encoding(encoding, hidden_dim, is_causal=True))
        of_cross = (cross, self.arguments_of_encoding(cross, hidden_dim))
        self.build_input_encoding(inputs_shape)
        self.position_biases = self.make_position_biases(*of_self)
        self.cross_position_biases = self.make_position_biases(*of_cross, prefix="cross_")
        self.transformer_layers = [
            BiasedTransformerDecoder(
                **self.arguments_of_block(i),
                self_attention=self.make_attention(
                    *of_self, self.position_biases, "self_attention", i
                ),
                cross_attention=self.make_attention(
                    *of_cross, self.cross_position_biases, "cross_attention", i
                ),
            )
            for i in range(self.num_layers)
        ]
        for bias in self.all_position_biases():
            if not bias.built:
                bias.build(inputs_shape)
        for block in self.transformer_layers:
            block.build(inputs_shape, source_shape)
        self.build_output_layer_norm(inputs_shape)
        self.finish_build()

    def start_memory(
        self,
        batch_size: Any,
        length: int,
        encoder_outputs: Tensor,
        encoder_padding_mask: Tensor | None = None,
    ) -> DecoderMemory:
        """Return the memory before the first step, with the keys of the source.

        The decoder must be built.

        Args:
            batch_size: int. Number of targets, a multiple of the number of sources. With two
                targets for each source, the first two targets belong to the first source.
            length: int. Number of positions of the target, at most `max_sequence_length`.
            encoder_outputs: Source of shape `(batch_size or fewer, S, source_dim)`.
            encoder_padding_mask: Boolean or 0/1 tensor like the first two axes of the source,
                `False` for padding. Defaults to the Keras mask of the source.
        """
        num_sources, source_length = ops.shape(encoder_outputs)[:2]
        limit = self.max_sequence_length
        validation.length_within(length, limit, "max_sequence_length", "target")
        mask = encoder_padding_mask
        scores_shape = (num_sources, self.num_heads, length, source_length)
        check_masks(scores_shape, encoder_padding_mask=mask)
        mask = get_keras_mask(encoder_outputs) if mask is None else mask
        mask = ops.ones((num_sources, source_length), "bool") if mask is None else as_bool(mask)
        biases = self.position_biases or [None]
        pairs = [
            block.start_memory(batch_size, length, encoder_outputs, biases[i % len(biases)])
            for i, block in enumerate(self.transformer_layers)
        ]
        return DecoderMemory(
            target=tuple(target for target, _ in pairs),
            source=tuple(source for _, source in pairs),
            source_padding_mask=ops.broadcast_to(mask, (num_sources, source_length)),
        )

    def call(
        self,
        inputs: Tensor,
        encoder_outputs: Tensor | None = None,
        padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        memory: DecoderMemory | None = None,
        start_index: Integer = 0,
    ) -> Any:
        masks = {"padding_mask": padding_mask, "encoder_padding_mask": encoder_padding_mask}
        first = None if memory is None else memory.of_block(0)
        check_decoder_call(self, inputs, encoder_outputs, first, start_index, **masks)
        limit = self.max_sequence_length
        validation.length_within(inputs.shape[1], limit, "max_sequence_length", "target")
        if memory is not None and encoder_padding_mask is not None:
            raise ValueError(
                "A memory holds the padding of the source. Received: `encoder_padding_mask` with a "
                "`memory`. Pass the mask to `start_memory`."
            )
        if not isinstance(start_index, int):
            start_index = ops.cast(start_index, "int32")
        with keras_masks_removed(inputs, encoder_outputs) as (mask, encoder_mask):
            x = inputs
            if self.input_encoding is not None:
                x = self.input_encoding(x, start_index=start_index)
            options = {"training": training, "return_attention_scores": return_attention_scores}
            of_plan: dict[str, Any] = {**options, "reads_memory": memory is not None}
            terms = ScoreTerms(
                padding_mask=as_bool(padding_mask), is_causal=True, start_index=start_index
            )
            padding = as_bool(encoder_padding_mask)
            cross_terms = ScoreTerms(padding_mask=padding, start_index=start_index)
            # Only the lengths of the keys are read.
            key, cross_key = None, encoder_outputs
            memories: list[Any] = [None] * self.num_layers
            if memory is None:
                terms = terms.with_default_padding(mask)
                cross_terms = cross_terms.with_default_padding(encoder_mask)
            else:
                memories = [memory.of_block(i) for i in range(self.num_layers)]
                key, cross_key = (ops.swapaxes(keys, 1, 2) for keys, *_ in memories[0])
                padding = repeat_rows(memory.source_padding_mask, ops.shape(inputs)[0])
                cross_terms = cross_terms.replace(padding_mask=padding)
            biases, cross_biases = self.position_biases, self.cross_position_biases
            of_self = self.terms_of_layers(x, terms, "self_attention", biases, key=key, **of_plan)
            of_cross = self.terms_of_layers(
                x, cross_terms, "cross_attention", cross_biases, key=cross_key, **of_plan
            )
            names = ("score_terms", "cross_score_terms", "memory")
            of_blocks = (
                {**dict(zip(names, each, strict=True)), **options}
                for each in zip(of_self, of_cross, memories, strict=True)
            )
            x, others = self.call_blocks(x, of_blocks, encoder_outputs)
        return self._join(x, others, memory)

    def _join(self, x, others, memory):
        """Return the output, lists with the scores of all blocks, and the next memory."""
        if memory is not None:
            targets = tuple(target for target, _ in others[-1])
            others[-1] = DecoderMemory(targets, *memory[1:])
        return without_missing(x, *others)

    def output_spec(
        self,
        inputs: Tensor,
        encoder_outputs: Tensor | None = None,
        return_attention_scores: bool = False,
        memory: DecoderMemory | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the symbolic outputs."""
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        others = []
        for i, block in enumerate(self.transformer_layers):
            of_block = None if memory is None else memory.of_block(i)
            outputs = block.compute_output_spec(
                inputs,
                encoder_outputs,
                return_attention_scores=return_attention_scores,
                memory=of_block,
            )
            others.append(outputs[1:] if isinstance(outputs, tuple) else ())
        return self._join(output, [list(each) for each in zip(*others, strict=True)], memory)
