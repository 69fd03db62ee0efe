"""Scores of pairs of tokens, from features that the user passes."""

from typing import Any

import keras
from keras import ops

from keras_diet import validation
from keras_diet.layers.configuration import FromArguments
from keras_diet.layers.initializers import add_weight, embedding_initializer
from keras_diet.types import Initializer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class PairBias(FromArguments, keras.layers.Layer):
    """A linear function of the features of each pair of tokens, added to the attention scores.

    For each head, with the features `z_ij` of query `i` and key `j`:

        B_ij = w . z_ij

    The features may be the edges of a graph, embeddings of the lengths of its shortest paths
    (Graphormer), or the pair representation of a protein (AlphaFold).

    Args:
        num_heads: int. Number of attention heads `H`.
        initializer: Initializer of `w`. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        pairs: Tensor of shape `(B, T, S, pair_dim)`.

    Returns:
        Scores of shape `(B, num_heads, T, S)`.

    Raises:
        ValueError: If `num_heads` is not a positive integer, or `pairs` has no four axes.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    pairs = np.random.normal(size=(2, 10, 10, 5)).astype("float32")
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=keras_diet.layers.PairBias(num_heads=4)(pairs))
    ```

    References:
     - [Jumper et al., 2021](https://doi.org/10.1038/s41586-021-03819-2), algorithm 7 of the methods
     - [Ying et al., 2021](https://arxiv.org/abs/2106.05234), section 3.1
    """

    def __init__(self, num_heads: int, initializer: Initializer = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = validation.positive_int("num_heads", num_heads)
        self.initializer = embedding_initializer(initializer)
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, pairs_shape: Shape) -> None:
        """Create `kernel`."""
        self.kernel = add_weight(self, "kernel", (pairs_shape[-1], self.num_heads))

    def call(self, pairs: Tensor) -> Tensor:
        kernel = ops.cast(self.kernel, self.compute_dtype)
        return ops.transpose(ops.matmul(pairs, kernel), (0, 3, 1, 2))

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """Return `None`: scores have no mask. Without it Keras warns of masked inputs."""

    def compute_output_shape(self, pairs_shape: Shape) -> Shape:
        """Return the shape of the scores, `(B, num_heads, T, S)`."""
        return (pairs_shape[0], self.num_heads, *pairs_shape[1:3])
