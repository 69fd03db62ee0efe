"""Copies for inference that hold positional scores instead of position parameters."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.position.position_bias import PositionBias, reads_content
from keras_diet.types import Config, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class CachedPositionBias(PositionBias):
    """The scores of a position bias, computed once and kept as a weight that is not trained.

    For each head, with query `i` and key `j`:

        B_ij = scores[i, j]

    Positional scores do not depend on the input, so they can be computed before inference
    (section 3.1 of the paper). `cache_positions` replaces each position bias by this layer.
    It holds `num_heads * max_length * key_length` numbers in float32.

    Args:
        num_heads: int. Number of attention heads `H`.
        max_length: int. Number of positions `n`, in tokens.
        key_length: int or `None`. Number of key positions. Defaults to `None`, which means
            `max_length`.
        share_heads: bool. Whether all heads have the same scores. Defaults to `False`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(B, T, ...)`. Only its length is read.
        key: Tensor of shape `(B, S, ...)`, or `None` for `query`. Only its length is read.
        start_index: int or scalar tensor. Position of the first query. Defaults to `0`.

    Returns:
        Scores of shape `(1, num_heads, T, S)`.

    Raises:
        ValueError: If a size is not a positive integer or a sequence is too long.

    Example:

    ```python
    position_bias = keras_diet.layers.RelativePositionBias(num_heads=4, max_length=16)
    position_bias.build()
    cached = keras_diet.layers.cache_positions(position_bias)
    scores = cached(np.zeros((1, 10)))
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 3.1
    """

    def __init__(
        self,
        num_heads: int,
        max_length: int,
        key_length: int | None = None,
        share_heads: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, key_length, share_heads, None, **kwargs)

    @classmethod
    def like(cls, bias: Any) -> "CachedPositionBias":
        """Return a layer for the scores of `bias`, without the scores."""
        if isinstance(bias, cls):
            return bias
        if reads_content(bias):
            raise ValueError(
                "Scores that depend on the content cannot be computed before inference. Received: "
                f"{bias}, which has `reads_content = True`. Use the model as it is."
            )
        cached = cls(
            bias.num_heads,
            bias.max_length,
            key_length=bias.key_length,
            share_heads=bias.share_heads,
            dtype=bias.dtype_policy,
            name=bias.name,
        )
        cached.distance_only = bias.distance_only
        return cached

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create `scores`."""
        self.scores = self.add_weight(
            name="scores",
            shape=(self.num_score_heads, self.max_length, self.key_length),
            dtype=self.score_dtype,
            autocast=False,
            initializer="zeros",
            trainable=False,
        )

    def assign_scores_of(self, bias: PositionBias) -> None:
        """Compute the scores of a built bias layer for all positions and keep them."""
        scores = bias.compute_scores(self.max_length, self.key_length, 0)
        self.scores.assign(ops.cast(scores[0], self.scores.dtype))

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return the scores of the given positions."""
        scores = ops.convert_to_tensor(self.scores)
        size = (self.num_score_heads, query_length, key_length)
        rows = _backend.slice(scores, (0, start_index, 0), size)
        return ops.expand_dims(rows, 0)

    def by_distance(
        self, query_length: Integer, key_length: Integer, start_index: Integer
    ) -> Tensor:
        """Return the first column of the cached scores, the last query first, and the first row."""
        scores = self.compute_scores(query_length, key_length, start_index)[0]
        scores = ops.broadcast_to(scores, (self.num_heads, query_length, key_length))
        return ops.concatenate([ops.flip(scores[:, 1:, 0], axis=-1), scores[:, 0]], axis=-1)


def cache_positions(model: Any) -> Any:
    """Return a copy of a model for inference, in which positional scores are computed already.

    Section 3.1 of the paper: `P_Q P_K^T` does not depend on the input, so it can be cached before
    inference. The copy holds the scores instead of the position parameters, `num_heads * max_length
    * key_length` numbers for each bias layer. Its outputs are the same, and its forward pass
    has no product of position embeddings.

    The copy has its own weights, and the model stays as it is. So the scores are never stale: if
    you train the model further, call `cache_positions` again. Training the copy leaves its
    positional scores as they are. The copy can be saved and loaded. Files of the model do not load
    into it, since their weights differ.

    Quantize the copy, or add LoRA to it, after caching.

    Args:
        model: A built model or layer with position biases: a `DietBertMaskedLM` or another task, a
            `DietBertBackbone`, a `DietEncoder`, a position bias, or a functional or sequential
            model of such layers.

    Returns:
        A model or layer of the same class. A functional or sequential model becomes a new
        functional or sequential model that is not compiled.

    Raises:
        ValueError: If a bias reads the content, or has no `max_length`. Biases inside of a custom
            layer are not found.

    Example:

    ```python
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, max_sequence_length=64)
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    y = encoder(x)
    inference_encoder = keras_diet.layers.cache_positions(encoder)
    y = inference_encoder(x)
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 3.1
    """
    if _has_bias(model):
        cached = CachedPositionBias.like(model)
        cached.build()
        cached.assign_scores_of(model)
        return cached
    if hasattr(model, "with_cached_positions"):
        return model.with_cached_positions()
    pairs = []

    def copy(layer):
        if _has_bias(layer) or hasattr(layer, "with_cached_positions"):
            return cache_positions(layer)
        if isinstance(layer, keras.Sequential) or hasattr(layer, "operations"):
            return keras.models.clone_model(layer, clone_function=copy)
        pairs.append((layer, type(layer).from_config(layer.get_config())))
        return pairs[-1][1]

    # Keras refuses a model that is neither functional nor sequential.
    copied = keras.models.clone_model(model, clone_function=copy)
    for layer, new in pairs:
        # Operations of a functional model have none.
        if isinstance(layer, keras.layers.Layer):
            new.set_weights([ops.copy(weight) for weight in layer.weights])
    return copied


def _has_bias(layer):
    return isinstance(layer, PositionBias) and not isinstance(layer, CachedPositionBias)


def arguments_of_copy(attention_implementation: str) -> Config:
    """Return the arguments of a stack or backbone that differ in its copy.

    Cached scores have no features, so `"features"` and `"indexed"` become `"auto"`.
    """
    changes: Config = {"cached_positions": True}
    if attention_implementation in ("features", "indexed"):
        changes["attention_implementation"] = "auto"
    return changes


def copy_weights(
    source: Any,
    target: Any,
    source_biases: list[PositionBias],
    target_biases: list[CachedPositionBias],
) -> None:
    """Copy the weights of a layer or model, and compute its positional scores.

    Args:
        source: A built layer or model.
        target: An equal one with cached positions.
        source_biases: The position biases of `source`.
        target_biases: The cached biases of `target`.
    """
    for cached, bias in zip(target_biases, source_biases, strict=True):
        cached.assign_scores_of(bias)
    old, new = (
        _weights_without(biases, layer)
        for biases, layer in ((source_biases, source), (target_biases, target))
    )
    for new_weight, old_weight in zip(new, old, strict=True):
        # JAX gives up arrays in training, and this one belongs to two models.
        new_weight.assign(ops.copy(old_weight))


def _weights_without(biases, model):
    positions = {id(weight) for bias in biases for weight in bias.weights}
    return [weight for weight in model.weights if id(weight) not in positions]
