"""A stack of Transformer encoder blocks."""

from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.score_terms import ScoreTerms, as_bool
from keras_diet.layers.transformer.diet_stack import DietStack
from keras_diet.layers.transformer.encoder_checks import (
    check_call,
    check_encoder_arguments,
    check_mask_shapes,
)
from keras_diet.layers.transformer.encoder_outputs import symbolic_outputs
from keras_diet.layers.transformer.stack_layers import (
    make_encoder_block,
    make_position_biases,
    make_segment_biases,
)
from keras_diet.layers.transformer.stack_terms import terms_of_layers
from keras_diet.types import Activation, Config, Initializer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietEncoder(DietStack):
    """A stack of Transformer encoder blocks with a choice of position and segment encodings.

    In each layer and head, the score of query `i` and key `j` is

        A_ij = (x_i W_Q) . (x_j W_K) / sqrt(d_h) + B_ij + E_S[S(i), S(j)]

    with positional scores `B` and segment scores `E_S` (equation 2 of the paper). TUPE scales by
    `1 / sqrt(2 d_h)`. Shaw adds vectors to keys and values instead of `B`. `sharing` says which
    layers and heads share position parameters. A bias shared by all layers is computed once.

    | `position_encoding` | positions | `sharing`, default first |
    |---|---|---|
    | `"diet_abs"` | `B = P_Q P_K^T` (equation 1), of any `rank` | layer-wise, none, head-wise |
    | `"diet_rel"` | `B_ij = R_{i-j}` (equation 3) | none, head-wise, layer-wise |
    | `"t5"` | `B_ij = b[bucket(j-i)]` (Raffel et al.) | layer-wise, none, head-wise |
    | `"tupe_abs"`, `"tupe_rel"` | untied positions (Ke et al.) | layer-wise, none, head-wise |
    | `"shaw"` | vectors of distances in keys and values (Shaw et al.) | head-wise |
    | `"input"`, `"sinusoidal"` | added to the inputs, learned (BERT) or fixed (Vaswani et al.) | |
    | `"diet_abs_input"` | `"diet_abs"` and `"input"`, for Figure 5 | layer-wise, none, head-wise |
    | `"alibi"`, `"sandwich"` | fixed functions of the distance (Press, Chi et al.) | layer-wise |
    | `"kerple"` | a learned penalty for the distance (Chi et al.) | layer-wise, none, head-wise |
    | `"fire"` | a small network of the distance (Li et al.) | none, layer-wise, head-wise |
    | `"rotary"` | angles that turn queries and keys (Su et al.) | |
    | `"transformer_xl"` | projected sinusoids of the distance (Dai et al., XLNet) | none |
    | `"none"` | no positions | |

    Args:
        num_layers: int. Number of blocks.
        num_heads: int. Number of attention heads. It must divide the hidden size.
        intermediate_dim: int. Width of the feed-forward networks.
        position_encoding: A name from the table, a name from `register_position_encoding`, or a
            bias layer. A bias layer is a `keras.layers.Layer`. `layer(query)` or
            `layer(query, key)` returns scores broadcastable to `(B, num_heads, T, T)`. It may have
            the methods `features(query, key, start_index)`, for low-rank scores, and
            `rows(query, key, start_index)`, for the scores of a block of queries. Without these
            methods the scores of a long sequence are computed at once. Defaults to `"diet_abs"`.
        rank: int or `None`. Rank `d_p` of `P_Q P_K^T`, with `"diet_abs"` and `"diet_abs_input"`.
            Defaults to `None`, which means the head size.
        sharing: `"none"` (each layer and head has its own parameters), `"head-wise"` (the heads of
            a layer share them), `"layer-wise"` (all layers share them, but not the heads), or
            `None` (the default in the table). With `"none"` a bias layer is copied for each layer.
            Defaults to `None`.
        segment_encoding: `"per-head"` (scores), `"input"` (added to the inputs), or `"none"`.
            Defaults to `"per-head"`.
        num_segments: int. Number of segments. Defaults to `2`.
        max_sequence_length: int. Number of positions, in tokens. Defaults to `512`.
        dropout: float. Dropout rate of attention probabilities and of the outputs of sublayers.
            Defaults to `0.0`.
        activation: Activation of the feed-forward networks. Defaults to `"gelu"`.
        layer_norm_epsilon: float. Defaults to `1e-12`, as in BERT.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.
        normalize_first: bool. Whether to use pre-norm blocks and a final layer normalization,
            instead of post-norm blocks. Defaults to `False`.
        projection_dim: int or `None`. Number of keys and values after Linformer's projection,
            which makes attention linear in the length. With `"diet_abs"` this is DIET-ABS-LIN
            (equation 4). Needs `"diet_abs"`, `"diet_abs_input"`, `"input"`, `"sinusoidal"` or
            `"none"`, and no segments per head. Defaults to `None`, which means no projection.
        attention_implementation: `"full"` (all scores of a layer at once), `"features"` (low-rank
            positions as columns of queries and keys), `"blockwise"` (scores of 256 queries at a
            time), or `"auto"` (by length and backend). docs/performance.md compares them. Outputs
            are equal. Defaults to `"auto"`.
        encode_inputs: bool. Whether the encoder adds positions and segments to its inputs, if they
            belong there. Pass `False` if the model adds them before. Defaults to `True`.
        cached_positions: bool. Whether the encoder holds positional scores instead of position
            parameters. `cache_positions` sets it in the copies that it makes. A new encoder with
            `True` has scores of zero. Defaults to `False`.
        activation_dropout: float. Dropout rate of the hidden units of the feed-forward networks,
            after the activation. Defaults to `0.0`.
        max_distance: int or `None`. With `"shaw"`, `"t5"` and `"tupe_rel"`, tokens at this distance
            and further away share parameters. Defaults to `None`: 1024 for Shaw, 128 for T5's bins.
        recompute: What training computes again for the gradient, to save memory: `"none"`, the
            `"attention"` layers, or each `"block"`. Gradients are equal. Defaults to `"none"`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, T, hidden_dim)`, e.g. token embeddings.
        segment_ids: Integer tensor of shape `(B, T)`, in `[0, num_segments)`. Defaults to `None`,
            which puts all tokens into segment 0.
        padding_mask: Boolean or 0/1 tensor of shape `(B, T)`, `False` for padding. Defaults to the
            Keras mask of the inputs, if they carry one.
        attention_mask: Boolean or 0/1 tensor of shape `(B, T, T)`. `True` lets a query attend to a
            key. Not with `projection_dim`.
        training: bool. Whether dropout is active.
        use_causal_mask: bool. Whether a token attends only to itself and earlier tokens. Not with
            `projection_dim`. Defaults to `False`.
        return_attention_scores: bool. Whether to return the probabilities too.
        attention_hook: `AttentionHook` or `None`. Runs in every layer after the layer's own hook.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`. With `return_attention_scores`, a tuple of the tensor
        and a list with the probabilities of each layer, `(B, num_heads, T, T or projection_dim)`.

    Raises:
        ValueError: If a name is unknown; a size is not positive; the heads do not divide the hidden
            size; the encoding does not support an argument; `segment_ids` would be ignored; or a
            sequence is longer than `max_sequence_length`.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    encoder = keras_diet.layers.DietEncoder(
        num_layers=2, num_heads=4, intermediate_dim=64, rank=16, max_sequence_length=64
    )
    y = encoder(x, padding_mask=np.ones((2, 10), dtype="bool"))
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/)
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        position_encoding: str | keras.layers.Layer = "diet_abs",
        rank: int | None = None,
        sharing: str | None = None,
        segment_encoding: str = "per-head",
        num_segments: int = 2,
        max_sequence_length: int = 512,
        dropout: float = 0.0,
        activation: Activation = "gelu",
        layer_norm_epsilon: float = 1e-12,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        normalize_first: bool = False,
        projection_dim: int | None = None,
        attention_implementation: str = "auto",
        encode_inputs: bool = True,
        cached_positions: bool = False,
        activation_dropout: float = 0.0,
        max_distance: int | None = None,
        recompute: str = "none",
        **kwargs: Any,
    ) -> None:
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
        check_encoder_arguments(position_encoding, segment_encoding, projection_dim)
        self.projection_dim = projection_dim
        self.segment_encoding = segment_encoding
        self.num_segments = validation.positive_int("num_segments", num_segments)

    def build(self, inputs_shape: Shape) -> None:
        """Create and build the sublayers."""
        hidden_dim: Any = inputs_shape[-1]
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: hidden_dim})
        sizes = self.sizes(hidden_dim)
        num_segments = self.num_segments if self.segment_encoding == "input" else None
        self.input_encoding = self.make_input_encoding(sizes, num_segments)
        self.position_biases = make_position_biases(
            self.encoding, sizes, self.sharing, self.cached_positions, self.dtype_policy
        )
        self.segment_biases = []
        if self.segment_encoding == "per-head":
            self.segment_biases = make_segment_biases(
                self.num_layers, self.num_heads, self.num_segments, self.dtype_policy
            )
        self.transformer_layers = [
            make_encoder_block(self, i, sizes) for i in range(self.num_layers)
        ]
        for attention in self._attentions():
            self.check_implementation(attention, self.position_biases)
        for layer in (*self.position_biases, *self.transformer_layers):
            if not layer.built:
                layer.build(inputs_shape)
        for layer in self.segment_biases:
            layer.build()
        if self.input_encoding is not None:
            self.input_encoding.build(inputs_shape)
        self.build_output_layer_norm(inputs_shape)
        self.built = True

    def call(
        self,
        inputs: Tensor,
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        training: bool | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        attention_hook: AttentionHook | None = None,
    ) -> Any:
        check_call(self, inputs, segment_ids, attention_mask, use_causal_mask)
        check_mask_shapes(self, inputs, attention_mask, padding_mask)
        keras_mask = get_keras_mask(inputs)
        padding_mask = keras_mask if padding_mask is None else padding_mask
        # `padding_mask` replaces the Keras mask, which attention would apply too.
        set_keras_mask(inputs, None)
        x = inputs
        if self.input_encoding is not None:
            at_input = self.segment_encoding == "input"
            x = self.input_encoding(x, segment_ids=segment_ids if at_input else None)
        terms = ScoreTerms(
            padding_mask=as_bool(padding_mask),
            attention_mask=as_bool(attention_mask),
            is_causal=validation.boolean("use_causal_mask", use_causal_mask),
        )
        # Only the length of this key is read.
        projected = None if self.projection_dim is None else ops.zeros((1, self.projection_dim))
        options: dict[str, Any] = {
            "training": training,
            "return_attention_scores": return_attention_scores,
            "attention_hook": attention_hook,
        }
        of_layers = terms_of_layers(
            x,
            terms,
            self._attentions(),
            self.position_biases,
            self.segment_biases,
            segment_ids,
            key=projected,
            implementation=self.attention_implementation,
            **options,
        )
        scores = []
        for block, (layer_terms, plan) in zip(self.transformer_layers, of_layers, strict=True):
            x = self.call_block(block, x, score_terms=layer_terms, attention_plan=plan, **options)
            if return_attention_scores:
                x, layer_scores = x
                scores.append(layer_scores)
        set_keras_mask(inputs, keras_mask)
        if self.output_layer_norm is not None:
            x = self.output_layer_norm(x)
        return (x, scores) if return_attention_scores else x

    def _attentions(self):
        return [block.self_attention for block in self.transformer_layers]

    def compute_output_spec(
        self,
        inputs: Tensor,
        segment_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Return the symbolic output, and the symbolic scores if the caller asks for them."""
        check_call(self, inputs, segment_ids, attention_mask, use_causal_mask)
        return symbolic_outputs(self, inputs, return_attention_scores)

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        names = ("segment_encoding", "num_segments", "projection_dim")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
