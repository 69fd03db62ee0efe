"""How an encoder computes its attention: all scores at once, by features, or block by block."""

from keras_diet import _backend, validation
from keras_diet.layers.attention.query_blocks import is_block_bias
from keras_diet.layers.attention.score_features import size_with_features

ATTENTION_IMPLEMENTATIONS = ("auto", "full", "features", "blockwise")

BLOCK_SIZE = 256
# The lengths from which on "auto" computes no full scores, without and with a fused kernel, which
# only needs the positional scores in full. docs/performance.md has the measurements.
LONG = 2048
LONG_FUSED = 8192


def check_implementation(implementation, position_biases, attention_layers):
    """Raise a `ValueError` if an encoder of these layers cannot compute attention that way."""
    validation.choice("attention_implementation", implementation, ATTENTION_IMPLEMENTATIONS)
    received = f"position biases {_names(position_biases)} and attention {_names(attention_layers)}"
    if implementation == "features" and not _allows_features(position_biases, attention_layers):
        raise ValueError(
            "attention_implementation='features' needs positional scores of low rank or none (a "
            "bias layer with `features`), and attention layers that take features. Pass 'auto', "
            f"'full' or 'blockwise'. Received: {received}"
        )
    if implementation == "blockwise" and not _allows_blocks(position_biases, attention_layers):
        raise ValueError(
            "attention_implementation='blockwise' needs bias layers that have `features` or are "
            "called with (query, key, start_index), and attention layers that take `block_size`. "
            f"Pass 'auto' or 'full'. Received: {received}"
        )


def choose_implementation(
    implementation, position_biases, attention_layers, length, head_dim, num_features, dtype, drops
):
    """Return `"full"`, `"features"` or `"blockwise"`: what is asked for, or best where `"auto"` is.

    Args:
        implementation: One of `ATTENTION_IMPLEMENTATIONS`.
        position_biases: List of the bias layers.
        attention_layers: List of the attention layers.
        length: int or `None`. Number of tokens; `"auto"` takes an unknown one for short.
        head_dim: int. Size of the heads, without features.
        num_features: int. Number of features beside those of positions.
        dtype: Dtype of the computation.
        drops: bool. Whether attention probabilities are dropped, which fused kernels cannot do.
    """
    if not all(map(_takes_all, attention_layers)):
        return "full"
    if implementation != "auto":
        return implementation

    def fuses(rank):
        size = size_with_features(head_dim, num_features + rank)
        return _backend.has_fused_attention(dtype, size) and not drops

    learns_bias = any(bias.trainable_variables for bias in position_biases)
    fuses_bias = fuses(0) and (not learns_bias or _backend.has_fused_gradient_of_bias())
    if not isinstance(length, int) or length < (LONG_FUSED if fuses_bias else LONG):
        return "full"
    if _allows_features(position_biases, attention_layers):
        rank = max((getattr(bias, "rank", 0) for bias in position_biases), default=0)
        if fuses(rank):
            return "features"
    return "blockwise" if _allows_blocks(position_biases, attention_layers) else "full"


def _allows_features(position_biases, attention_layers):
    return all(map(has_features, position_biases)) and all(map(_takes_all, attention_layers))


def _allows_blocks(position_biases, attention_layers):
    return all(has_features(bias) or is_block_bias(bias) for bias in position_biases) and all(
        map(_takes_all, attention_layers)
    )


def has_features(bias):
    """Whether the scores of a bias layer are the products of its `features`.

    Those of a base class are not, if the class computes its scores in another way.
    """
    if not callable(getattr(type(bias), "features", None)):
        return False
    of_features, *of_scores = (
        next(i for i, base in enumerate(type(bias).__mro__) if name in vars(base))
        for name in ("features", "compute_scores", "call")
        if hasattr(type(bias), name)
    )
    return of_features <= min(of_scores)


def _takes_all(attention):
    return getattr(attention, "accepts_features", False) and getattr(
        attention, "accepts_blocks", False
    )


def _names(layers):
    return sorted({type(layer).__name__ for layer in layers})
