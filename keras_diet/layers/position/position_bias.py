"""What a bias layer can do, and the base class of the library's bias layers.

A bias layer is any `keras.layers.Layer` that returns scores broadcastable to `(B, H, T, S)`:

- `layer(query)` or `layer(query, key)` returns the scores of all queries. Every bias layer has it.
- `layer.features(query, key, start_index)` returns the scores as features, whose inner products
  they are. Layers with scores of low rank have it.
- `layer.rows(query, key, start_index)` returns the scores of a block of queries that begins at
  the position `start_index`. Layers that read only lengths have it.
- `layer.distance_only` is true if the scores depend on the distance `i - j` alone. Then documents
  in one sequence need no scores of their own.
- `layer.by_distance(query_length, key_length, start_index)` returns one score for each distance.
- `layer.parts(query, key, start_index)` returns features, and one score for each distance or
  `None`. The scores are the sum of both.
- `layer.reads_content` is true if the scores depend on the hidden states. Then each attention layer
  computes them from its own states.

`PositionBias` provides `rows` for all its subclasses, and `by_distance` for those with
`distance_only`.
"""

import itertools
import numbers
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.configuration import named_arguments, with_arguments
from keras_diet.layers.initializers import embedding_initializer
from keras_diet.types import Config, Initializer, Integer, Shape, Tensor


class PositionBias(keras.layers.Layer):
    """Base class of a bias of attention scores, which depends on positions or on the content.

    A subclass creates its weights in `build` and returns the scores of a range of positions from
    `compute_scores`. This class checks lengths, shares heads and writes the configuration. A
    subclass with other arguments keeps each as an attribute of the same name.

    A subclass that changes the scores of a class with `features`, such as `AbsolutePositionBias`,
    or with `parts`, such as `UntiedPositionBias`, sets this attribute to `None`. A subclass whose
    `call` takes no `start_index` sets `rows = None`.
    If the scores depend on the distance of query and key alone, `distance_only = True` saves time
    and memory with the `document_ids` of an encoder. Subclasses inherit it, also those of
    `AlibiPositionBias` and of other biases of the distance. Set it to `False` if your scores need
    more than the distance: nothing checks it, and documents would get wrong scores. With
    `attention_implementation="indexed"`, `compute_scores` gets one query and `T + S - 1` keys,
    which may be more than `max_length`.

    A bias that depends on the hidden states sets `reads_content = True`. Then `compute_scores` gets
    the tensors `query` and `key` in place of their lengths, and returns `(B, H or 1, T, S)`:

    - Both are the inputs of the attention layer, after the normalization of pre-norm. A stack asks
      the bias in each layer, also with `sharing="layer-wise"`, which shares only the weights.
      `cache_positions` refuses it.
    - In blocks, `query` has the states of the block and `key` those of all keys.
    - In decoding, `key` has the length of the memory and other values, so read only its length. A
      bias that needs the states of keys has a `key_size` and defines `project_keys(key)`, which
      returns what it needs of each key, `(B, S, num_heads, key_size)`. The memory of a decoder
      keeps this in `score_dtype`, with zeros for later keys. It is the `key` of the next steps.
    - With the `document_ids` of an encoder it needs `distance_only = True`: the score of two tokens
      must not depend on where their document begins.

    Args:
        num_heads: int. Number of attention heads `H`.
        max_length: int. Number of positions `n`, in tokens. May be `None` in subclasses whose
            `any_length` is true: they have scores for every length, which cannot be cached.
        key_length: int or `None`. Number of key positions, if it differs from the number of query
            positions. Defaults to `None`, which means `max_length`.
        share_heads: bool. Whether all heads use the same parameters. Defaults to `False`.
        initializer: Initializer of the parameters. Defaults to `None`, which means BERT's,
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(B, T, ...)`. Only its length is read, unless `reads_content`.
        key: Tensor of shape `(B, S, ...)`, or `None` for `query`. The same holds for it.
        start_index: int or scalar tensor. Position of the first query, for decoding with a
            cache. The first key is always at position 0. Defaults to `0`.

    Returns:
        Scores of shape `(1, num_heads, T, S)`, to be added to attention scores before softmax; with
        `reads_content`, of shape `(B, num_heads, T, S)`.

    Raises:
        ValueError: If a length exceeds `max_length` or `key_length`. Lengths that are unknown when
            the layer is traced are not checked.

    Example:

    ```python
    # Scores that decrease with the distance, with a learned slope per head.
    @keras.saving.register_keras_serializable(package="example")
    class LinearBias(keras_diet.layers.PositionBias):
        distance_only = True

        def build(self, query_shape=None, key_shape=None):
            shape = (self.num_score_heads, 1, 1)
            self.slope = self.add_weight(name="slope", shape=shape, initializer="ones")

        def compute_scores(self, query_length, key_length, start_index):
            query = keras.ops.arange(query_length, dtype="int32") + start_index
            key = keras.ops.arange(key_length, dtype="int32")
            distance = keras.ops.abs(query[:, None] - key)
            return -self.slope[None] * keras.ops.cast(distance, self.score_dtype)

    encoder = keras_diet.layers.DietEncoder(
        num_layers=2, num_heads=4, intermediate_dim=64,
        position_encoding=LinearBias(num_heads=4, max_length=512),
    )
    y = encoder(np.ones((2, 10, 32), dtype="float32"))
    ```
    """

    any_length = False
    distance_only = False
    reads_content = False
    # A bias that needs the states of keys defines `project_keys(key)`, and the size of its result.
    key_size = 0
    # Subclasses with scores of low rank define `features(query, key=None, start_index=0)`.
    features: Callable[..., Any] | None = None
    # Subclasses with scores that are a sum of features and of one score for each distance define
    # `parts(query, key=None, start_index=0)`.
    parts: Callable[..., Any] | None = None

    def __init__(
        self,
        num_heads: int,
        max_length: int | None = None,
        key_length: int | None = None,
        share_heads: bool = False,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = validation.positive_int("num_heads", num_heads)
        if max_length is None and not self.any_length:
            raise ValueError(
                f"`max_length` must be the largest number of positions of `{type(self).__name__}`. "
                "Received: max_length=None. A class whose scores fit any length sets "
                "`any_length = True`."
            )
        validation.optional_positive_int("max_length", max_length)
        # `None` only in subclasses for any length.
        self.max_length: Any = max_length
        self.key_length: Any = validation.optional_positive_int("key_length", key_length)
        if key_length is None:
            self.key_length = self.max_length
        self.share_heads = share_heads
        self.initializer = embedding_initializer(initializer)
        # A subclass with its own constructor may pass them on in its `**kwargs`.
        given = (key_length is not None, share_heads, initializer is not None)
        names = ("key_length", "share_heads", "initializer")
        self._given = tuple(itertools.compress(names, given))
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    @property
    def num_score_heads(self) -> int:
        """Number of heads with their own parameters: `1` if they are shared, else `num_heads`."""
        return 1 if self.share_heads else self.num_heads

    @property
    def score_dtype(self) -> str:
        """Dtype for scores that grow with the distance: float32 also under half precision.

        In bfloat16, whole numbers above 256 are rounded.
        """
        return keras.backend.result_type(self.compute_dtype, "float32")

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create the weights. The shapes of the inputs do not matter."""

    def compute_scores(self, query_length: Any, key_length: Any, start_index: Integer) -> Tensor:
        """Return the scores of a range of queries and of all keys. Each subclass has this method.

            scores[0, h, t, s] = B_ij,    i = start_index + t,    j = s

        `call` checks the lengths before, and repeats the scores for all heads if they share them.
        Use operations of `keras.ops`. The lengths are integers where they are known, and scalar
        tensors in a graph for any length, and a Python loop cannot run over those.

        With `reads_content`, the first two arguments are the query and the key.

        Args:
            query_length: int or scalar tensor. Number of queries `T`.
            key_length: int or scalar tensor. Number of keys `S`. The first is at position 0.
            start_index: int or scalar tensor. Position of the first query. It is 0, unless a
                decoder generates a token at a time, or attention is computed in blocks of queries.

        Returns:
            Tensor of shape `(1, num_score_heads, query_length, key_length)`, where
            `num_score_heads` is 1 with `share_heads`, and `num_heads` otherwise. Larger scores make
            a query attend more to a key. They are added to the scaled products of queries and keys.

        Example:

        ```python
        bias = keras_diet.layers.AlibiPositionBias(num_heads=2)
        bias.build()
        block = bias.compute_scores(query_length=3, key_length=8, start_index=5)
        whole = bias.compute_scores(query_length=8, key_length=8, start_index=0)
        assert keras.ops.max(keras.ops.abs(block - whole[:, :, 5:])) == 0
        ```
        """
        raise NotImplementedError

    def call(self, query: Tensor, key: Tensor | None = None, start_index: Integer = 0) -> Tensor:
        query_length, key_length = self._checked_lengths(query, key, start_index)
        if not isinstance(start_index, numbers.Integral):
            # Keras turns an integer of NumPy into int64, which TensorFlow does not add to int32.
            start_index = ops.cast(start_index, "int32")
        inputs = (query_length, key_length)
        if self.reads_content:
            inputs = (query, query if key is None else key)
        scores = self.compute_scores(*inputs, start_index)
        if self.num_score_heads != self.num_heads:
            shape = (ops.shape(scores)[0], self.num_heads, query_length, key_length)
            scores = ops.broadcast_to(scores, shape)
        return scores

    def _checked_lengths(self, query, key, start_index):
        query_length = ops.shape(query)[1]
        key_length = query_length if key is None else ops.shape(key)[1]
        known_start = validation.start_index(start_index) or 0
        if self.max_length is not None:
            if isinstance(query_length, int):
                end = query_length + known_start
                validation.length_within(end, self.max_length, "max_length", "query")
            limit = "max_length" if self.key_length == self.max_length else "key_length"
            validation.length_within(key_length, self.key_length, limit, "key")
        return query_length, key_length

    def by_distance(
        self, query_length: Integer, key_length: Integer, start_index: Integer
    ) -> Tensor:
        """Return one score for each distance, `(H, T + S - 1)`, if `distance_only`.

        The score of query `i` and key `j` is in column `j - i + T - 1`, where `i` and `j` are
        counted from 0. The last query and `T + S - 1` keys have all these distances.
        """
        num_distances = query_length + key_length - 1
        scores = self.compute_scores(1, num_distances, start_index + query_length - 1)
        return ops.broadcast_to(scores, (1, self.num_heads, 1, num_distances))[0, :, 0]

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """Return `None`: scores have no mask. Without it Keras warns of a masked input."""

    def rows(self, query: Tensor, key: Tensor, start_index: Integer) -> Tensor:
        """Return the scores of a block of queries, the first of which is at `start_index`."""
        return self(query, key, start_index=start_index)

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape | None = None) -> Shape:
        """Return the shape of the scores, `(1, num_heads, T, S)`, or with `B` for the content."""
        key_shape = query_shape if key_shape is None else key_shape
        return (
            query_shape[0] if self.reads_content else 1,
            self.num_heads,
            query_shape[1],
            key_shape[1],
        )

    def get_config(self) -> Config:
        """Return the constructor's arguments."""
        names = (*named_arguments(type(self)), *self._given)
        return with_arguments(super().get_config(), self, names)


def has_features(bias: Any) -> bool:
    """Whether a bias layer returns its scores as features too."""
    return callable(getattr(bias, "features", None))


def has_rows(bias: Any) -> bool:
    """Whether a bias layer returns the scores of any block of queries.

    Blocks are computed a second time for the gradient. A layer with state, such as dropout, would
    return other scores then.
    """
    has_state = len(bias.variables) > len(bias.weights)
    return callable(getattr(bias, "rows", None)) and not has_state


def is_distance_only(bias: Any) -> bool:
    """Whether the scores of a bias layer depend on the distance of query and key alone."""
    return getattr(bias, "distance_only", False)


def has_scores_by_distance(bias: Any) -> bool:
    """Whether a bias layer returns one score for each distance, alone or beside features.

    A subclass that overrides `call` may return other scores.
    """
    is_position_bias = isinstance(bias, PositionBias) and type(bias).call is PositionBias.call
    if not is_position_bias or bias.reads_content:
        return False
    return bias.distance_only or bias.parts is not None


def keeps_keys(bias: Any) -> bool:
    """Whether a bias layer needs more of the keys in a memory than their number."""
    return getattr(bias, "key_size", 0) > 0


def reads_content(bias: Any) -> bool:
    """Whether the scores of a bias layer depend on the hidden states of a layer."""
    return getattr(bias, "reads_content", False)


def scores_of(
    bias: keras.layers.Layer, query: Tensor, key: Tensor | None, start_index: Any
) -> Tensor:
    """Return the scores of a bias layer for all queries, the first of which is at `start_index`."""
    if isinstance(start_index, int) and start_index == 0:
        return _numbers(bias, bias(query) if key is None else bias(query, key))
    if not callable(getattr(bias, "rows", None)):
        raise ValueError(
            "A bias layer needs a method `rows(query, key, start_index)` for queries that do not "
            f"begin at position 0. Received: start_index={start_index} and the layer {bias}. Add "
            "the method, or derive the layer from `keras_diet.layers.PositionBias`."
        )
    return rows_of(bias, query, query if key is None else key, start_index)


def rows_of(bias: keras.layers.Layer, query: Tensor, key: Tensor, start_index: Any) -> Tensor:
    """Return the scores of a bias layer for a block of queries that begins at `start_index`."""
    return _numbers(bias, bias.rows(query, key, start_index))


def _numbers(bias, scores):
    if keras.backend.standardize_dtype(scores.dtype) == "bool":
        raise ValueError(
            "A bias layer must return numbers that are added to the scores. Received: booleans "
            f"from {bias}. Return large negative numbers for keys to leave out, or pass an "
            "`attention_mask`."
        )
    return scores
