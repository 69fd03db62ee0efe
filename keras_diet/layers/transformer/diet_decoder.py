"""A stack of Transformer decoder blocks."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet._compat import keras_masks_removed
from keras_diet.layers.attention.score_terms import ScoreTerms, as_bool
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.transformer.decoder_checks import (
    check_bias,
    check_decoder_arguments,
    check_decoder_call,
)
from keras_diet.layers.transformer.decoder_memory import DecoderMemory, start_decoder_memory
from keras_diet.layers.transformer.decoder_outputs import (
    join_blocks,
    symbolic_copy,
    symbolic_scores,
    without_missing,
)
from keras_diet.layers.transformer.decoder_terms import arguments_of_blocks
from keras_diet.layers.transformer.diet_stack import DietStack
from keras_diet.layers.transformer.stack_layers import make_decoder_block, make_position_biases
from keras_diet.types import Activation, Config, Initializer, Shape, Tensor


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
        position_encoding: As in `DietEncoder`. A bias layer needs `rows(query, key, start_index)`,
            and takes a `key` of another length than the query. Defaults to `"diet_abs"`.
        rank: As in `DietEncoder`. Defaults to `None`.
        sharing: As in `DietEncoder`. Defaults to `None`.
        cross_attention_positions: bool. Whether cross-attention has position parameters too.
            `False` is the way of Tensor2Tensor's relative attention. It makes no difference to
            encodings at the input only. Defaults to `True`.
        max_sequence_length: int. Number of positions of the target. Also of the source, if
            cross-attention has a position bias. Defaults to `512`.
        dropout: float. Dropout rate of attention probabilities and of the outputs of sublayers.
            Defaults to `0.0`.
        activation: Activation of the feed-forward networks. Defaults to `"gelu"`.
        layer_norm_epsilon: float. Defaults to `1e-12`, as in BERT.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.
        normalize_first: bool. Whether to use pre-norm blocks and a final layer normalization,
            instead of post-norm blocks. Defaults to `False`.
        attention_implementation: As in `DietEncoder`. Defaults to `"auto"`.
        encode_inputs: bool. Whether the decoder adds positions to its inputs, if they belong there.
            Pass `False` if the model adds them before. Defaults to `True`.
        cached_positions: As in `DietEncoder`. Defaults to `False`.
        activation_dropout: As in `DietEncoder`. Defaults to `0.0`.
        max_distance: As in `DietEncoder`. Defaults to `None`.
        recompute: As in `DietEncoder`. Defaults to `"none"`.
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
        ValueError: If an argument of the constructor is refused by `DietEncoder` too. If a bias
            layer has no `rows`, or an attention layer projects keys along the sequence. If neither
            or both of `encoder_outputs` and `memory` are given. If a sequence is longer than
            `max_sequence_length` or the memory.

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

    start_memory = start_decoder_memory

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        position_encoding: str | keras.layers.Layer = "diet_abs",
        rank: int | None = None,
        sharing: str | None = None,
        cross_attention_positions: bool = True,
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
        check_decoder_arguments(kwargs)
        super().__init__(
            num_layers,
            num_heads,
            intermediate_dim,
            position_encoding=position_encoding,
            rank=rank,
            sharing=sharing,
            max_sequence_length=max_sequence_length,
            dropout=dropout,
            activation=activation,
            layer_norm_epsilon=layer_norm_epsilon,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            normalize_first=normalize_first,
            attention_implementation=attention_implementation,
            encode_inputs=encode_inputs,
            cached_positions=cached_positions,
            activation_dropout=activation_dropout,
            max_distance=max_distance,
            recompute=recompute,
            **kwargs,
        )
        self.cross_attention_positions = validation.boolean(
            "cross_attention_positions", cross_attention_positions
        )
        # An empty `PositionEncoding` adds no positions.
        self.cross_encoding = self.encoding if cross_attention_positions else PositionEncoding()

    def build(self, inputs_shape: Shape, encoder_outputs_shape: Shape | None = None) -> None:
        """Create and build the sublayers. The default is a source of the width of the inputs."""
        hidden_dim: Any = inputs_shape[-1]
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: hidden_dim})
        source_shape = inputs_shape if encoder_outputs_shape is None else encoder_outputs_shape
        cross_sizes = self.sizes(hidden_dim)
        sizes = dataclasses.replace(cross_sizes, is_causal=True)
        arguments = (self.sharing, self.cached_positions, self.dtype_policy)
        self.input_encoding = self.make_input_encoding(sizes)
        self.position_biases = make_position_biases(self.encoding, sizes, *arguments)
        self.cross_position_biases = make_position_biases(
            self.cross_encoding, cross_sizes, *arguments, prefix="cross_"
        )
        self.transformer_layers = [
            make_decoder_block(self, i, sizes, cross_sizes) for i in range(self.num_layers)
        ]
        for block in self.transformer_layers:
            self.check_implementation(block.self_attention, self.position_biases)
            self.check_implementation(block.cross_attention, self.cross_position_biases)
        for bias in self.all_position_biases():
            check_bias(bias)
            if not bias.built:
                bias.build(inputs_shape)
        for block in self.transformer_layers:
            block.build(inputs_shape, source_shape)
        if self.input_encoding is not None:
            self.input_encoding.build(inputs_shape)
        self.build_output_layer_norm(inputs_shape)
        self.built = True

    def all_position_biases(self) -> list[keras.layers.Layer]:
        """Return the bias layers of all attention layers."""
        return [*self.position_biases, *self.cross_position_biases]

    def call(
        self,
        inputs: Tensor,
        encoder_outputs: Tensor | None = None,
        padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        memory: DecoderMemory | None = None,
        start_index: int | Tensor = 0,
    ) -> Any:
        masks = (padding_mask, encoder_padding_mask)
        check_decoder_call(self, inputs, encoder_outputs, *masks, memory, start_index)
        if not isinstance(start_index, int):
            start_index = ops.cast(start_index, "int32")
        with keras_masks_removed(inputs, encoder_outputs) as (mask, encoder_mask):
            if memory is not None:
                encoder_padding_mask = memory.padding_of_targets(ops.shape(inputs)[0])
            elif padding_mask is None:
                padding_mask = mask
            if encoder_padding_mask is None:
                encoder_padding_mask = encoder_mask
            padding_mask, encoder_padding_mask = map(as_bool, (padding_mask, encoder_padding_mask))
            terms = ScoreTerms(padding_mask=padding_mask, is_causal=True, start_index=start_index)
            cross_terms = ScoreTerms(padding_mask=encoder_padding_mask, start_index=start_index)
            x = inputs
            if self.input_encoding is not None:
                x = self.input_encoding(x, start_index=start_index)
            options = {"training": training, "return_attention_scores": return_attention_scores}
            of_blocks = arguments_of_blocks(
                self, x, encoder_outputs, memory, terms, cross_terms, options
            )
            others = []
            for block, arguments in zip(self.transformer_layers, of_blocks, strict=True):
                outputs = self.call_block(block, x, encoder_outputs, **arguments, **options)
                x, *others_of_block = outputs if isinstance(outputs, tuple) else (outputs,)
                others.append(others_of_block)
        if self.output_layer_norm is not None:
            x = self.output_layer_norm(x)
        return without_missing(x, *join_blocks(others, memory))

    def compute_output_spec(
        self,
        inputs: Tensor,
        encoder_outputs: Tensor | None = None,
        padding_mask: Tensor | None = None,
        encoder_padding_mask: Tensor | None = None,
        training: bool | None = None,
        return_attention_scores: bool = False,
        memory: DecoderMemory | None = None,
        start_index: int | Tensor = 0,
    ) -> Any:
        """Return the symbolic outputs."""
        masks = (padding_mask, encoder_padding_mask)
        check_decoder_call(self, inputs, encoder_outputs, *masks, memory, start_index)
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        scores: list[list[keras.KerasTensor]] = []
        if return_attention_scores:
            first = None if memory is None else memory.of_block(0)
            # Each layer needs separate tensors, because functional models identify them by object.
            pairs = [
                symbolic_scores(self, inputs, encoder_outputs, first)
                for _ in range(self.num_layers)
            ]
            scores = [list(of_layers) for of_layers in zip(*pairs, strict=True)]
        return without_missing(output, *scores, symbolic_copy(memory))

    def compute_output_shape(
        self, inputs_shape: Shape, encoder_outputs_shape: Shape | None = None
    ) -> Shape:
        """Return the shape of the output, which is the shape of the inputs."""
        return inputs_shape

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        return {**super().get_config(), "cross_attention_positions": self.cross_attention_positions}
