"""A stack of Transformer encoder blocks."""

import functools
from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet._compat import keras_masks_removed
from keras_diet.layers.attention.attention_hook import AttentionHook
from keras_diet.layers.attention.score_terms import (
    ScoreTerms,
    as_bool,
    check_masks,
    positions_in_documents,
)
from keras_diet.layers.configuration import takes_arguments_of
from keras_diet.layers.position.coordinate_bias import CoordinateBias
from keras_diet.layers.position.pair_bias import PairBias
from keras_diet.layers.position.segment_bias import SegmentBias
from keras_diet.layers.transformer.biased_transformer_encoder import BiasedTransformerEncoder
from keras_diet.layers.transformer.diet_stack import DietStack
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.layers.transformer.transformer_block import without_missing
from keras_diet.types import Shape, Tensor


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
    | `"t5_input"` | `"t5"` and `"input"`, as in MPNet (Song et al.) | layer-wise, none, head-wise |
    | `"alibi"`, `"sandwich"` | fixed functions of the distance (Press, Chi et al.) | layer-wise |
    | `"kerple"` | a learned penalty for the distance (Chi et al.) | layer-wise, none, head-wise |
    | `"fire"` | a small network of the distance (Li et al.) | none, layer-wise, head-wise |
    | `"log_cpb"` | a small network of its logarithm (Liu et al.) | none, layer-wise, head-wise |
    | `"rotary"` | angles that turn queries and keys (Su et al.) | |
    | `"transformer_xl"` | projected sinusoids of the distance (Dai et al., XLNet) | none |
    | `"query_relative"` | curves of the distance, mixed by queries | none, head-wise, layer-wise |
    | `"forgetting"` | gates of the tokens in between (Lin et al.) | none, head-wise, layer-wise |
    | `"deberta"`, `"deberta_v1"` | distances with queries and with keys (He et al.) | layer-wise |
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
            Defaults to `None`, which means the head size. Also the number of curves with
            `"query_relative"`, by default 16.
        sharing: `"none"` (each layer and head has its own parameters), `"head-wise"` (the heads of
            a layer share them), `"layer-wise"` (all layers share them, but not the heads), or
            `None` (the default in the table). With `"none"` a bias layer is copied for each layer.
            Defaults to `None`.
        segment_encoding: `"per-head"` (scores), `"input"` (added to the inputs), or `"none"`.
            Defaults to `"per-head"`.
        num_segments: int. Number of segments. Defaults to `2`.
        max_sequence_length: int. Number of positions, in tokens. Defaults to `512`.
        dropout: float. Dropout rate of the outputs of sublayers, and of attention probabilities.
            Defaults to `0.0`.
        activation: Activation of the feed-forward networks. Defaults to `"gelu"`.
        layer_norm_epsilon: float. Number that each layer normalization adds to the variance, so
            that it never divides by zero. Defaults to `1e-12`, as in BERT.
        kernel_initializer: Initializer of the kernels of dense layers and of attention. Defaults to
            `"glorot_uniform"`.
        bias_initializer: Initializer of their biases. Defaults to `"zeros"`.
        normalize_first: bool. Whether to use pre-norm blocks and a final layer normalization,
            instead of post-norm blocks. Defaults to `False`.
        projection_dim: int or `None`. Number of keys and values after Linformer's projection,
            which makes attention linear in the length. With `"diet_abs"` this is DIET-ABS-LIN
            (equation 4). Needs `"diet_abs"`, `"diet_abs_input"`, `"input"`, `"sinusoidal"` or
            `"none"`, and no segments per head. Defaults to `None`, which means no projection.
        attention_implementation: `"full"` (all scores of a layer at once), `"features"` (low-rank
            positions as columns of queries and keys), `"blockwise"` (scores of 256 queries at a
            time), `"indexed"` (a kernel computes a bias by distance, windows and documents where it
            needs them: FlexAttention on PyTorch, Pallas on JAX on one device; attention that it
            cannot compute is as with `"auto"`), or `"auto"` (one of the first three, by length and
            backend). Outputs are equal. Defaults to `"auto"`.
        encode_inputs: bool. Whether the encoder adds positions and segments to its inputs, if they
            belong there. Pass `False` if the model adds them before. Defaults to `True`.
        cached_positions: bool. Whether the encoder holds positional scores instead of position
            parameters. `cache_positions` sets it in the copies that it makes. A new encoder with
            `True` has scores of zero. Defaults to `False`.
        activation_dropout: float. Dropout rate of the hidden units of the feed-forward networks,
            after the activation. Defaults to `0.0`.
        max_distance: int or `None`. With `"shaw"`, `"t5"` and `"tupe_rel"`, tokens at this distance
            and further away share parameters, and with `"query_relative"` they have no score.
            `"deberta"` and `"deberta_v1"` share rows from there, and `"deberta"` needs more than
            129. `"log_cpb"` has an input near 1 there. Defaults to `None`: 1024 for Shaw and the
            curves, 512 for DeBERTa and `"log_cpb"`, 128 for T5's bins.
        recompute: What training computes again for the gradient, to save memory: `"none"`, the
            `"attention"` layers, or each `"block"`. Gradients are equal. Defaults to `"none"`.
        gated: bool. Whether the feed-forward networks are `W_2 (activation(W_1 x) * (W_g x))`.
            With `"gelu"` this is GeGLU, with `"silu"` SwiGLU. Defaults to `False`.
        use_bias: bool. Whether the dense layers of attention and of the feed-forward networks have
            biases. Defaults to `True`.
        normalization: `"layer_norm"`, `"layer_norm_without_beta"` or `"rms_norm"`, which is
            `gamma x / sqrt(mean(x^2) + epsilon)`. Defaults to `"layer_norm"`.
        normalize_inputs: bool. `False` leaves out the first normalization of the first block, with
            `normalize_first`, for inputs that are normalized already. Not with `share_layers`.
            Defaults to `True`.
        attention_dropout: float or `None`. Dropout rate of the attention probabilities. With `0`
            fused kernels compute attention in training too, which have no dropout. Defaults to
            `None`, which means `dropout`.
        head_dim: int or `None`. Size `d_h` of a head, which need not divide `hidden_dim`. Defaults
            to `None`: `hidden_dim / num_heads`.
        share_layers: bool. Whether all layers have the same weights, as in ALBERT. Position and
            segment biases are not shared. Defaults to `False`.
        attention_windows: int, tuple or `None`. A token attends to tokens at smaller distances than
            its window. A tuple has a window or `None` for each layer, and repeats along the layers:
            ModernBERT has `(None, 65, 65)`. A window is a mask and saves neither memory nor time,
            but for `"indexed"`, which leaves out blocks. Not with `projection_dim`. Defaults to
            `None`.
        attention_scale: float or `None`. Factor of the products of queries and keys, such as `1.0`
            for T5. Defaults to `None`: `1 / sqrt(d_h)`, or the factor of the encoding.
        max_wavelength: float, tuple or `None`. Base of the wavelengths with `"rotary"`. A tuple has
            a base for each layer, and repeats. Defaults to `None`: 10,000.
        rope_scaling: dict, tuple or `None`. Slower angles of `"rotary"` for longer texts, as in
            `RotaryMultiHeadAttention`. A tuple has a dictionary or `None` for each layer, and
            repeats. Defaults to `None`: no scaling.
        initial_score_stddev: float or `None`. Standard deviation of `B` before training, with
            `"diet_abs"`, `"diet_abs_input"` and `"diet_rel"`. Small models use word order earlier
            with 1, if the training has sequences of the full length and, with `"diet_abs"`, if
            `rank` is at least `max_sequence_length`. Defaults to `None`, which means the
            initializer of the bias layer.
        pair_dim: int or `None`. Number of features of each pair of tokens, from which each layer
            computes scores with a `PairBias`. Needs `pairs` in calls. Not with `projection_dim`.
            Defaults to `None`, which means no such scores.
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
        document_ids: Integer tensor of shape `(B, T)`, for several documents in a sequence, one
            after another. A token attends only to the tokens with its id, and positions begin again
            in each document. So outputs equal those of separate sequences. Padding has the id 0.
            Not with `projection_dim`. Defaults to `None`.
        pairs: Tensor of shape `(B, T, T, pair_dim)`, features of query `i` and key `j`, if the
            encoder has a `pair_dim`. Masks hold for them. Defaults to `None`.
        coordinates: Integer tensor of shape `(B, T, n)` or `(1, T, n)`, if the position encoding is
            a `CoordinateBias` for `n` axes. Defaults to `None`.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`. With `return_attention_scores`, a tuple of the tensor
        and a list with the probabilities of each layer, `(B, num_heads, T, T or projection_dim)`.

    Raises:
        ValueError: If a name is unknown; a size is not positive; the heads do not divide the hidden
            size; the encoding does not support an argument; `segment_ids` would be ignored; a mask
            has another shape or other values than 0 and 1; the tokens of a document are not next to
            each other; or a sequence is longer than `max_sequence_length`.

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

    @takes_arguments_of(DietStack)
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
        *,
        projection_dim: int | None = None,
        share_layers: bool = False,
        pair_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_layers, num_heads, intermediate_dim, position_encoding, rank, sharing, **kwargs
        )
        self.projection_dim = validation.optional_positive_int("projection_dim", projection_dim)
        self.share_layers = share_layers
        of_layers = (self.max_wavelength, self.rope_scaling)
        varies = any(isinstance(each, list) for each in of_layers)
        if share_layers and (varies or not self.normalize_inputs):
            raise ValueError(
                "With `share_layers=True`, `max_wavelength` and `rope_scaling` must be one value "
                "and `normalize_inputs` must be `True`, because all layers are the same. Received: "
                f"max_wavelength={self.max_wavelength}, rope_scaling={self.rope_scaling}, "
                f"normalize_inputs={self.normalize_inputs}"
            )
        # Not every position encoding works with projected keys.
        find_position_encoding(position_encoding, projection_dim=projection_dim)
        self.pair_dim = validation.optional_positive_int("pair_dim", pair_dim)
        self.segment_encoding = validation.choice(
            "segment_encoding", segment_encoding, ("per-head", "input", "none")
        )
        self.num_segments = validation.positive_int("num_segments", num_segments)
        of_tokens = (pair_dim, self.attention_windows, segment_encoding == "per-head" or None)
        if projection_dim is not None and any(each is not None for each in of_tokens):
            raise ValueError(
                "`projection_dim` mixes all tokens in a key, so it needs `pair_dim=None`, "
                "`attention_windows=None` and segment_encoding='input' or 'none'. Received: "
                f"projection_dim={projection_dim}, pair_dim={pair_dim}, attention_windows="
                f"{self.attention_windows}, segment_encoding={segment_encoding!r}."
            )

    def build(self, inputs_shape: Shape) -> None:
        """Create and build the sublayers."""
        arguments = self.arguments_of_encoding(self.encoding, inputs_shape[-1])
        num_segments = self.num_segments if self.segment_encoding == "input" else None
        self.build_input_encoding(inputs_shape, num_segments)
        self.position_biases = self.make_position_biases(self.encoding, arguments)
        self.segment_biases = []
        if self.segment_encoding == "per-head":
            sizes = (self.num_heads, self.num_segments)
            self.segment_biases = [
                SegmentBias(*sizes, dtype=self.dtype_policy, name=f"segment_bias_{i}")
                for i in range(self.num_layers)
            ]
        blocks = [
            BiasedTransformerEncoder(
                **self.arguments_of_block(i),
                self_attention=self.make_attention(
                    self.encoding, arguments, self.position_biases, "self_attention", i
                ),
            )
            for i in range(1 if self.share_layers else self.num_layers)
        ]
        self.transformer_layers = blocks * self.num_layers if self.share_layers else blocks
        for layer in (*self.position_biases, *self.transformer_layers):
            if not layer.built:
                layer.build(inputs_shape)
        for layer in self.segment_biases:
            layer.build()
        self.pair_biases: list[Any] = []
        for i in range(0 if self.pair_dim is None else self.num_layers):
            pair_bias = PairBias(self.num_heads, dtype=self.dtype_policy, name=f"pair_bias_{i}")
            pair_bias.build((None, None, None, self.pair_dim))
            self.pair_biases.append(pair_bias)
        self.build_output_layer_norm(inputs_shape)
        self.finish_build()

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
        document_ids: Tensor | None = None,
        pairs: Tensor | None = None,
        coordinates: Tensor | None = None,
    ) -> Any:
        self._check_call(inputs, segment_ids, padding_mask, attention_mask, document_ids)
        self._check_places(inputs, pairs, coordinates)
        options: dict[str, Any] = {
            "training": training,
            "return_attention_scores": return_attention_scores,
            "attention_hook": attention_hook,
        }
        # `padding_mask` replaces the Keras mask, which attention would apply too.
        with keras_masks_removed(inputs) as (keras_mask,):
            x = inputs
            terms = ScoreTerms(
                padding_mask=as_bool(keras_mask if padding_mask is None else padding_mask),
                attention_mask=as_bool(attention_mask),
                is_causal=use_causal_mask,
                document_ids=document_ids,
            )
            positions = None if document_ids is None else positions_in_documents(document_ids)
            if self.input_encoding is not None:
                at_input = self.segment_encoding == "input"
                x = self.input_encoding(
                    x, segment_ids=segment_ids if at_input else None, positions=positions
                )
            if segment_ids is None and self.segment_biases:
                segment_ids = ops.zeros(ops.shape(inputs)[:2], dtype="int32")
            segments = [
                functools.partial(bias.features, segment_ids) for bias in self.segment_biases
            ]
            pair_scores = [functools.partial(bias, pairs) for bias in self.pair_biases]
            # Only the length of this key is read.
            key = None if self.projection_dim is None else ops.zeros((1, self.projection_dim))
            of_all = ("self_attention", self.position_biases, segments, pair_scores, key, positions)
            of_layers = self.terms_of_layers(x, terms, *of_all, coordinates, **options)
            of_blocks = ({"score_terms": terms, **options} for terms in of_layers)
            x, scores = self.call_blocks(x, of_blocks)
        return without_missing(x, *scores)

    def _check_call(self, inputs, segment_ids, padding_mask, attention_mask, document_ids):
        """Raise a `ValueError` for arguments that would be ignored or give wrong outputs."""
        batch_size, length = inputs.shape[:2]
        reads_segments = {"per-head": True, "input": self.encode_inputs, "none": False}
        if segment_ids is not None and not reads_segments[self.segment_encoding]:
            raise ValueError(
                "`segment_ids` would be ignored. Received: segment_ids with segment_encoding="
                f"{self.segment_encoding!r} and encode_inputs={self.encode_inputs}. Leave them out."
            )
        if segment_ids is not None:
            validation.shape_of_ids("segment_ids", segment_ids, (batch_size, length))
        if document_ids is not None:
            validation.shape_of_ids("document_ids", document_ids, (batch_size, length))
            validation.document_ids("`document_ids`", document_ids)
        if document_ids is not None and self.projection_dim is not None:
            raise ValueError(
                "`document_ids` need `projection_dim=None`: a projected key mixes all tokens. "
                f"Received: document_ids with projection_dim={self.projection_dim}. Leave them out."
            )
        validation.length_within(length, self.max_sequence_length, "max_sequence_length")
        scores_shape = (batch_size, self.num_heads, length, length)
        check_masks(scores_shape, attention_mask, padding_mask=padding_mask)

    def _check_places(self, inputs, pairs, coordinates):
        """Raise a `ValueError` for pairs or coordinates that are missing, or that nobody reads."""
        batch_size, length = inputs.shape[:2]
        reads_places = any(isinstance(each, CoordinateBias) for each in self.position_biases)
        of_pairs, of_places = (
            (batch_size, length, length, self.pair_dim),
            ((batch_size, 1), length, None),
        )
        rules = (
            ("pairs", pairs, self.pair_dim is not None, of_pairs, "length, pair_dim", "`pair_dim`"),
            ("coordinates", coordinates, reads_places, of_places, "num_axes", "`CoordinateBias`"),
        )
        for name, tensor, is_read, sizes, axes, reader in rules:
            shape = None if tensor is None else tuple(tensor.shape)
            if (shape is not None) != is_read or (
                is_read and not validation.sizes_fit(shape, sizes)
            ):
                raise ValueError(
                    f"`{name}` must have the shape (batch_size, length, {axes}) if the encoder has "
                    f"a {reader}, and must be left out otherwise. Received: shape={shape} for "
                    f"inputs of shape {tuple(inputs.shape)}, pair_dim={self.pair_dim}, "
                    f"position_encoding={self.position_encoding}."
                )

    def output_spec(
        self, inputs: Tensor, return_attention_scores: bool = False, **kwargs: Any
    ) -> Any:
        """Return the symbolic output, and the symbolic scores if the caller asks for them."""
        output = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return output
        # Each layer has separate scores, because functional models identify tensors by object.
        of_blocks = [
            block.compute_output_spec(inputs, return_attention_scores=True)
            for block in self.transformer_layers
        ]
        return output, [scores for _, scores in of_blocks]
