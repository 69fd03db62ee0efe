"""The scores of a position bias, kept instead of its parameters."""

from typing import Any

import keras
from keras import ops

from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.types import Shape, Tensor


def check_can_be_cached(bias: Any) -> None:
    """Raise a `ValueError` if the scores of a bias layer cannot be cached."""
    if not isinstance(bias, PositionBias):
        raise ValueError(
            "Only the scores of a `keras_diet.layers.PositionBias` can be cached. "
            f"Received: {bias}. Derive the layer from this class."
        )
    if bias.max_length is None:
        raise ValueError(
            f"The scores of layer '{bias.name}' cannot be cached without a `max_length`. "
            "Received: max_length=None. Pass a number to its constructor."
        )


@keras.saving.register_keras_serializable(package="keras_diet")
class CachedPositionBias(PositionBias):
    """The scores of a position bias, computed once and kept as a weight that is not trained.

    For each head, with query `i` and key `j`:

        B_ij = scores[i, j]

    Positional scores do not depend on the input, so they can be computed before inference
    (section 3.1 of the paper). `cache_positions` replaces each position bias by this layer.
    It holds `num_heads * max_length * key_length` numbers.

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

    fixed_arguments = ("initializer",)

    def __init__(
        self,
        num_heads: int,
        max_length: int,
        key_length: int | None = None,
        share_heads: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads,
            max_length,
            key_length=key_length,
            share_heads=share_heads,
            initializer=None,
            **kwargs,
        )

    @classmethod
    def like(cls, bias: Any) -> "CachedPositionBias":
        """Return a layer for the scores of `bias`, without the scores."""
        if isinstance(bias, cls):
            return bias
        check_can_be_cached(bias)
        return cls(
            bias.num_heads,
            bias.max_length,
            key_length=bias.key_length,
            share_heads=bias.share_heads,
            dtype=bias.dtype_policy,
            name=bias.name,
        )

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create `scores`."""
        self.scores = self.add_weight(
            name="scores",
            shape=(self.num_score_heads, self.max_length, self.key_length),
            dtype=self.compute_dtype,
            initializer="zeros",
            trainable=False,
        )
        self.built = True

    def assign_scores_of(self, bias: PositionBias) -> None:
        """Compute the scores of a built bias layer for all positions and keep them."""
        if not bias.built:
            raise ValueError(
                f"The layer '{bias.name}' must be built before its scores are cached. "
                "Received: built=False. Call the layer or its `build` first."
            )
        scores = bias.compute_scores(self.max_length, self.key_length, 0)
        self.scores.assign(ops.cast(scores[0], self.scores.dtype))

    def compute_scores(
        self, query_length: int, key_length: int, start_index: int | Tensor
    ) -> Tensor:
        """Return the scores of the given positions."""
        scores = ops.convert_to_tensor(self.scores)
        size = (self.num_score_heads, query_length, key_length)
        rows = ops.slice(scores, (0, start_index, 0), size)
        return ops.cast(ops.expand_dims(rows, 0), self.compute_dtype)
