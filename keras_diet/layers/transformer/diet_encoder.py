"""A stack of Transformer encoder blocks."""

from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet._keras import get_keras_mask, set_keras_mask
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.cases import check_implementation
from keras_diet.layers.attention.plan import IMPLEMENTATIONS
from keras_diet.layers.attention.score_terms import ScoreTerms, as_bool
from keras_diet.layers.initializers import fresh
from keras_diet.layers.position.input_encoding import make_input_encoding
from keras_diet.layers.position.position_encoding import (
    EncoderSizes,
    deserialize_position_encoding,
    serialize_position_encoding,
)
from keras_diet.layers.transformer.biased_transformer_encoder import BiasedTransformerEncoder
from keras_diet.layers.transformer.cached_weights import changes_for_cached_positions, copy_weights
from keras_diet.layers.transformer.encoder_layers import (
    make_attention,
    make_position_biases,
    make_segment_biases,
)
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.layers.transformer.stack_terms import terms_of_layers
from keras_diet.types import Activation, Config, Initializer, Shape, Tensor

SEGMENT_ENCODINGS = ("per-head", "input", "none")


@keras.saving.register_keras_serializable(package="keras_diet")
class DietEncoder(keras.layers.Layer):
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
    | `"tupe_abs"` | untied absolute positions (Ke et al., TUPE-A) | layer-wise, none, head-wise |
    | `"tupe_rel"` | `"tupe_abs"` and T5's bins (TUPE-R) | layer-wise, none, head-wise |
    | `"shaw"` | vectors of distances up to 1024 in keys and values (Shaw et al.) | head-wise |
    | `"input"` | learned positions added to the inputs (Devlin et al., BERT) | |
    | `"diet_abs_input"` | `"diet_abs"` and `"input"`, for Figure 5 | layer-wise, none, head-wise |
    | `"sinusoidal"` | sines and cosines added to the inputs (Vaswani et al.) | |
    | `"alibi"` | `B_ij` is the distance times a fixed slope (Press et al.) | layer-wise |
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
        dropout: float. Dropout rate. Defaults to `0.0`.
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
            parameters, as in the copies that `cache_positions` makes. Defaults to `False`.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._encoding = find_position_encoding(position_encoding, rank, sharing, projection_dim)
        self.num_layers = validation.positive_int("num_layers", num_layers)
        self.num_heads = validation.positive_int("num_heads", num_heads)
        self.intermediate_dim = validation.positive_int("intermediate_dim", intermediate_dim)
        self.position_encoding = position_encoding
        self.rank = rank
        self.sharing = sharing
        self.segment_encoding = validation.choice(
            "segment_encoding", segment_encoding, SEGMENT_ENCODINGS
        )
        if projection_dim is not None and segment_encoding == "per-head":
            raise ValueError(
                "With `projection_dim`, `segment_encoding` must be 'input' or 'none', because a "
                f"projected key has no segment. Received: projection_dim={projection_dim}, "
                f"segment_encoding={segment_encoding!r}"
            )
        self.num_segments = validation.positive_int("num_segments", num_segments)
        self.max_sequence_length = validation.positive_int(
            "max_sequence_length", max_sequence_length
        )
        self.dropout = dropout
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.normalize_first = normalize_first
        self.projection_dim = projection_dim
        self.attention_implementation = validation.choice(
            "attention_implementation", attention_implementation, IMPLEMENTATIONS
        )
        self.encode_inputs = encode_inputs
        self.cached_positions = cached_positions
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        """Create and build the sublayers."""
        sizes = EncoderSizes(
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden_dim=inputs_shape[-1],
            max_length=self.max_sequence_length,
            rank=self.rank,
            projection_dim=self.projection_dim,
        )
        self.input_encoding = None
        if self.encode_inputs:
            num_segments = self.num_segments if self.segment_encoding == "input" else None
            self.input_encoding = make_input_encoding(
                self._encoding, sizes, num_segments, dtype=self.dtype_policy
            )
        self.position_biases = make_position_biases(
            self._encoding, sizes, self.sharing, self.cached_positions, self.dtype_policy
        )
        self.segment_biases = []
        if self.segment_encoding == "per-head":
            self.segment_biases = make_segment_biases(
                self.num_layers, self.num_heads, self.num_segments, self.dtype_policy
            )
        self.transformer_layers = [self._make_block(i, sizes) for i in range(self.num_layers)]
        self._check_implementation(inputs_shape)
        for layer in (*self.position_biases, *self.transformer_layers):
            if not layer.built:
                layer.build(inputs_shape)
        for layer in self.segment_biases:
            layer.build()
        if self.input_encoding is not None:
            self.input_encoding.build(inputs_shape)
        self.output_layer_norm = None
        if self.normalize_first:
            self.output_layer_norm = keras.layers.LayerNormalization(
                epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="output_layer_norm"
            )
            self.output_layer_norm.build(inputs_shape)
        self.built = True

    def _make_block(self, index, sizes):
        arguments = {
            "dropout": self.dropout,
            "kernel_initializer": fresh(self.kernel_initializer),
            "bias_initializer": fresh(self.bias_initializer),
            "dtype": self.dtype_policy,
        }
        return BiasedTransformerEncoder(
            self.intermediate_dim,
            self.num_heads,
            activation=self.activation,
            layer_norm_epsilon=self.layer_norm_epsilon,
            normalize_first=self.normalize_first,
            self_attention=make_attention(
                self._encoding, sizes, name="self_attention", **arguments
            ),
            name=f"transformer_layer_{index}",
            **arguments,
        )

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
        self._check_call(inputs, segment_ids, attention_mask, use_causal_mask)
        keras_mask = get_keras_mask(inputs)
        padding_mask = keras_mask if padding_mask is None else padding_mask
        # `padding_mask` replaces the Keras mask, which attention would apply too.
        set_keras_mask(inputs, None)
        x = inputs
        if self.input_encoding is not None:
            x = self.input_encoding(x, segment_ids=segment_ids)
        terms = ScoreTerms(
            padding_mask=as_bool(padding_mask),
            attention_mask=as_bool(attention_mask),
            is_causal=bool(use_causal_mask),
        )
        options = {
            "training": training,
            "return_attention_scores": return_attention_scores,
            "attention_hook": attention_hook,
        }
        terms = terms_of_layers(
            x,
            terms,
            self._attentions(),
            self.position_biases,
            self.segment_biases,
            segment_ids,
            projection_dim=self.projection_dim,
            implementation=self.attention_implementation,
            **options,
        )
        scores = []
        for block, (layer_terms, plan) in zip(self.transformer_layers, terms, strict=True):
            x = block(x, score_terms=layer_terms, attention_plan=plan, **options)
            if return_attention_scores:
                x, layer_scores = x
                scores.append(layer_scores)
        set_keras_mask(inputs, keras_mask)
        if self.output_layer_norm is not None:
            x = self.output_layer_norm(x)
        return (x, scores) if return_attention_scores else x

    def _attentions(self):
        return [block.self_attention for block in self.transformer_layers]

    def _check_implementation(self, inputs_shape):
        """Raise a `ValueError` before the first call if the layers lack the implementation."""
        bias = self.position_biases[0] if self.position_biases else None
        for attention in self._attentions():
            check_implementation(self.attention_implementation, attention, bias)

    def _check_call(self, inputs, segment_ids, attention_mask, use_causal_mask):
        if self.projection_dim is not None and (attention_mask is not None or use_causal_mask):
            name = "use_causal_mask" if attention_mask is None else "attention_mask"
            raise ValueError(
                f"`{name}` is not supported with `projection_dim`, because a projected key mixes "
                f"all tokens. Received: {name} with projection_dim={self.projection_dim}. Use "
                "`padding_mask` to exclude padding."
            )
        if segment_ids is not None and self.segment_encoding == "none":
            raise ValueError(
                "`segment_ids` would be ignored. Received: segment_ids with segment_encoding="
                "'none'. Leave them out, or use segment_encoding='per-head' or 'input'."
            )
        if segment_ids is not None and self.segment_encoding == "input" and not self.encode_inputs:
            raise ValueError(
                "`segment_ids` would be ignored. Received: segment_ids with segment_encoding="
                "'input' and encode_inputs=False. Leave them out: the inputs hold the segments."
            )
        if segment_ids is not None and any(
            None not in sizes and len(set(sizes)) > 1
            for sizes in zip(segment_ids.shape, inputs.shape[:2], strict=False)
        ):
            raise ValueError(
                "`segment_ids` must have the shape (batch_size, length) of the inputs. Received: "
                f"segment_ids.shape={tuple(segment_ids.shape)}, inputs.shape={tuple(inputs.shape)}"
            )
        validation.length_within(
            ops.shape(inputs)[1], self.max_sequence_length, "max_sequence_length"
        )

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
        self._check_call(inputs, segment_ids, attention_mask, use_causal_mask)
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        batch_size, length = inputs.shape[:2]
        shape = (batch_size, self.num_heads, length, self.projection_dim or length)
        # Each layer needs a separate tensor, because functional models identify outputs by object.
        scores = [
            keras.KerasTensor(shape, dtype=self.compute_dtype) for _ in range(self.num_layers)
        ]
        return output, scores

    def with_cached_positions(self) -> "DietEncoder":
        """Return a copy for inference that holds positional scores. See `cache_positions`."""
        if not self.built or not self.position_biases or self.cached_positions:
            raise ValueError(
                "Only a built encoder with a position bias and without cached positions can cache "
                f"them. Received: built={self.built}, cached_positions={self.cached_positions}, "
                f"position_encoding={self.position_encoding!r}. Build the encoder first."
            )
        changes = changes_for_cached_positions(self.attention_implementation)
        copy = type(self).from_config({**self.get_config(), **changes})
        copy.build_from_config(self.get_build_config())
        copy_weights(self, copy, self.position_biases, copy.position_biases)
        return copy

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update(
            {
                "num_layers": self.num_layers,
                "num_heads": self.num_heads,
                "intermediate_dim": self.intermediate_dim,
                "position_encoding": serialize_position_encoding(self.position_encoding),
                "rank": self.rank,
                "sharing": self.sharing,
                "segment_encoding": self.segment_encoding,
                "num_segments": self.num_segments,
                "max_sequence_length": self.max_sequence_length,
                "dropout": self.dropout,
                "activation": keras.activations.serialize(self.activation),
                "layer_norm_epsilon": self.layer_norm_epsilon,
                "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
                "bias_initializer": keras.initializers.serialize(self.bias_initializer),
                "normalize_first": self.normalize_first,
                "projection_dim": self.projection_dim,
                "attention_implementation": self.attention_implementation,
                "encode_inputs": self.encode_inputs,
                "cached_positions": self.cached_positions,
            }
        )
        return config

    @classmethod
    def from_config(cls, config: Config) -> "DietEncoder":
        """Make the layer from its configuration, which may hold a custom bias layer."""
        return super().from_config(deserialize_position_encoding(config))
