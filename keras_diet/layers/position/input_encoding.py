"""Positions and segments added to the inputs, as in BERT."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.configuration import FromArguments
from keras_diet.layers.initializers import embedding_initializer, fresh
from keras_diet.layers.position.position_encoding import PositionEncoding, call_named
from keras_diet.layers.position.sinusoids import Sinusoids
from keras_diet.types import DType, Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class LearnedPositions(FromArguments, keras.layers.Layer):
    """Learned positions of inputs `(B, T, size)`, of shape `(T, size)`.

    With `positions` of shape `(B, T)`, the result has the shape `(B, T, size)`. `keras.layers.
    Embedding` is not a substitute: it would be quantized, and gets adapters of LoRA.
    """

    def __init__(self, max_length: int, initializer: Initializer = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_length = max_length
        self.initializer = fresh(embedding_initializer(initializer))
        self.supports_masking = True

    def build(self, inputs_shape: Shape) -> None:
        """Create the vectors of all positions."""
        self.position_embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_length, inputs_shape[-1]),
            initializer=self.initializer,
        )

    def call(
        self, inputs: Tensor, start_index: Integer = 0, positions: Tensor | None = None
    ) -> Tensor:
        embeddings = ops.convert_to_tensor(self.position_embeddings)
        if positions is not None:
            return _backend.take_rows(embeddings, positions)
        return _backend.slice(embeddings, (start_index, 0), ops.shape(inputs)[1:])


@keras.saving.register_keras_serializable(package="keras_diet")
class InputEncoding(FromArguments, keras.layers.Layer):
    """Absolute positions and segments, added to the token embeddings (BERT).

    DIET replaces this encoding. The library has it for comparison:

        y_i = x_i + P_i + G_{S(i)}

    where `P` has the shape `(max_sequence_length, hidden_dim)`, `G` has the shape `(num_segments,
    hidden_dim)`, and `S(i)` is the segment of token `i`. Either term can be left out.

    Args:
        max_sequence_length: int or `None`. Number of positions, in tokens. Defaults to `None`,
            which means any.
        num_segments: int or `None`. Number of segments. Defaults to `None`, which adds no segments.
        initializer: Initializer of `G`. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        position_embedding: Layer or `None`. It is called with the inputs and returns `P`, as
            `LearnedPositions` and `keras_hub.layers.SinePositionEncoding()` do. Defaults to
            `None`, which adds no positions.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Tensor of shape `(B, T, hidden_dim)`.
        segment_ids: Integer tensor of shape `(B, T)`, in `[0, num_segments)`. Defaults to `None`,
            which puts all tokens into segment 0.
        start_index: int or scalar tensor. Position of the first token, for decoding in steps.
            Defaults to `0`.
        positions: Integer tensor of shape `(B, T)`, the position of each token. A custom layer is
            called with one sequence, and its rows are taken. Defaults to `None`, which means the
            places in the sequence.

    Returns:
        Tensor of shape `(B, T, hidden_dim)`.

    Raises:
        ValueError: If there is nothing to add, the sequence is longer than `max_sequence_length`,
            or a segment id is outside the range. The layer only checks ids of eager calls in host
            memory, where reading them is free.

    References:
     - [Devlin et al., 2018](https://arxiv.org/abs/1810.04805)
     - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        max_sequence_length: int | None = None,
        num_segments: int | None = None,
        initializer: Initializer = None,
        position_embedding: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_sequence_length = validation.optional_positive_int(
            "max_sequence_length", max_sequence_length
        )
        self.num_segments = validation.optional_positive_int("num_segments", num_segments)
        self.initializer = embedding_initializer(initializer)
        self.position_embedding = position_embedding
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def build(
        self,
        inputs_shape: Shape,
        segment_ids_shape: Shape | None = None,
        positions_shape: Shape | None = None,
    ) -> None:
        """Create and build the embeddings."""
        if self.position_embedding is not None and not self.position_embedding.built:
            self.position_embedding.build(inputs_shape)
        if self.num_segments is not None:
            self.segment_embedding = keras.layers.Embedding(
                self.num_segments,
                inputs_shape[-1],
                embeddings_initializer=fresh(self.initializer),
                dtype=self.dtype_policy,
                name="segment_embedding",
            )
            self.segment_embedding.build(inputs_shape[:-1])

    def call(
        self,
        inputs: Tensor,
        segment_ids: Tensor | None = None,
        start_index: Integer = 0,
        positions: Tensor | None = None,
    ) -> Tensor:
        x = inputs
        if segment_ids is not None and self.num_segments is None:
            raise ValueError(
                "`segment_ids` would be ignored. Received: segment_ids with num_segments=None. "
                "Leave them out, or pass `num_segments` to the constructor."
            )
        known_start = validation.start_index(start_index)
        if self.max_sequence_length is not None:
            length = None if inputs.shape[1] is None else inputs.shape[1] + (known_start or 0)
            validation.length_within(length, self.max_sequence_length, "max_sequence_length")
        if self.position_embedding is not None:
            embeddings = self._positions(inputs, start_index, positions)
            x = x + ops.cast(embeddings, self.compute_dtype)
        if self.num_segments is not None:
            if segment_ids is None:
                segment_ids = ops.zeros((1, 1), dtype="int32")
            else:
                validation.shape_of_ids("segment_ids", segment_ids, inputs.shape[:2])
            validation.segment_ids_within(segment_ids, self.num_segments)
            # Each row once, because a row that the layer returns twice has a wrong step of Adam on
            # TensorFlow.
            rows = self.segment_embedding(_backend.arange(self.num_segments))
            x = x + _backend.take_rows(rows, ops.cast(segment_ids, "int32"))
        return x

    def _positions(self, inputs, start_index, positions):
        """Return the embeddings of positions, broadcastable to the inputs."""
        layer = self.position_embedding
        if isinstance(layer, LearnedPositions):
            return layer(inputs, start_index=start_index, positions=positions)
        # A custom layer needs the argument for decoding only.
        is_first = isinstance(start_index, int) and start_index == 0
        arguments = {} if is_first else {"start_index": start_index}
        if positions is None:
            return layer(inputs, **arguments)
        rows = inputs[:1]
        embeddings = ops.broadcast_to(layer(rows, **arguments), ops.shape(rows))[0]
        return ops.take(embeddings, positions, axis=0)

    def compute_output_shape(
        self,
        inputs_shape: Shape,
        segment_ids_shape: Shape | None = None,
        positions_shape: Shape | None = None,
    ) -> Shape:
        """Return the shape of the output, which is the shape of the inputs."""
        return inputs_shape


def make_input_encoding(
    encoding: PositionEncoding,
    max_length: int,
    num_segments: int | None,
    dtype: DType,
    name: str = "input_encoding",
) -> InputEncoding | None:
    """Return the layer that adds positions and segments to the inputs of an encoder.

    Args:
        encoding: `PositionEncoding` of the encoder.
        max_length: int. Number of positions, in tokens.
        num_segments: int, or `None` if segments are not at the input.
        dtype: The dtype policy.
        name: str. Name of the layer.

    Returns:
        The layer, or `None` if the encoder adds nothing to its inputs.
    """
    if encoding.embedding is None and num_segments is None:
        return None
    embedding = None
    if encoding.embedding is not None:
        arguments = {"dtype": dtype, "name": "position_embedding"}
        embedding = call_named(encoding.embedding, {"max_length": max_length}, **arguments)
    return InputEncoding(
        None if embedding is None else max_length,
        num_segments,
        position_embedding=embedding,
        dtype=dtype,
        name=name,
    )


def _sinusoidal(dtype, name):
    # In bfloat16, neighboring positions above 256 would be equal.
    return Sinusoids(dtype="float32", name=name)


INPUT = PositionEncoding(embedding=LearnedPositions)
SINUSOIDAL = PositionEncoding(embedding=_sinusoidal)
