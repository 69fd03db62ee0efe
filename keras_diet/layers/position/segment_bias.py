"""Segments in the attention scores."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import validation
from keras_diet.layers.configuration import FromArguments
from keras_diet.layers.initializers import add_weight, embedding_initializer
from keras_diet.types import Initializer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class SegmentBias(FromArguments, keras.layers.Layer):
    """One learned scalar per head and pair of segments, added to the attention scores.

    Equation 2 of the paper, for each head:

        B_ij = E_S[S(i), S(j)]

    where `S(i)` is the segment of query `i`, and `S(j)` is the segment of key `j`. The layer does
    not scale the term. If all keys belong to one segment, the term is constant along the keys, and
    softmax removes it.

    Args:
        num_heads: int. Number of attention heads `H`.
        num_segments: int. Number of segments. Defaults to `2`.
        share_heads: bool. Whether all heads use the same scalars. Defaults to `False`.
        initializer: Initializer of the scalars. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query_segment_ids: Integer tensor of shape `(B, T)`, in `[0, num_segments)`.
        key_segment_ids: Integer tensor of shape `(B, S)`. Defaults to `None`, which means
            `query_segment_ids`.

    Returns:
        Scores of shape `(B, num_heads, T, S)`.

    Raises:
        ValueError: If a size is not a positive integer, or an id is outside the range. The layer
            only checks ids of eager calls in host memory, where reading them is free. It does not
            check ids in compiled functions and on accelerators.

    Example:

    ```python
    segment_ids = np.array([[0, 0, 0, 1, 1]])
    segment_bias = keras_diet.layers.SegmentBias(num_heads=4)
    x = np.random.normal(size=(1, 5, 32)).astype("float32")
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=segment_bias(segment_ids))
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), equation 2
    """

    def __init__(
        self,
        num_heads: int,
        num_segments: int = 2,
        share_heads: bool = False,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_heads = validation.positive_int("num_heads", num_heads)
        self.num_segments = validation.positive_int("num_segments", num_segments)
        self.share_heads = share_heads
        self.initializer = embedding_initializer(initializer)
        self.input_spec = keras.layers.InputSpec(ndim=2)

    def build(
        self,
        query_segment_ids_shape: Shape | None = None,
        key_segment_ids_shape: Shape | None = None,
    ) -> None:
        """Create `segment_embedding`. The shapes of the inputs do not matter."""
        num_score_heads = 1 if self.share_heads else self.num_heads
        shape = (num_score_heads, self.num_segments, self.num_segments)
        self.segment_embedding = add_weight(self, "segment_embedding", shape)

    def call(self, query_segment_ids: Tensor, key_segment_ids: Tensor | None = None) -> Tensor:
        query, key = self.features(query_segment_ids, key_segment_ids)
        # b: batch; t, s: query and key positions; h: heads; r: segments. All heads have the same
        # features of the queries.
        scores = ops.einsum("btr,bshr->bhts", query[:, :, 0], key)
        if self.share_heads and self.num_heads > 1:
            batch_size, _, query_length, key_length = ops.shape(scores)
            scores = ops.broadcast_to(
                scores, (batch_size, self.num_heads, query_length, key_length)
            )
        return scores

    def features(
        self,
        query_segment_ids: Tensor,
        key_segment_ids: Tensor | None = None,
        up_to_softmax: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Return features whose inner products are the scores.

        Features take less memory than the `(T, S)` matrix of the scores.

        Args:
            query_segment_ids: As in the call.
            key_segment_ids: As in the call.
            up_to_softmax: bool. Whether to subtract `E_S[S(i), 0]` from the scores, which saves one
                feature. This value is the same for all keys of a query, so softmax removes it.
                Defaults to `False`.

        Returns:
            Query features `(B, T, H or 1, r)` and key features `(B, S, H or 1, r)`. One side holds
            one-hot segments, and the other side holds scores of segments. `r` is `num_segments`, or
            `num_segments - 1` with `up_to_softmax`.
        """
        if not self.built:
            self.build()
        query = self._one_hot(query_segment_ids)
        key = query if key_segment_ids is None else self._one_hot(key_segment_ids)
        embedding = ops.cast(self.segment_embedding, self.compute_dtype)
        if up_to_softmax and self.num_segments > 1:
            embedding, key = embedding[:, :, 1:] - embedding[:, :, :1], key[..., 1:]
            # h: heads; r, c: segments of query and key; b, t: batch and query position
            return ops.einsum("hrc,btr->bthc", embedding, query), ops.expand_dims(key, 2)
        # h: heads; r, c: segments of query and key; b, s: batch and key position
        return ops.expand_dims(query, 2), ops.einsum("hrc,bsc->bshr", embedding, key)

    def _one_hot(self, segment_ids):
        validation.segment_ids_within(segment_ids, self.num_segments)
        # PyTorch's `one_hot` checks the ids on the device, and LiteRT has no such operation.
        segments = np.arange(self.num_segments, dtype="int32")
        return ops.cast(ops.equal(ops.expand_dims(segment_ids, -1), segments), self.compute_dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """Return `None`: scores have no mask. Without it Keras warns of masked inputs."""

    def compute_output_shape(
        self, query_segment_ids_shape: Shape, key_segment_ids_shape: Shape | None = None
    ) -> Shape:
        """Return the shape of the scores, `(B, num_heads, T, S)`."""
        batch_size, query_length = query_segment_ids_shape
        key_shape = key_segment_ids_shape or query_segment_ids_shape
        return (batch_size, self.num_heads, query_length, key_shape[1])
