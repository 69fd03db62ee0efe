"""T5: relative positions in logarithmic bins, in the attention scores."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.initializers import add_weight
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import distances_of_pairs, scores_of_distances
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class BucketedRelativePositionBias(PositionBias):
    """One learned scalar per head and bin of distances, added to the attention scores (T5).

    For each head, with query `i` and key `j`:

        B_ij = b[bucket(j - i)]

    The first half of the bins of a direction hold one distance each. These bins are exact. The
    other bins grow logarithmically up to `max_distance`, and the last bin holds all larger
    distances. A direction has `m = num_buckets / 2` bins, of which `e = m / 2` are exact. A key
    before the query, at distance `k`, falls into bin

        k                                                             if k < e
        min(e + floor((m - e) log(k / e) / log(max_distance / e)), m - 1)  otherwise

    A key after the query falls into the same bin plus `m`. With `bidirectional=False` all
    `num_buckets` bins are for keys before the query, and keys after the query fall into bin 0. The
    layer does not scale the term.

    T5 shares the scalars between all layers and does not scale the products of queries and keys.
    `DietEncoder` scales them, unless you pass `attention_scale=1.0`.

    Args:
        num_heads: int. Number of attention heads `H`.
        num_buckets: int. Number of bins, at least 2. With `bidirectional` it must be even and at
            least 4. Defaults to `32`.
        max_distance: int. Keys at this distance in tokens, and all keys further away, share a bin.
            Defaults to `128`.
        bidirectional: bool. Whether keys before and after the query have separate bins. Decoders
            use `False`. Defaults to `True`.
        share_heads: bool. Whether all heads use the same scalars. Defaults to `False`.
        max_length: int or `None`. Longest sequence, in tokens. `cache_positions` needs a number.
            Defaults to `None`, which allows any length.
        initializer: Initializer of the scalars. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Tensor of shape `(B, T, ...)`. Only its length is read.
        key: Tensor of shape `(B, S, ...)`, or `None` for `query`. Only its length is read.
        start_index: int or scalar tensor. Position of the first query. Defaults to `0`.

    Returns:
        Scores of shape `(1, num_heads, T, S)`.

    Raises:
        ValueError: If a size is not a positive integer, `num_buckets` is too small or odd,
            `max_distance` is not above the number of exact bins, or a sequence is too long.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.BucketedRelativePositionBias(num_heads=4)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=position_bias(x))
    ```

    References:
     - [Raffel et al., 2020](https://arxiv.org/abs/1910.10683), section 2.1
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), section 2.2.2
    """

    any_length = True
    distance_only = True

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        share_heads: bool = False,
        max_length: int | None = None,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_heads, max_length, None, share_heads, initializer, **kwargs)
        self.num_buckets = validation.positive_int("num_buckets", num_buckets)
        self.max_distance = validation.positive_int("max_distance", max_distance)
        self.bidirectional = bidirectional
        self._buckets = _buckets(self.num_buckets, self.max_distance, self.bidirectional)

    def build(self, query_shape: Shape | None = None, key_shape: Shape | None = None) -> None:
        """Create `bucket_embedding`."""
        shape = (self.num_buckets, self.num_score_heads)
        self.bucket_embedding = add_weight(self, "bucket_embedding", shape)

    def compute_scores(self, query_length: int, key_length: int, start_index: Integer) -> Tensor:
        """Return `b[bucket(j - i)]` for the given positions."""
        distances = distances_of_pairs(query_length, key_length, start_index)
        distances = ops.clip(distances, -self.max_distance, self.max_distance)
        # Of a vector, Keras's `take` on PyTorch cannot be exported to ONNX.
        table = ops.convert_to_tensor(self._buckets[:, None])
        buckets = ops.take(table, distances + self.max_distance, axis=0)[:, 0]
        by_distance = _backend.take_of_few(self.bucket_embedding, buckets)
        by_distance = ops.cast(by_distance, self.compute_dtype)
        return scores_of_distances(by_distance, query_length, key_length)


def _buckets(num_buckets, max_distance, bidirectional):
    """Return the bin of each distance `-max_distance, ..., max_distance` of a key."""
    if num_buckets < (4 if bidirectional else 2) or (bidirectional and num_buckets % 2):
        raise ValueError(
            "`num_buckets` must be at least 2. With `bidirectional` it must be even and at least "
            f"4. Received: num_buckets={num_buckets}, bidirectional={bidirectional}. The default "
            "of 32 suits both."
        )
    one_way = num_buckets // 2 if bidirectional else num_buckets
    num_exact = one_way // 2
    if max_distance <= num_exact:
        raise ValueError(
            f"`max_distance` must be above {num_exact}, the number of exact bins in a direction. "
            f"Received: max_distance={max_distance}, num_buckets={num_buckets}. Increase "
            "`max_distance` or decrease `num_buckets`."
        )
    distance = np.arange(max_distance + 1)
    # T5 computes in float32. Some distances on a border have another bin in float64.
    position = np.log(np.maximum(distance, 1).astype("float32") / num_exact)
    position = position / np.float32(np.log(max_distance / num_exact)) * (one_way - num_exact)
    logarithmic = np.minimum(num_exact + position.astype("int32"), one_way - 1)
    bucket = np.where(distance < num_exact, distance, logarithmic)
    after = bucket[1:] + one_way if bidirectional else np.zeros(max_distance)
    return np.concatenate([bucket[::-1], after]).astype("int32")


def _bias(num_heads, max_length, is_causal, max_distance=128, **kwargs):
    sizes = {"max_length": max_length, "max_distance": max_distance}
    return BucketedRelativePositionBias(num_heads, bidirectional=not is_causal, **sizes, **kwargs)


T5 = PositionEncoding(_bias, sharing_modes=("layer-wise", "none", "head-wise"))
