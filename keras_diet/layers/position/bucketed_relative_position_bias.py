"""T5: relative positions in logarithmic bins, in the attention scores."""

import keras
import numpy as np
from keras import ops

from keras_diet import _backend, validation
from keras_diet.layers.initializers import fresh
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.layers.position.relative_shift import scores_of_distances


@keras.saving.register_keras_serializable(package="keras_diet")
class BucketedRelativePositionBias(PositionBias):
    """One learned scalar per head and bin of distances, added to the attention scores (T5).

    For each head, with query `i` and key `j`:

        B_ij = b[bucket(j - i)]

    Half of the bins of a direction hold one distance each; the others grow logarithmically up to
    `max_distance`, and the last one holds everything beyond. With `m = num_buckets / 2` bins for a
    direction and `e = m / 2` of them exact, a key at distance `k` falls into bin

        k                                                             if k < e
        min(e + floor((m - e) log(k / e) / log(max_distance / e)), m - 1)  otherwise

    and keys after the query into the same bin plus `m`. If not `bidirectional`, all `num_buckets`
    bins are for keys before the query, and keys after it fall into bin 0. The term is not scaled.

    T5 shares the scalars between all layers, and does not scale the products of queries and keys;
    here they are scaled as in every other encoder.

    Args:
        num_heads: int. Number of attention heads `H`.
        num_buckets: int. Number of bins, at least 2; with `bidirectional` even and at least 4.
            Defaults to `32`.
        max_distance: int. Distance in tokens from which on all keys share a bin. Defaults to `128`.
        bidirectional: bool. Whether keys before and after the query have bins of their own.
            Defaults to `True`; decoders use `False`.
        share_heads: bool. Whether all heads use the same scalars. Defaults to `False`.
        max_length: int or `None`. Longest sequence, in tokens. Defaults to `None`, which means any;
            `cache_positions` needs a number.
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
        ValueError: If a size is not a positive integer, there are too few or an odd number of bins,
            `max_distance` is not above the exact bins, or a sequence is too long.

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

    def __init__(
        self,
        num_heads,
        num_buckets=32,
        max_distance=128,
        bidirectional=True,
        share_heads=False,
        max_length=None,
        initializer=None,
        **kwargs,
    ):
        super().__init__(
            num_heads,
            max_length,
            key_length=None,
            share_heads=share_heads,
            initializer=initializer,
            **kwargs,
        )
        self.num_buckets = validation.positive_int("num_buckets", num_buckets)
        self.max_distance = validation.positive_int("max_distance", max_distance)
        self.bidirectional = bool(bidirectional)
        self._buckets = _buckets(self.num_buckets, self.max_distance, self.bidirectional)

    def build(self, query_shape=None, key_shape=None):
        """Create `bucket_embedding`."""
        self.bucket_embedding = self.add_weight(
            name="bucket_embedding",
            shape=(self.num_buckets, self.num_score_heads),
            initializer=fresh(self.initializer),
        )
        self.built = True

    def compute_scores(self, query_length, key_length, start_index):
        """Return `b[bucket(j - i)]` of the given positions."""
        first_distance = -(start_index + query_length - 1)
        distances = _backend.arange(query_length + key_length - 1) + first_distance
        distances = ops.clip(distances, -self.max_distance, self.max_distance)
        buckets = ops.take(ops.convert_to_tensor(self._buckets), distances + self.max_distance)
        by_distance = ops.cast(ops.take(self.bucket_embedding, buckets, axis=0), self.compute_dtype)
        return scores_of_distances(by_distance, query_length, key_length)

    def get_config(self):
        """Return the constructor's arguments."""
        config = super().get_config()
        del config["key_length"]
        config.update(
            {
                "num_buckets": self.num_buckets,
                "max_distance": self.max_distance,
                "bidirectional": self.bidirectional,
            }
        )
        return config


def _buckets(num_buckets, max_distance, bidirectional):
    """Return the bins of keys at distances `-max_distance, ..., max_distance` from the query."""
    if num_buckets < (4 if bidirectional else 2) or (bidirectional and num_buckets % 2):
        raise ValueError(
            "`num_buckets` must be at least 2, and with `bidirectional` even and at least 4. "
            f"Received: num_buckets={num_buckets}, bidirectional={bidirectional}"
        )
    one_way = num_buckets // 2 if bidirectional else num_buckets
    num_exact = one_way // 2
    if max_distance <= num_exact:
        raise ValueError(
            f"`max_distance` must be above {num_exact}, the number of bins of one distance in a "
            f"direction. Received: max_distance={max_distance}, num_buckets={num_buckets}"
        )
    distance = np.arange(max_distance + 1)
    # In float32, as T5 computes it: a power of two on the border of two bins stays on its side.
    position = np.log(np.maximum(distance, 1).astype("float32") / num_exact)
    position = position / np.float32(np.log(max_distance / num_exact)) * (one_way - num_exact)
    logarithmic = np.minimum(num_exact + position.astype("int32"), one_way - 1)
    bucket = np.where(distance < num_exact, distance, logarithmic)
    after = bucket[1:] + one_way if bidirectional else np.zeros(max_distance)
    return np.concatenate([bucket[::-1], after]).astype("int32")


T5 = PositionEncoding(
    lambda sizes, **kwargs: BucketedRelativePositionBias(
        sizes.num_heads, max_length=sizes.max_length, **kwargs
    ),
    sharing_modes=("layer-wise", "none", "head-wise"),
)
