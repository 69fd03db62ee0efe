"""A table of vectors of distances, which attention layers share."""

from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.configuration import FromArguments
from keras_diet.layers.initializers import add_weight, embedding_initializer
from keras_diet.types import Initializer, Shape, Tensor

# Of the layer normalization, as in DeBERTa.
EPSILON = 1e-7


@keras.saving.register_keras_serializable(package="keras_diet")
class PositionTable(FromArguments, keras.layers.Layer):
    """Learned vectors, one for each row, with a layer normalization if `normalize`.

    Nobody calls it. Attention layers read `vectors()` and project them.

    Args:
        num_rows: int. Number of vectors.
        normalize: bool. Whether the vectors are normalized, as in DeBERTa v2. Defaults to `True`.
        initializer: Initializer of the vectors. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Example:

    ```python
    table = keras_diet.layers.PositionTable(num_rows=9)
    table.build((None, None, 32))
    vectors = table.vectors()  # (9, 32)
    ```
    """

    def __init__(
        self,
        num_rows: int,
        normalize: bool = True,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_rows = validation.positive_int("num_rows", num_rows)
        self.normalize = normalize
        self.initializer = embedding_initializer(initializer)
        # Whether a layer got it as an argument, so that other layers may have it.
        self.is_shared = False

    def build(self, inputs_shape: Shape) -> None:
        """Create `embedding`, of the width of the inputs of attention, and the normalization."""
        self.dim: Any = inputs_shape[-1]
        shape = (self.num_rows, self.dim)
        self.embedding = add_weight(self, "embedding", shape)
        self.layer_norm = None
        if self.normalize:
            self.layer_norm = keras.layers.LayerNormalization(
                epsilon=EPSILON, dtype=self.dtype_policy, name="layer_norm"
            )
            self.layer_norm.build(shape)

    def vectors(self) -> Tensor:
        """Return the vectors `(num_rows, dim)`."""
        vectors = ops.cast(self.embedding, self.compute_dtype)
        return vectors if self.layer_norm is None else self.layer_norm(vectors)
