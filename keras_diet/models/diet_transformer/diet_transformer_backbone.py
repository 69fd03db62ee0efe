"""The Transformer of Vaswani et al., with positions in the attention scores."""

import dataclasses
import math
from typing import Any

import keras

from keras_diet import validation
from keras_diet.layers.configuration import constructor_arguments, with_arguments
from keras_diet.layers.position.input_encoding import InputEncoding, make_input_encoding
from keras_diet.layers.position.position_encoding import another_position_encoding
from keras_diet.layers.transformer.diet_decoder import DecoderMemory, DietDecoder
from keras_diet.layers.transformer.diet_encoder import DietEncoder
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from keras_diet.models.hub.backbone import HubBackbone
from keras_diet.models.hub.model_inputs import PADDING_MASK, TokenInput, ids_below
from keras_diet.types import Activation, Config, DType, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class DietTransformerBackbone(HubBackbone):
    """An encoder and a decoder with positions in the attention scores, for translation.

    Encoder, decoder and the output of `DietTransformerSeq2SeqLM` share the token embedding `E`:

        x = Dropout(sqrt(hidden_dim) E[token_ids] + positions that are at the input)
        encoder_sequence_output = DietEncoder(x of the source)
        decoder_sequence_output = DietDecoder(x of the target, encoder_sequence_output)

    As in `transformer_base` of Tensor2Tensor, blocks are pre-norm by default, have ReLU, and one
    dropout rate for residuals, attention and the hidden units of feed-forward networks.

    Args:
        vocabulary_size: int. Number of tokens, of source and target together.
        num_layers: int. Number of blocks of the encoder, and of the decoder.
        num_heads: int. Number of attention heads. It must divide `hidden_dim`.
        hidden_dim: int. Size of the hidden states.
        intermediate_dim: int. Width of the feed-forward networks.
        dropout: float. Dropout rate. Defaults to `0.1`.
        max_sequence_length: int. Longest source and longest target, in tokens. Defaults to `256`.
        position_encoding: As in `keras_diet.layers.DietEncoder`. Defaults to `"diet_rel"`.
        rank: As in `keras_diet.layers.DietEncoder`. Defaults to `None`.
        sharing: As in `keras_diet.layers.DietEncoder`. Defaults to `None`.
        cross_attention_positions: bool. Whether attention to the source has positions too, as in
            the paper. Defaults to `True`.
        normalize_first: bool. Whether blocks are pre-norm. Defaults to `True`.
        activation: Activation of the feed-forward networks. Defaults to `"relu"`.
        max_distance: As in `keras_diet.layers.DietEncoder`. Tensor2Tensor has 20 for Shaw's
            encoding. Defaults to `None`.
        attention_implementation: As in `keras_diet.layers.DietEncoder`. Defaults to `"auto"`.
        layer_norm_epsilon: float. Defaults to `1e-6`, as in Tensor2Tensor.
        recompute: As in `keras_diet.layers.DietEncoder`. Defaults to `"none"`.
        dtype: As in `DietBertBackbone`. Defaults to `None`.
        name: str or `None`. Name of the model.
        trainable: As in `DietBertBackbone`. Defaults to `None`.
        initial_score_stddev: As in `keras_diet.layers.DietEncoder`. Defaults to `None`.

    Call arguments:
        inputs: A dictionary of integer tensors: `"encoder_token_ids"` and `"encoder_padding_mask"`
            of shape `(B, S)`, `"decoder_token_ids"` and `"decoder_padding_mask"` of shape `(B, T)`.
            Masks have 1 for tokens and 0 for padding.

    Returns:
        A dictionary: `"encoder_sequence_output"` of shape `(B, S, hidden_dim)` and
        `"decoder_sequence_output"` of shape `(B, T, hidden_dim)`.

    Raises:
        ValueError: If an argument is refused by `keras_diet.layers.DietDecoder`, or if a sequence
            is longer than `max_sequence_length`.

    Example:

    ```python
    backbone = keras_diet.models.DietTransformerBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16,
    )
    outputs = backbone({
        "encoder_token_ids": np.ones((1, 7), dtype="int32"),
        "encoder_padding_mask": np.array([[1] * 5 + [0] * 2]),
        "decoder_token_ids": np.ones((1, 6), dtype="int32"),
        "decoder_padding_mask": np.ones((1, 6), dtype="int32"),
    })
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 4.3
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        max_sequence_length: int = 256,
        position_encoding: str | keras.layers.Layer = "diet_rel",
        rank: int | None = None,
        sharing: str | None = None,
        cross_attention_positions: bool = True,
        normalize_first: bool = True,
        activation: Activation = "relu",
        max_distance: int | None = None,
        attention_implementation: str = "auto",
        layer_norm_epsilon: float = 1e-6,
        recompute: str = "none",
        dtype: DType = None,
        name: str | None = None,
        trainable: bool | None = None,
        initial_score_stddev: float | None = None,
    ) -> None:
        # === Config ===
        self.vocabulary_size = validation.positive_int("vocabulary_size", vocabulary_size)
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = validation.positive_int("hidden_dim", hidden_dim)
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.max_sequence_length = max_sequence_length
        self.rank = rank
        self.sharing = sharing
        self.cross_attention_positions = cross_attention_positions
        self.normalize_first = normalize_first
        self.activation = keras.activations.get(activation)
        self.max_distance = max_distance
        self.attention_implementation = attention_implementation
        self.layer_norm_epsilon = layer_norm_epsilon
        self.recompute = recompute
        self.initial_score_stddev = initial_score_stddev

        # === Layers ===
        self.token_embedding = keras.layers.ReversibleEmbedding(
            input_dim=self.vocabulary_size,
            output_dim=self.hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=self.hidden_dim**-0.5),
            dtype=dtype,
            name="token_embedding",
        )
        encoding = find_position_encoding(position_encoding)
        # The order of the functional graph. Weights then have the same order on all backends.
        self.decoder_input_encoding, self.encoder_input_encoding = (
            make_input_encoding(
                encoding, self.max_sequence_length, None, dtype, name=f"{side}_input_encoding"
            )
            for side in ("decoder", "encoder")
        )
        self.embeddings_dropout = keras.layers.Dropout(
            dropout, dtype=dtype, name="embeddings_dropout"
        )
        names = constructor_arguments(DietTransformerBackbone).keys() - {"position_encoding"}
        names &= constructor_arguments(DietEncoder).keys()
        arguments: dict[str, Any] = {
            **{name: getattr(self, name) for name in names},
            "activation_dropout": self.dropout,
            # The dropout of the embeddings comes after the positions.
            "encode_inputs": False,
            "dtype": dtype,
        }
        self.encoder = DietEncoder(
            position_encoding=position_encoding,
            segment_encoding="none",
            name="encoder",
            **arguments,
        )
        self.decoder = DietDecoder(
            position_encoding=another_position_encoding(position_encoding),
            cross_attention_positions=self.cross_attention_positions,
            name="decoder",
            **arguments,
        )

        # === Functional Model ===
        inputs = {
            f"{side}_{name}": keras.Input(shape=(None,), dtype="int32", name=f"{side}_{name}")
            for side in ("encoder", "decoder")
            for name in ("token_ids", "padding_mask")
        }
        source = self.encode(inputs["encoder_token_ids"], inputs["encoder_padding_mask"])
        target = self.decoder(
            self.embed(inputs["decoder_token_ids"], self.decoder_input_encoding),
            source,
            padding_mask=inputs["decoder_padding_mask"],
            encoder_padding_mask=inputs["encoder_padding_mask"],
        )
        super().__init__(
            inputs=inputs,
            outputs={"encoder_sequence_output": source, "decoder_sequence_output": target},
            dtype=dtype,
            name=name,
            trainable=trainable,
        )
        # A custom layer belongs to the encoder, which the model knows only now.
        self.position_encoding = position_encoding

    @property
    def token_inputs(self) -> dict[str, TokenInput]:
        """What each input holds."""
        return {
            f"{side}_{name}": dataclasses.replace(token_input, sequence=side)
            for side in ("encoder", "decoder")
            for name, token_input in (
                ("token_ids", ids_below(self.vocabulary_size, "vocabulary_size")),
                ("padding_mask", PADDING_MASK),
            )
        }

    def encode(
        self, token_ids: Tensor, padding_mask: Tensor | None = None, training: bool | None = None
    ) -> Tensor:
        """Return the output of the encoder, `(B, S, hidden_dim)`.

        Args:
            token_ids: Integers of shape `(B, S)`.
            padding_mask: Boolean or 0/1 tensor `(B, S)`, or `None` without padding.
            training: bool or `None`. Whether dropout is active.
        """
        x = self.embed(token_ids, self.encoder_input_encoding, training=training)
        return self.encoder(x, padding_mask=padding_mask, training=training)

    def decode_step(
        self,
        token_ids: Tensor,
        memory: DecoderMemory,
        start_index: int | Tensor,
        padding_mask: Tensor | None = None,
    ) -> tuple[Tensor, DecoderMemory]:
        """Return the output of the decoder for the next tokens, and the next memory.

        Args:
            token_ids: Integers of shape `(B, T)`, the tokens from `start_index` on.
            memory: What `decoder.start_memory` or an earlier step returned.
            start_index: int or scalar tensor. Position of the first of these tokens.
            padding_mask: As in `DietDecoder` with a memory, or `None`.
        """
        x = self.embed(token_ids, self.decoder_input_encoding, start_index, training=False)
        return self.decoder(
            x, padding_mask=padding_mask, memory=memory, start_index=start_index, training=False
        )

    def embed(
        self,
        token_ids: Tensor,
        input_encoding: InputEncoding | None,
        start_index: int | Tensor = 0,
        training: bool | None = None,
    ) -> Tensor:
        """Return the input of the encoder or the decoder: embeddings with positions and dropout.

        Args:
            token_ids: Integers of shape `(B, T)`.
            input_encoding: `encoder_input_encoding`, `decoder_input_encoding`, or `None`.
            start_index: int or scalar tensor. Position of the first token. Defaults to `0`.
            training: bool or `None`. Whether dropout is active.
        """
        x = self.token_embedding(token_ids) * math.sqrt(self.hidden_dim)
        if input_encoding is not None:
            x = input_encoding(x, start_index=start_index)
        return self.embeddings_dropout(x, training=training)

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        activation = keras.activations.serialize(self.activation)
        return with_arguments({**super().get_config(), "activation": activation}, self)
