"""The base of all biases that depend on positions alone."""

import numbers

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet.layers.initializers import embedding_initializer


class PositionBias(keras.layers.Layer):
    """Base class of a learned bias that depends on positions only, not on the input.

    A subclass creates its weights in `build` and returns the scores of a range of positions
    from `compute_scores`; lengths, the cache for inference and serialization are done here.

    Args:
        num_heads: int. Number of attention heads `H`.
        max_length: int. Number of positions `n`, in tokens. May be `None` in subclasses whose
            `any_length` is true: they have scores for every length, which cannot be cached.
        key_length: int or `None`. Number of key positions, where keys are fewer or more than
            queries. Defaults to `None`, which means `max_length`.
        share_heads: bool. Whether all heads use the same parameters. Defaults to `False`.
        initializer: Initializer of the parameters. Defaults to `None`, which means BERT's,
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(B, T, ...)`. Only its length is read.
        key: Tensor of shape `(B, S, ...)`, or `None` for `query`. Only its length is read.
        start_index: int or scalar tensor. Position of the first query, for decoding with a
            cache; keys always start at position 0. Defaults to `0`.
        training: bool. When `True`, scores cached by `cache_scores` are dropped.

    Returns:
        Scores of shape `(1, num_heads, T, S)`, to be added to attention scores before softmax.

    Raises:
        ValueError: If the lengths exceed `max_length` or `key_length`, as far as they are known
            when the layer is traced.

    Example:

    ```python
    # Scores that fall with the distance, by a learned slope per head.
    @keras.saving.register_keras_serializable(package="example")
    class LinearBias(keras_diet.layers.PositionBias):
        def build(self, query_shape=None, key_shape=None):
            shape = (self.num_score_heads, 1, 1)
            self.slope = self.add_weight(name="slope", shape=shape, initializer="ones")
            self.built = True

        def compute_scores(self, query_length, key_length, start_index):
            query = keras.ops.arange(query_length) + start_index
            distance = keras.ops.abs(query[:, None] - keras.ops.arange(key_length)[None, :])
            return -self.slope[None] * keras.ops.cast(distance, self.compute_dtype)

    encoder = keras_diet.layers.DietEncoder(
        num_layers=2, num_heads=4, intermediate_dim=64,
        position_encoding=LinearBias(num_heads=4, max_length=512),
    )
    y = encoder(np.ones((2, 10, 32), dtype="float32"))
    ```
    """

    any_length = False

    def __init__(
        self,
        num_heads,
        max_length,
        key_length=None,
        share_heads=False,
        initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = validation.positive_int("num_heads", num_heads)
        if max_length is not None or not self.any_length:
            validation.positive_int("max_length", max_length)
        self.max_length = max_length
        self.key_length = validation.optional_positive_int("key_length", key_length)
        if key_length is None:
            self.key_length = self.max_length
        self.share_heads = bool(share_heads)
        self.initializer = embedding_initializer(initializer)
        self._cached_scores = None
        self._stop_watching = None
        self._on_drop = None

    @property
    def num_score_heads(self):
        """Heads that have parameters of their own: `1` if they are shared, else `num_heads`."""
        return 1 if self.share_heads else self.num_heads

    def build(self, query_shape=None, key_shape=None):
        """Create the weights; the shapes of the inputs do not matter."""
        self.built = True

    def compute_scores(self, query_length, key_length, start_index):
        """Return scores `(1, H or 1, T, S)` of queries from `start_index` on and keys from 0."""
        raise NotImplementedError

    def call(self, query, key=None, start_index=0, training=None):
        lengths = self._checked_lengths(query, key, start_index)
        if not isinstance(start_index, numbers.Integral):
            # Keras makes an int64 tensor of an integer of NumPy; TensorFlow adds none to int32.
            start_index = ops.cast(start_index, "int32")
        if training:
            self.drop_cached_scores()
        if self._cached_scores is None:
            scores = self.compute_scores(*lengths, start_index)
        else:
            query_length, key_length = lengths
            scores = ops.slice(
                self._cached_scores,
                (0, 0, start_index, 0),
                (1, self.num_score_heads, query_length, key_length),
            )
        if self.num_score_heads != self.num_heads:
            scores = ops.broadcast_to(scores, (1, self.num_heads, *lengths))
        return scores

    def _checked_lengths(self, query, key, start_index):
        query_length = ops.shape(query)[1]
        key_length = query_length if key is None else ops.shape(key)[1]
        known_start = start_index if isinstance(start_index, numbers.Integral) else 0
        if known_start < 0:
            raise ValueError(f"`start_index` must not be negative. Received: {start_index}")
        if self.max_length is None:
            return query_length, key_length
        if isinstance(query_length, int):
            end = query_length + known_start
            validation.length_within(end, self.max_length, "max_length", "query")
        else:
            query_length = validation.length_within(
                query_length, self.max_length, "max_length", "query"
            )
        limit = "max_length" if self.key_length == self.max_length else "key_length"
        return query_length, validation.length_within(key_length, self.key_length, limit, "key")

    def cache_scores(self, on_drop=None):
        """Compute the scores of all positions now, and use them until the weights change.

        Paper, section 3.1: the positional scores do not depend on the input, so they can be
        computed once before inference. They are dropped by a call with `training=True` and by
        any assignment that changes a weight of this layer. `keras_diet.layers.cache_positions`
        prepares whole models.

        Args:
            on_drop: Called without arguments once the cached scores have been dropped.
        """
        self.check_cacheable()
        self.drop_cached_scores()
        scores = self.compute_scores(self.max_length, self.key_length, 0)
        self._cached_scores = ops.stop_gradient(ops.cast(scores, self.compute_dtype))
        self._stop_watching = _watch_assignments(self.weights, self.drop_cached_scores)
        self._on_drop = on_drop

    def check_cacheable(self):
        """Raise a `ValueError` if `cache_scores` cannot do its work."""
        if not self.built:
            raise ValueError(f"Layer '{self.name}' must be built before its scores are cached.")
        if self.max_length is None:
            raise ValueError(
                f"The scores of layer '{self.name}' cannot be cached: there are infinitely many. "
                "Pass `max_length` to its constructor. Received: max_length=None"
            )

    def drop_cached_scores(self):
        """Forget the scores kept by `cache_scores`; without them nothing happens."""
        if self._cached_scores is None:
            return
        self._cached_scores = None
        self._stop_watching()
        if self._on_drop is not None:
            self._on_drop()

    @property
    def has_cached_scores(self):
        """Whether scores computed by `cache_scores` are in use."""
        return self._cached_scores is not None

    def compute_output_spec(self, query, key=None, start_index=0, training=None):
        """Return the symbolic scores, `(1, num_heads, T, S)`."""
        key = query if key is None else key
        shape = (1, self.num_heads, query.shape[1], key.shape[1])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        """Return the constructor's arguments."""
        config = super().get_config()
        config.update(
            {
                "num_heads": self.num_heads,
                "max_length": self.max_length,
                "key_length": self.key_length,
                "share_heads": self.share_heads,
                "initializer": keras.initializers.serialize(self.initializer),
            }
        )
        return config


def _watch_assignments(variables, on_change):
    """Call `on_change` when a variable is given another value; return a function that stops it.

    Keras has no hook for "a weight was set". `load_weights`, `set_weights` and JAX's training
    loop all end in `variable.assign`, so that is shadowed on these few instances. JAX's `predict`
    assigns every weight the value that it has, which is no change.
    """

    def shadow(variable):
        assign = variable.assign
        value_then = np.array(ops.convert_to_numpy(variable))

        def assign_and_report(value):
            if not _equals(value, value_then):
                on_change()
            return assign(value)

        variable.assign = assign_and_report

    def stop():
        for variable in variables:
            del variable.assign

    for variable in variables:
        shadow(variable)
    return stop


def _equals(value, array):
    try:
        return np.array_equal(ops.convert_to_numpy(value), array)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        # A symbolic value inside a traced function: who knows what it will be.
        return False
