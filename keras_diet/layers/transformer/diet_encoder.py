"""A stack of Transformer encoder blocks with positions and segments in the attention scores."""

import itertools

import keras
from keras import ops

from keras_diet import validation
from keras_diet._keras import get_keras_mask, set_keras_mask
from keras_diet.layers.attention.attention_implementation import (
    ATTENTION_IMPLEMENTATIONS,
    BLOCK_SIZE,
    check_implementation,
    choose_implementation,
    has_features,
)
from keras_diet.layers.attention.score_features import concatenate_features, padding_features
from keras_diet.layers.initializers import fresh
from keras_diet.layers.position.input_encoding import make_input_encoding
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import (
    EncoderSizes,
    deserialize_position_encoding,
    make_biases,
    serialize_position_encoding,
)
from keras_diet.layers.position.segment_bias import SegmentBias
from keras_diet.layers.transformer.biased_transformer_encoder import BiasedTransformerEncoder
from keras_diet.layers.transformer.position_encodings import find_position_encoding

SEGMENT_ENCODINGS = ("per-head", "input", "none")


@keras.saving.register_keras_serializable(package="keras_diet")
class DietEncoder(keras.layers.Layer):
    """A stack of Transformer encoder blocks; where positions and segments go is an argument.

    In layer `l` and head `h`, the score of query `i` and key `j` is

        A_ij = (x_i W_Q) . (x_j W_K) / sqrt(d_h) + B_ij + E_S[S(i), S(j)]

    with `B` the positional scores and `E_S` the segment scores (equation 2 of the paper), which
    every layer and head has of its own. TUPE scales by `1 / sqrt(2 d_h)`; Shaw adds vectors to keys
    and values instead of `B`. `sharing` says which layers and heads have the same position
    parameters. A bias that all layers share is computed once in a forward pass.

    | `position_encoding` | what it does | `sharing`, default first |
    |---|---|---|
    | `"diet_abs"` | `B = P_Q P_K^T` (equation 1), of any `rank` | layer-wise, none, head-wise |
    | `"diet_rel"` | `B_ij = R_{i-j}` (equation 3) | none, head-wise, layer-wise |
    | `"t5"` | `B_ij = b[bucket(j-i)]` (Raffel et al.) | layer-wise, none, head-wise |
    | `"tupe_abs"` | untied absolute positions (Ke et al., TUPE-A) | layer-wise, none, head-wise |
    | `"tupe_rel"` | the same with T5's bins (TUPE-R) | layer-wise, none, head-wise |
    | `"shaw"` | vectors of distances up to 1024 in keys and values (Shaw et al.) | head-wise |
    | `"input"` | learned positions added to the inputs (Devlin et al., BERT) | |
    | `"diet_abs_input"` | `"diet_abs"` and `"input"`, for Figure 5 | layer-wise, none, head-wise |
    | `"sinusoidal"` | sines and cosines added to the inputs (Vaswani et al.) | |
    | `"none"` | no positions | |

    With `projection_dim` the attention is Linformer's, linear in the length; `"diet_abs"` is then
    DIET-ABS-LIN (equation 4).

    Args:
        num_layers: int. Number of blocks.
        num_heads: int. Number of attention heads; must divide the hidden size.
        intermediate_dim: int. Width of the feed-forward networks.
        position_encoding: A name from the table, one of your own (`register_position_encoding`), or
            a bias layer: any `keras.layers.Layer` that is called with the hidden states
            `(B, T, hidden_dim)` and returns scores broadcastable to `(B, num_heads, T, T)`. One
            that takes `(query, key, start_index)` may read nothing but their lengths: long
            sequences are attended to in blocks. Defaults to `"diet_abs"`.
        rank: int or `None`. Rank `d_p` of `P_Q P_K^T`, with `"diet_abs"` and `"diet_abs_input"`.
            Defaults to `None`, which means the head size.
        sharing: `"none"` (every layer and head has its own parameters), `"head-wise"` (one set
            for all heads of a layer), `"layer-wise"` (one set per head, shared by all layers),
            or `None` for the default in the table. A bias layer is shared by all layers, or copied
            by its configuration for each with `"none"`.
        segment_encoding: `"per-head"` (scores), `"input"` (added to the inputs), or `"none"`.
            Defaults to `"per-head"`.
        num_segments: int. Number of segments. Defaults to `2`.
        max_sequence_length: int. Number of positions, in tokens. Defaults to `512`.
        dropout: float. Dropout rate. Defaults to `0.0`.
        activation: Activation of the feed-forward networks. Defaults to `"gelu"`.
        layer_norm_epsilon: float. Defaults to `1e-12`, as in BERT.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.
        normalize_first: bool. Pre-norm blocks and a final layer normalization, instead of
            post-norm blocks. Defaults to `False`.
        projection_dim: int or `None`. Number of keys and values after Linformer's projection, with
            `"diet_abs"`, `"diet_abs_input"`, `"input"`, `"sinusoidal"` and `"none"`; segments are
            then at the input or left out. Defaults to `None`: no projection.
        attention_implementation: `"full"`, all scores of a layer at once and positional scores
            shared between layers; `"features"`, positions of low rank, segments and padding as
            features of one dot-product attention, for fused kernels; `"blockwise"`, the scores of
            256 queries at a time, in memory linear in the length; or `"auto"`, which chooses by
            length and backend (docs/performance.md). Outputs are the same; scores that are asked
            for are always computed in full. Defaults to `"auto"`.
        encode_inputs: bool. Whether positions and segments that belong to the inputs are added
            here. `False` where the model has added them before, as BERT does. Defaults to `True`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, T, hidden_dim)`, e.g. token embeddings.
        segment_ids: Integer tensor of shape `(B, T)`, in `[0, num_segments)`; `None` puts all
            tokens into segment 0.
        padding_mask: Boolean or 0/1 tensor of shape `(B, T)`, `True` for tokens and `False` for
            padding. Defaults to the Keras mask of the inputs, if they carry one.
        attention_mask: Boolean or 0/1 tensor of shape `(B, T, T)`; `True` lets a query attend. Not
            with `projection_dim`.
        training: bool. Whether dropout is active.
        use_causal_mask: bool. Whether a token attends to no later one. Defaults to `False`. Not
            with `projection_dim`.
        return_attention_scores: bool. Whether to return the attention probabilities as well.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`; with `return_attention_scores` a tuple of it and a
        list with the probabilities of each layer, `(B, num_heads, T, T)` or, with Linformer,
        `(B, num_heads, T, projection_dim)`.

    Raises:
        ValueError: For unknown names, sizes that are not positive, heads that do not divide the
            hidden size, `rank`, `sharing` or `projection_dim` where they have no meaning, an
            `attention_implementation` that the encoding does not have, segments
            per head or masks of query-key pairs with `projection_dim`, segment ids with
            `segment_encoding="none"`, and sequences longer than `max_sequence_length`.

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
        num_layers,
        num_heads,
        intermediate_dim,
        position_encoding="diet_abs",
        rank=None,
        sharing=None,
        segment_encoding="per-head",
        num_segments=2,
        max_sequence_length=512,
        dropout=0.0,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        normalize_first=False,
        projection_dim=None,
        attention_implementation="auto",
        encode_inputs=True,
        **kwargs,
    ):
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
                "Projected keys have no segments: with `projection_dim`, `segment_encoding` must "
                f"be 'input' or 'none'. Received: projection_dim={projection_dim}, "
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
            "attention_implementation", attention_implementation, ATTENTION_IMPLEMENTATIONS
        )
        self.encode_inputs = encode_inputs
        self.supports_masking = True

    def build(self, inputs_shape):
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
            segments_at_input = self.segment_encoding == "input"
            self.input_encoding = make_input_encoding(
                self._encoding,
                sizes,
                self.num_segments if segments_at_input else None,
                dtype=self.dtype_policy,
            )
        self.position_biases = make_biases(
            self._encoding, sizes, self.sharing, dtype=self.dtype_policy
        )
        self.segment_biases = self._make_segment_biases()
        self.transformer_layers = [self._make_block(i, sizes) for i in range(self.num_layers)]
        check_implementation(
            self.attention_implementation, self.position_biases, self._attention_layers()
        )
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

    def _attention_layers(self):
        return [block.self_attention for block in self.transformer_layers]

    def _make_segment_biases(self):
        if self.segment_encoding != "per-head":
            return []
        return [
            SegmentBias(
                self.num_heads,
                self.num_segments,
                dtype=self.dtype_policy,
                name=f"segment_bias_{i}",
            )
            for i in range(self.num_layers)
        ]

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
            self_attention=self._encoding.attention(sizes, name="self_attention", **arguments),
            name=f"transformer_layer_{index}",
            **arguments,
        )

    def call(
        self,
        inputs,
        segment_ids=None,
        padding_mask=None,
        attention_mask=None,
        training=None,
        use_causal_mask=False,
        return_attention_scores=False,
    ):
        self._check_call(inputs, segment_ids, attention_mask, use_causal_mask)
        keras_mask = get_keras_mask(inputs)
        padding_mask = keras_mask if padding_mask is None else padding_mask
        # It is in `padding_mask` now; attention would take it from the inputs as well.
        set_keras_mask(inputs, None)
        x = inputs
        if self.input_encoding is not None:
            x = self.input_encoding(x, segment_ids=segment_ids)
        if padding_mask is not None:
            padding_mask = ops.cast(padding_mask, "bool")
        implementation = "full"
        if not return_attention_scores:
            implementation = self._implementation(x, training)
        terms = self._score_terms(implementation, x, segment_ids, padding_mask, training)
        scores = []
        for block, block_terms in zip(self.transformer_layers, terms, strict=True):
            x = block(
                x,
                attention_mask=attention_mask,
                use_causal_mask=use_causal_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                **block_terms,
            )
            if return_attention_scores:
                x, layer_scores = x
                scores.append(layer_scores)
        set_keras_mask(inputs, keras_mask)
        if self.output_layer_norm is not None:
            x = self.output_layer_norm(x)
        return (x, scores) if return_attention_scores else x

    def _implementation(self, inputs, training):
        return choose_implementation(
            self.attention_implementation,
            self.position_biases,
            self._attention_layers(),
            length=inputs.shape[1],
            head_dim=inputs.shape[-1] // self.num_heads,
            # Of segments and of padding.
            num_features=self.num_segments + 1 if self.segment_biases else 1,
            dtype=self.compute_dtype,
            drops=training and self.dropout > 0.0,
        )

    def _score_terms(self, implementation, inputs, segment_ids, padding_mask, training):
        """Yield what positions, segments and padding add to the scores of each layer.

        As keyword arguments of a block, generated one by one, so that only one layer's terms are
        alive at inference.
        """
        if segment_ids is None:
            segment_ids = ops.zeros(ops.shape(inputs)[:2], dtype="int32")
        padding = None
        if padding_mask is not None:
            padding = padding_features(padding_mask, self.compute_dtype)
        positions = self._positions(implementation, inputs, training)
        for i, attention in enumerate(self._attention_layers()):
            segments = self.segment_biases[i] if self.segment_biases else None
            if not getattr(attention, "accepts_features", False):
                bias = next(positions)
                if segments is not None:
                    scores = segments(segment_ids)
                    bias = scores if bias is None else bias + scores
                yield {"attention_bias": bias, "padding_mask": padding_mask}
            else:
                segments = None if segments is None else segments.features(segment_ids)
                yield _terms(implementation, next(positions), segments, padding)

    def _positions(self, implementation, inputs, training):
        """Yield the positional term of each layer: scores, features, a layer, or `None`."""
        if not self.position_biases:
            yield from itertools.repeat(None)
        terms = (
            self._position_term(implementation, bias, inputs, training)
            for bias in self.position_biases
        )
        yield from itertools.repeat(next(terms)) if len(self.position_biases) == 1 else terms

    def _position_term(self, implementation, bias, inputs, training):
        if training and isinstance(bias, PositionBias):
            # A call drops them too, but neither features nor blocks call the layer.
            bias.drop_cached_scores()
        if implementation == "full" or getattr(bias, "has_cached_scores", False):
            return self._position_scores(bias, inputs)
        return bias.features(inputs) if has_features(bias) else bias

    def _position_scores(self, bias, inputs):
        # Only the length of `key` is read.
        key = () if self.projection_dim is None else (ops.zeros((1, self.projection_dim)),)
        scores = bias(inputs, *key)
        validation.score_bias("position_encoding", scores, self._scores_shape(inputs))
        # A layer of the user's own may compute in another dtype.
        return ops.cast(scores, self.compute_dtype)

    def _scores_shape(self, inputs):
        batch_size, length = inputs.shape[:2]
        key_length = length if self.projection_dim is None else self.projection_dim
        return (batch_size, self.num_heads, length, key_length)

    def _check_call(self, inputs, segment_ids, attention_mask, use_causal_mask):
        if self.projection_dim is not None and (attention_mask is not None or use_causal_mask):
            name = "use_causal_mask" if attention_mask is None else "attention_mask"
            raise ValueError(
                f"`{name}` has no meaning with projection_dim={self.projection_dim}: projected "
                "keys are no tokens. Exclude padding by `padding_mask`."
            )
        if segment_ids is not None and self.segment_encoding == "none":
            raise ValueError(
                "`segment_ids` would be ignored with segment_encoding='none'. Leave them out, or "
                "build the encoder with segment_encoding='per-head' or 'input'."
            )
        if segment_ids is not None and self.segment_encoding == "input" and not self.encode_inputs:
            raise ValueError(
                "`segment_ids` would be ignored with segment_encoding='input' and "
                "encode_inputs=False: they are in the inputs already. Leave them out."
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
        inputs,
        segment_ids=None,
        padding_mask=None,
        attention_mask=None,
        training=None,
        use_causal_mask=False,
        return_attention_scores=False,
    ):
        """Return the symbolic output, and the symbolic scores if they are asked for."""
        self._check_call(inputs, segment_ids, attention_mask, use_causal_mask)
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = self._scores_shape(inputs)
        # A tensor for each layer: a functional model tells its outputs apart by identity.
        scores = [
            keras.KerasTensor(shape, dtype=self.compute_dtype) for _ in range(self.num_layers)
        ]
        return output, scores

    def get_config(self):
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
            }
        )
        return config

    @classmethod
    def from_config(cls, config):
        """Build the layer from its configuration, a bias layer of the user's own included."""
        return super().from_config(deserialize_position_encoding(config))


def _terms(implementation, positions, segments, padding):
    """Return the arguments with which an attention layer adds these terms to its scores.

    Positions are the same for the whole batch: a bias. Segments and padding differ between its
    sequences but are of low rank: features, of which no `(B, H, T, S)` tensor is made. Padding
    alone is a bias of one row.
    """
    blocks = {"block_size": BLOCK_SIZE} if implementation == "blockwise" else {}
    if padding is not None and positions is None and segments is None:
        _, key_features = padding
        return {"attention_bias": ops.transpose(key_features, (0, 2, 3, 1)), **blocks}
    pairs = [pair for pair in (segments, padding) if pair is not None]
    if isinstance(positions, tuple):
        # Features of the positions.
        pairs, positions = [*pairs, positions], None
    features = concatenate_features(*pairs) if pairs else None
    return {"attention_bias": positions, "attention_features": features, **blocks}
