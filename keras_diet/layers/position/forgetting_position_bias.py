"""Forgetting attention: each token says how much of the past is forgotten."""

from typing import Any

import keras
from keras import ops

from keras_diet import _backend
from keras_diet.layers.initializers import add_weight
from keras_diet.layers.position.position_bias import PositionBias
from keras_diet.layers.position.position_encoding import PositionEncoding
from keras_diet.types import Initializer, Integer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_diet")
class ForgettingPositionBias(PositionBias):
    """The sum of the logarithms of forget gates between key and query (FoX).

    For each head, with the hidden state `x_l` of token `l`:

        B_ij = min(c_i - c_j, 0),  c_i = sum_{l <= i} log f_l,  f_l = sigmoid(w . x_l + b)

    So the weight of key `j` is multiplied by the gates `f_l` of all tokens after it, up to query
    `i`. With a constant gate the layer is ALiBi. The bias has rank 2: its `features` are `(c_i, 1)`
    and `(1, -c_j)`, without the minimum, which changes only keys after the query. Gates and sums
    are in float32 under every policy. Under bfloat16, on GPUs and on TPUs there are no `features`,
    because products would round the sums.

    The paper has a causal mask. Without one, use `bidirectional`:

        B_ij = -|c_i - c_j|

    This is the same for keys before the query. Keys after it have the gates from the query to the
    key. This form is not from the paper, and has no features.

    Args:
        num_heads: int. Number of attention heads `H`.
        max_length: int or `None`. Largest number of positions, in tokens. Defaults to `None`, which
            means any.
        bidirectional: bool. Whether keys after the query are forgotten too. Defaults to `False`,
            which needs a causal mask.
        share_heads: bool. Whether all heads have the same gates. Defaults to `False`.
        initializer: Initializer of `w`. Defaults to `None`, which means
            `keras.initializers.TruncatedNormal(stddev=0.02)`. `b` begins at zero.
        **kwargs: Keyword arguments of `keras.layers.Layer`.

    Call arguments:
        query: Hidden states `(B, T, dim)`. Only the length is read if there is a `key`.
        key: Hidden states `(B, S, dim)` of all tokens, or what `project_keys` returned for them.
            `None` for `query`.
        start_index: int or scalar tensor. Position of the first query in `key`. Defaults to `0`.

    Returns:
        Scores of shape `(B, num_heads, T, S)`, in float32.

    Raises:
        ValueError: If a size is not a positive integer or a sequence is longer than `max_length`.

    Example:

    ```python
    x = np.random.normal(size=(2, 10, 32)).astype("float32")
    position_bias = keras_diet.layers.ForgettingPositionBias(num_heads=4)
    attention = keras_diet.layers.BiasedMultiHeadAttention(num_heads=4, key_dim=8)
    y = attention(x, x, attention_bias=position_bias, use_causal_mask=True)
    ```

    References:
     - [Lin et al., 2025](https://arxiv.org/abs/2503.02130), equations 3 to 5
    """

    any_length = True
    # The sums between two tokens of a document are the same wherever it begins.
    distance_only = True
    reads_content = True
    key_size = 1
    rank = 2

    def __init__(
        self,
        num_heads: int,
        max_length: int | None = None,
        bidirectional: bool = False,
        share_heads: bool = False,
        initializer: Initializer = None,
        **kwargs: Any,
    ) -> None:
        # Keras would round the gates in a memory, which are an input.
        kwargs |= {"autocast": False}
        super().__init__(num_heads, max_length, None, share_heads, initializer, **kwargs)
        self.bidirectional = bidirectional
        # GPUs and TPUs round the factors of a product in float32 to TF32 or bfloat16.
        rounds = self.compute_dtype == "bfloat16" or _backend.platform() != "cpu"
        if bidirectional or rounds:
            self.features = None  # type: ignore[method-assign, assignment]

    def build(self, query_shape: Any = None, key_shape: Shape | None = None) -> None:
        """Create `gate_kernel` and `gate_bias`."""
        heads = (self.num_score_heads,)
        shape = (query_shape[-1], *heads)
        # The gates are computed in float32.
        self.gate_kernel = add_weight(self, "gate_kernel", shape, autocast=False)
        self.gate_bias = add_weight(self, "gate_bias", heads, "zeros", autocast=False)

    def project_keys(self, key: Tensor) -> Tensor:
        """Return the logarithms of the gates `(B, S, num_heads, 1)`."""
        kernel, bias, key = (
            ops.cast(each, self.score_dtype) for each in (self.gate_kernel, self.gate_bias, key)
        )
        gates = ops.expand_dims(ops.log_sigmoid(ops.matmul(key, kernel) + bias), -1)
        return ops.repeat(gates, self.num_heads, axis=2) if self.share_heads else gates

    def _sums(self, query, key, start_index):
        """Return the sums `(B, T or S, H)` of all tokens up to each query and each key."""
        gates = key if len(key.shape) == 4 else self.project_keys(key)
        of_keys = ops.cumsum(gates[..., 0], axis=1)
        batch_size, _, num_heads = ops.shape(of_keys)
        size = (batch_size, ops.shape(query)[1], num_heads)
        return _backend.slice(of_keys, (0, start_index, 0), size), of_keys

    def features(
        self, query: Tensor, key: Tensor | None = None, start_index: Integer = 0
    ) -> tuple[Tensor, Tensor]:
        """Return features `(c_i, 1)` and `(1, -c_j)`, `(B, T, H, 2)` and `(B, S, H, 2)`.

        Args:
            query: As in the call.
            key: As in the call.
            start_index: As in the call.
        """
        self._checked_lengths(query, key, start_index)
        of_queries, of_keys = self._sums(query, query if key is None else key, start_index)
        query_features = ops.stack([of_queries, ops.ones_like(of_queries)], axis=-1)
        return query_features, ops.stack([ops.ones_like(of_keys), -of_keys], axis=-1)

    def compute_scores(self, query: Tensor, key: Tensor, start_index: Integer) -> Tensor:
        """Return `min(c_i - c_j, 0)`, or with `bidirectional`, `-|c_i - c_j|`."""
        of_queries, of_keys = self._sums(query, key, start_index)
        of_queries, of_keys = (ops.transpose(x, (0, 2, 1)) for x in (of_queries, of_keys))
        scores = ops.expand_dims(of_queries, 3) - ops.expand_dims(of_keys, 2)
        # A causal mask hides large scores of keys after the query, but a kernel in bfloat16 gets
        # each row relative to its largest score.
        return -ops.abs(scores) if self.bidirectional else ops.minimum(scores, 0.0)


def _bias(num_heads, max_length, is_causal=False, **kwargs):
    return ForgettingPositionBias(num_heads, max_length, not is_causal, **kwargs)


FORGETTING = PositionEncoding(
    _bias, sharing_modes=("none", "head-wise", "layer-wise"), self_attention_only=True
)
