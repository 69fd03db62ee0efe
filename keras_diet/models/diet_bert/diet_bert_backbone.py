"""The BERT encoder with positions and segments in the attention scores."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.attention.score_terms import positions_in_documents
from keras_diet.layers.configuration import (
    constructor_arguments,
    takes_arguments_of,
    with_arguments,
)
from keras_diet.layers.initializers import bert_initializer
from keras_diet.layers.position.input_encoding import make_input_encoding
from keras_diet.layers.transformer.cached_positions import arguments_of_copy, copy_weights
from keras_diet.layers.transformer.diet_encoder import DietEncoder
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.layers.transformer.transformer_block import NORMALIZATIONS
from keras_diet.models.diet_bert.convert_bert import convert_bert
from keras_diet.models.diet_bert.hugging_face.heads import NO_HEAD
from keras_diet.models.diet_bert.hugging_face.weights import read_backbone
from keras_diet.models.diet_bert.hugging_face.write import write_hugging_face
from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.model_inputs import (
    DOCUMENT_IDS,
    PADDING_MASK,
    DocumentInputs,
    TokenInput,
    ids_below,
)
from keras_diet.types import Activation, Config, DType, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
def gelu_approximate(x: Tensor) -> Tensor:
    """Return BERT's activation: gelu, approximated with tanh."""
    return keras.activations.gelu(x, approximate=True)


def activation_function(activation: Activation) -> Activation:
    """Return an activation for Keras, which does not know the name `"gelu_approximate"`."""
    return gelu_approximate if activation == "gelu_approximate" else activation


def with_cached_positions(model: Any) -> Any:
    """Return a copy of a backbone or a task, for `keras_diet.layers.cache_positions`."""
    backbone = getattr(model, "backbone", model)
    copy = model.rebuilt(arguments_of_copy(backbone.attention_implementation))
    cached = getattr(copy, "backbone", copy).encoder.position_biases
    copy_weights(model, copy, backbone.encoder.position_biases, cached)
    return copy


@keras.saving.register_keras_serializable(package="keras_diet")
class DietBertBackbone(DocumentInputs, HubBackbone):
    """A BERT encoder that adds positions and segments to the attention scores (DIET).

    It is also the class of trained encoders: see `from_hugging_face`.

    Inputs, outputs and conventions are the same as in `keras_hub.models.BertBackbone`:

        x = Dropout(LayerNorm(E[token_ids] + positions and segments that are at the input))
        sequence_output = DietEncoder(x)
        pooled_output = tanh(W sequence_output[:, 0] + b)

    With `position_encoding="input"` and `segment_encoding="input"` it is KerasHub's BERT, with the
    same weights in the same order. See `keras_diet.layers.DietEncoder` for the equations.

    Args:
        vocabulary_size: int. Size of the token vocabulary.
        num_layers: int. Number of Transformer layers.
        num_heads: int. Number of attention heads. Must divide `hidden_dim` without `head_dim`.
        hidden_dim: int. Size of the hidden states and of the pooler.
        intermediate_dim: int. Width of the feed-forward networks.
        dropout: float. Dropout rate. Defaults to `0.1`.
        max_sequence_length: int. Longest sequence, in tokens. Defaults to `512`.
        num_segments: int. Number of segments. Defaults to `2`.
        position_encoding: `"diet_abs"`, `"diet_rel"`, `"t5"`, `"tupe_abs"`, `"tupe_rel"`, `"shaw"`,
            `"input"`, `"diet_abs_input"`, `"t5_input"`, `"sinusoidal"`, `"alibi"`, `"kerple"`,
            `"sandwich"`, `"fire"`, `"log_cpb"`, `"rotary"`, `"transformer_xl"`, `"query_relative"`,
            `"forgetting"`, `"deberta"`, `"deberta_v1"`, `"none"`, a name that you registered
            (`keras_diet.layers.register_position_encoding`), or a custom bias layer. Defaults to
            `"diet_abs"`.
        rank: int or `None`. Rank `d_p` of the positional scores of `"diet_abs"` and
            `"diet_abs_input"`. Defaults to `None`, which means the head size. The best model of the
            paper uses 128.
        sharing: `"none"`, `"head-wise"`, `"layer-wise"`, or `None` for the default of the encoding.
            The default is `"none"` for `"diet_rel"` and `"fire"`, and `"layer-wise"` for all other
            score biases. `"shaw"` has `"head-wise"` only, `"transformer_xl"` has `"none"` only, and
            `"rotary"` has no parameters to share. Defaults to `None`.
        segment_encoding: `"per-head"`, `"input"`, or `"none"`, which ignores `segment_ids`.
            Defaults to `"per-head"`.
        projection_dim: int or `None`. Number of projected keys and values of Linformer, whose cost
            is linear in the length. Requires `"diet_abs"`, `"diet_abs_input"`, `"input"`,
            `"sinusoidal"` or `"none"`, and no segments per head. Defaults to `None`, which means no
            projection.
        dtype: A dtype or `keras.DTypePolicy` for computations and weights. Defaults to `None`,
            which means Keras's global policy.
        attention_implementation: `"full"` computes all scores of a layer at once and shares
            positional scores between layers. `"features"` adds positions of low rank, segments and
            padding as features of one dot-product attention, for fused kernels. `"blockwise"`
            computes the scores of 256 queries at a time, in memory linear in the length.
            `"indexed"` is as in `keras_diet.layers.DietEncoder`. `"auto"` chooses one of the
            others by length and backend. The outputs are the same. Scores that are asked for are
            always computed in full. Defaults to `"auto"`.
        activation: Activation of the feed-forward networks, by name or as a function. Defaults to
            `"gelu_approximate"`, as in KerasHub's BERT. Hugging Face's BERT uses `"gelu"`.
        cached_positions: bool. Whether the model holds positional scores instead of position
            parameters, as `keras_diet.layers.cache_positions` makes it. Defaults to `False`.
        recompute: As in `keras_diet.layers.DietEncoder`. Defaults to `"none"`.
        name: str or `None`. Name of the model.
        trainable: bool or `None`. Whether the weights are trained. Defaults to `None`, which
            leaves frozen layers frozen.
        embedding_dim: int or `None`. Size of the embeddings, if a dense layer projects them to
            `hidden_dim`, as in ELECTRA. Defaults to `None`, which means `hidden_dim`.
        normalize_embeddings: bool. Whether the embeddings are normalized. Defaults to `True`.
        first_position: int or `None`. If given, positions at the input count the tokens that are
            not padding, from this number on, as in RoBERTa. The token `first_position - 1` counts
            as padding, also in a text. Defaults to `None`: the position of a token is its place in
            the sequence.
        pooler_activation: Activation of the pooler, by name. Defaults to `"tanh"`.
        dropped_token: int or `None`. If given, the embeddings of this token are zero, and the other
            embeddings of a text are larger the more such tokens it has, as for the masks of ESM:
            with a fraction `f` of such tokens, the factor is `0.88 / (1 - f)`. Defaults to `None`.
        max_distance: As in `keras_diet.layers.DietEncoder`, like all arguments that follow.
            Defaults to `None`.
        attention_windows: int, tuple or `None`. Defaults to `None`.
        attention_scale: float or `None`. Defaults to `None`.
        max_wavelength: float, tuple or `None`. Defaults to `None`.
        rope_scaling: dict, tuple or `None`. Defaults to `None`.
        initial_score_stddev: float or `None`. Defaults to `None`.
        layer_norm_epsilon: float. Epsilon of each layer normalization, also of the embeddings.
            Defaults to `1e-12`.
        bias_initializer: Initializer of the biases of the encoder. Defaults to `"zeros"`.
        normalize_first: bool. Defaults to `False`.
        activation_dropout: float. Defaults to `0.0`.
        gated: bool. Defaults to `False`.
        use_bias: bool. Defaults to `True`.
        normalization: str. Also of the embeddings. Defaults to `"layer_norm"`.
        normalize_inputs: bool. Defaults to `True`.
        attention_dropout: float or `None`. Defaults to `None`, which means `dropout`.
        head_dim: int or `None`. Defaults to `None`: `hidden_dim / num_heads`.
        share_layers: bool. Defaults to `False`.
        **kwargs: Keyword arguments of `keras.layers.Layer`, for the encoder.

    Call arguments:
        inputs: A dictionary of integer tensors of shape `(B, T)`: `"token_ids"`,
            `"segment_ids"` in `[0, num_segments)`, and `"padding_mask"` with 1 for tokens and 0
            for padding. Also `"document_ids"`, if a sequence has several documents, as in
            `keras_diet.layers.DietEncoder`. Then all positions begin again in each document.

    Returns:
        A dictionary: `"sequence_output"` of shape `(B, T, hidden_dim)` and `"pooled_output"` of
        shape `(B, hidden_dim)`, computed from the first token of the sequence. So with
        `"document_ids"` it belongs to the first document.

    Raises:
        ValueError: If a size is not positive, if `num_heads` does not divide `hidden_dim`, if a
            name is unknown, if `rank`, `sharing` or `projection_dim` is given to an encoding
            without it, or if a sequence is longer than `max_sequence_length`.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16, position_encoding="diet_abs", rank=16,
    )
    outputs = backbone({
        "token_ids": np.ones((1, 12), dtype="int32"),
        "segment_ids": np.array([[0] * 5 + [1] * 7]),
        "padding_mask": np.array([[1] * 10 + [0] * 2]),
    })
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/)
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
    """

    from_bert = classmethod(convert_bert)
    from_hugging_face = classmethod(read_backbone)
    export_to_hugging_face = write_hugging_face
    trained_head = NO_HEAD
    with_cached_positions = with_cached_positions
    # The type that `from_hugging_face` has read, which `export_to_hugging_face` writes.
    hugging_face_type: str | None = None

    @takes_arguments_of(DietEncoder, without=("kernel_initializer", "encode_inputs", "pair_dim"))
    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        max_sequence_length: int = 512,
        num_segments: int = 2,
        position_encoding: str | keras.layers.Layer = "diet_abs",
        rank: int | None = None,
        sharing: str | None = None,
        segment_encoding: str = "per-head",
        projection_dim: int | None = None,
        dtype: DType = None,
        attention_implementation: str = "auto",
        activation: Activation = "gelu_approximate",
        cached_positions: bool = False,
        recompute: str = "none",
        name: str | None = None,
        trainable: bool | None = None,
        *,
        embedding_dim: int | None = None,
        normalize_embeddings: bool = True,
        first_position: int | None = None,
        pooler_activation: str = "tanh",
        dropped_token: int | None = None,
        **kwargs: Any,
    ) -> None:
        # === Config ===
        self.vocabulary_size = validation.positive_int("vocabulary_size", vocabulary_size)
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = validation.positive_int("hidden_dim", hidden_dim)
        self.intermediate_dim = intermediate_dim
        self.dropout = validation.rate("dropout", dropout)
        self.max_sequence_length = max_sequence_length
        self.num_segments = num_segments
        self.rank = rank
        self.sharing = sharing
        self.segment_encoding = segment_encoding
        self.projection_dim = projection_dim
        self.attention_implementation = attention_implementation
        self.cached_positions = cached_positions
        self.recompute = recompute
        self.activation = (
            activation if isinstance(activation, str) else keras.activations.get(activation)
        )
        self.embedding_dim = validation.optional_positive_int("embedding_dim", embedding_dim)
        self.normalize_embeddings = normalize_embeddings
        self.first_position = validation.optional_positive_int("first_position", first_position)
        self.pooler_activation = pooler_activation
        self.dropped_token = dropped_token
        self.cls_token_index = 0

        # === Layers ===
        self.token_embedding = keras.layers.ReversibleEmbedding(
            input_dim=self.vocabulary_size,
            output_dim=self.embedding_dim or hidden_dim,
            embeddings_initializer=bert_initializer(),
            dtype=dtype,
            name="token_embedding",
        )
        num_positions = max_sequence_length
        if self.first_position is not None:
            # The rows before belong to padding.
            num_positions += self.first_position
        encoding = find_position_encoding(position_encoding)
        if self.first_position is not None and encoding.embedding is None:
            raise ValueError(
                "`first_position` needs learned positions at the input. Received: first_position="
                f"{self.first_position}, position_encoding={position_encoding!r}"
            )
        # BERT adds positions and segments before the layer normalization, not in the encoder.
        self.input_encoding = make_input_encoding(
            encoding,
            num_positions,
            self.num_segments if self.segment_encoding == "input" else None,
            dtype=dtype,
        )
        self.embeddings_layer_norm = None
        if self.normalize_embeddings:
            normalization = kwargs.get("normalization", "layer_norm")
            self.embeddings_layer_norm = NORMALIZATIONS[normalization](
                epsilon=kwargs.get("layer_norm_epsilon", 1e-12),
                dtype=dtype,
                name="embeddings_layer_norm",
            )
        self.embeddings_dropout = keras.layers.Dropout(
            self.dropout, dtype=dtype, name="embeddings_dropout"
        )
        self.embeddings_projection = None
        if self.embedding_dim is not None:
            self.embeddings_projection = keras.layers.Dense(
                self.hidden_dim,
                kernel_initializer=bert_initializer(),
                dtype=dtype,
                name="embeddings_projection",
            )
        self.encoder = DietEncoder(
            self.num_layers,
            self.num_heads,
            self.intermediate_dim,
            position_encoding=position_encoding,
            rank=self.rank,
            sharing=self.sharing,
            segment_encoding=self.segment_encoding,
            num_segments=self.num_segments,
            max_sequence_length=self.max_sequence_length,
            dropout=self.dropout,
            activation=activation_function(self.activation),
            kernel_initializer=bert_initializer(),
            projection_dim=self.projection_dim,
            attention_implementation=self.attention_implementation,
            encode_inputs=False,
            cached_positions=self.cached_positions,
            recompute=self.recompute,
            dtype=dtype,
            name="encoder",
            **kwargs,
        )
        self.pooled_dense = keras.layers.Dense(
            hidden_dim,
            activation=activation_function(pooler_activation),
            kernel_initializer=bert_initializer(),
            dtype=dtype,
            name="pooled_dense",
        )

        # === Functional Model ===
        names = ("token_ids", "segment_ids", "padding_mask")
        inputs = {name: keras.Input(shape=(None,), dtype="int32", name=name) for name in names}
        outputs = self.outputs_of(**inputs)
        super().__init__(
            inputs=inputs, outputs=outputs, dtype=dtype, name=name, trainable=trainable
        )
        # A custom layer belongs to the encoder, which the model knows only now.
        self.position_encoding = position_encoding

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds."""
        num_segments = None if self.segment_encoding == "none" else self.num_segments
        return {
            "token_ids": ids_below(self.vocabulary_size, "vocabulary_size"),
            "segment_ids": ids_below(num_segments, "num_segments"),
            "padding_mask": PADDING_MASK,
            "document_ids": DOCUMENT_IDS,
        }

    def outputs_of(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        padding_mask: Tensor,
        document_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the outputs of the model for its inputs."""
        x = self.embed(token_ids, segment_ids, padding_mask, document_ids)
        x = self.encoder(
            x,
            segment_ids=segment_ids if self.segment_encoding == "per-head" else None,
            padding_mask=padding_mask,
            document_ids=document_ids,
        )
        pooled = self.pooled_dense(x[:, self.cls_token_index, :])
        return {"sequence_output": x, "pooled_output": pooled}

    def embed(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the input of the encoder: embeddings, layer normalization and dropout.

        Args:
            token_ids: Integers of shape `(B, T)`.
            segment_ids: Integers of shape `(B, T)` in `[0, num_segments)`. Only used with
                `segment_encoding="input"`. Defaults to `None`, which means segment 0.
            padding_mask: Integers of shape `(B, T)`, 0 for padding. Only used with
                `first_position` and `dropped_token`. Defaults to `None`, which means no padding.
            document_ids: Integers of shape `(B, T)`. Positions at the input begin again in each
                document. Defaults to `None`, which means one document.

        Returns:
            A tensor of shape `(B, T, hidden_dim)`.
        """
        x = self.token_embedding(token_ids)
        if self.dropped_token is not None:
            x = x * self._scale_of_kept(token_ids, padding_mask, document_ids)
        if self.input_encoding is not None:
            at_input = self.segment_encoding == "input"
            x = self.input_encoding(
                x,
                segment_ids=segment_ids if at_input else None,
                positions=self._positions(token_ids, padding_mask, document_ids),
            )
        if self.embeddings_layer_norm is not None:
            x = self.embeddings_layer_norm(x)
        x = self.embeddings_dropout(x)
        return x if self.embeddings_projection is None else self.embeddings_projection(x)

    def _scale_of_kept(self, token_ids, padding_mask, document_ids):
        """Return the factor of each embedding, 0 for dropped tokens."""
        dtype = self.token_embedding.compute_dtype
        is_dropped = ops.cast(ops.equal(token_ids, self.dropped_token), "float32")
        is_token = ops.ones_like(is_dropped)
        if padding_mask is not None:
            is_token = ops.cast(padding_mask, "float32")
        counts = ops.stack([is_dropped, is_token], axis=-1)
        if document_ids is None:
            counts = ops.sum(counts, axis=1, keepdims=True)
        else:
            is_same = ops.equal(ops.expand_dims(document_ids, 2), ops.expand_dims(document_ids, 1))
            counts = ops.matmul(ops.cast(is_same, "float32"), counts)
        # A text of nothing but padding or dropped tokens has no embedding to scale.
        kept = ops.maximum(counts[..., 1] - counts[..., 0], 1.0)
        # The training of ESM drops 0.8 of the 0.15 tokens that it chooses.
        scale = (1 - 0.15 * 0.8) * ops.maximum(counts[..., 1], 1.0) / kept
        return ops.cast(ops.expand_dims((1 - is_dropped) * scale, -1), dtype)

    def _positions(self, token_ids, padding_mask, document_ids):
        """Return the positions of tokens, or `None` if they count from 0 in each sequence."""
        positions = None if document_ids is None else positions_in_documents(document_ids)
        if self.first_position is None:
            return positions
        # In a text, too, RoBERTa's padding token has the position of padding.
        mask = ops.cast(ops.not_equal(token_ids, self.first_position - 1), "int32")
        if padding_mask is not None:
            mask = mask * ops.cast(padding_mask, "int32")
        count = ops.cumsum(mask, axis=1)
        if positions is not None:
            first = _backend.arange(ops.shape(mask)[1]) - positions
            count = count - ops.take_along_axis(count - mask, first, axis=1)
        return count * mask + (self.first_position - 1)

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        activation = self.activation
        if not isinstance(activation, str):
            activation = keras.activations.serialize(activation)
        position_encoding = keras.saving.serialize_keras_object(self.position_encoding)
        of_encoder, names = self.encoder.get_config(), constructor_arguments(type(self))
        config = {name: of_encoder[name] for name in names if name in of_encoder}
        config |= {"activation": activation, "position_encoding": position_encoding}
        return with_arguments({**config, **super().get_config()}, self)
