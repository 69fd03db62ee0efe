"""What an encoder has to know of a position encoding, and how it makes layers of it."""

import dataclasses
import itertools
from collections.abc import Callable

import keras

from keras_diet import validation
from keras_diet.layers.attention.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.attention.linformer_multi_head_attention import LinformerMultiHeadAttention

SHARING_MODES = ("none", "head-wise", "layer-wise")


@dataclasses.dataclass(frozen=True)
class EncoderSizes:
    """The sizes of an encoder, as the functions of a `PositionEncoding` get them.

    Attributes:
        num_layers: Number of blocks.
        num_heads: Number of attention heads.
        hidden_dim: Size of the hidden states.
        max_length: Number of positions, in tokens.
        rank: Rank of positional scores, or `None` for the head size.
        projection_dim: Number of projected keys of Linformer, or `None`.

    Example:

    ```python
    sizes = keras_diet.layers.EncoderSizes(
        num_layers=2, num_heads=4, hidden_dim=32, max_length=16
    )
    sizes.head_dim  # 8
    ```
    """

    num_layers: int
    num_heads: int
    hidden_dim: int
    max_length: int
    rank: int | None = None
    projection_dim: int | None = None

    @property
    def head_dim(self):
        """Size of a head, `hidden_dim / num_heads`."""
        return validation.divisible_heads(self.hidden_dim, self.num_heads)


def default_attention(sizes, **kwargs):
    """Return the attention layer of encodings that bring none: over all keys, or projected ones."""
    if sizes.projection_dim is None:
        return BiasedMultiHeadAttention(sizes.num_heads, sizes.head_dim, **kwargs)
    return LinformerMultiHeadAttention(
        sizes.num_heads, sizes.head_dim, sizes.max_length, sizes.projection_dim, **kwargs
    )


@dataclasses.dataclass(frozen=True)
class PositionEncoding:
    """How an encoder learns positions: at its input, by a score bias, or by its attention layers.

    Each function gets the `EncoderSizes` and keyword arguments for the layer that it returns, and
    any of them may be left out. `register_position_encoding` gives the encoding a name.

    Attributes:
        bias: `bias(sizes, share_heads, dtype, name)` returns a layer that is called with the hidden
            states `(B, T, hidden_dim)` and returns scores broadcastable to
            `(B, num_heads, T, T)`; with `allows_projection` and `sizes.projection_dim` it is also
            given `key`, a tensor of that length, and returns scores for that many keys.
        embedding: `embedding(sizes, dtype, name)` returns a layer that is called with the inputs
            and returns what is added to them.
        attention: `attention(sizes, dropout, kernel_initializer, bias_initializer, dtype, name)`
            returns the attention layer of a block. Defaults to `BiasedMultiHeadAttention`, or
            Linformer's where there is a `projection_dim`.
        sharing_modes: The values of `sharing` that have a meaning, the default first: some of
            `"none"`, `"head-wise"` and `"layer-wise"` with a `bias`, which is made once for all
            layers with `"layer-wise"` and given `share_heads=True` with `"head-wise"`; without a
            bias, at most the one that says how the attention layers share by themselves.
        has_rank: Whether `rank` has a meaning.
        allows_projection: Whether Linformer's `projection_dim` has a meaning.

    Raises:
        ValueError: If `sharing_modes` is no tuple of those names, empty with a `bias`, or has
            several without.

    Example:

    ```python
    # Learned vectors for the distances of keys, none of values, as in XLNet.
    keras_diet.layers.register_position_encoding(
        "xlnet",
        keras_diet.layers.PositionEncoding(
            attention=lambda sizes, **kwargs: keras_diet.layers.RelativeMultiHeadAttention(
                sizes.num_heads, sizes.head_dim, max_distance=9, use_value_embedding=False, **kwargs
            ),
            sharing_modes=("head-wise",),
        ),
    )
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="xlnet")
    y = encoder(np.ones((2, 10, 32), dtype="float32"))
    ```
    """

    bias: Callable | None = None
    embedding: Callable | None = None
    attention: Callable = default_attention
    sharing_modes: tuple = ()
    has_rank: bool = False
    allows_projection: bool = False

    def __post_init__(self):
        """Refuse sharing modes that nothing would come of."""
        modes = self.sharing_modes
        known = isinstance(modes, tuple) and all(mode in SHARING_MODES for mode in modes)
        if not known or not (modes if self.bias is not None else len(modes) <= 1):
            raise ValueError(
                f"`sharing_modes` must be a tuple of some of {SHARING_MODES}, at least one with a "
                f"`bias` and at most one without. Received: sharing_modes={modes!r}"
            )


def check_arguments(encoding, name, rank, sharing, projection_dim):
    """Raise a `ValueError` for arguments of an encoder that have no meaning with its encoding.

    Args:
        encoding: `PositionEncoding`.
        name: How messages call the encoding.
        rank: The encoder's argument, and so are the others.
        sharing: `None`, or one of `sharing_modes`.
        projection_dim: `None`, or a number of projected keys.
    """

    def check_meaning(has_meaning, argument, value):
        if not has_meaning:
            raise ValueError(
                f"`{argument}` has no meaning with position_encoding={name} and must be left at "
                f"`None`. Received: {argument}={value!r}"
            )

    if sharing is not None:
        check_meaning(encoding.sharing_modes, "sharing", sharing)
        validation.choice("sharing", sharing, encoding.sharing_modes)
    if rank is not None:
        check_meaning(encoding.has_rank, "rank", rank)
        validation.positive_int("rank", rank)
    if projection_dim is not None:
        check_meaning(encoding.allows_projection, "projection_dim", projection_dim)
        validation.positive_int("projection_dim", projection_dim)


def make_biases(encoding, sizes, sharing, dtype):
    """Return the bias layers of an encoder: none, one for all its layers, or one for each."""
    if encoding.bias is None:
        return []
    sharing = sharing or encoding.sharing_modes[0]
    arguments = {"share_heads": sharing == "head-wise", "dtype": dtype}
    if sharing == "layer-wise":
        return [encoding.bias(sizes, name="position_bias", **arguments)]
    return [
        encoding.bias(sizes, name=f"position_bias_{i}", **arguments)
        for i in range(sizes.num_layers)
    ]


def encoding_of_layer(layer):
    """Return the `PositionEncoding` of a bias layer of the user's own, which keeps its dtype.

    The first layer of an encoder gets the user's object itself, the others copies of it.
    """
    numbers = itertools.count()

    def bias(sizes, **kwargs):
        number = next(numbers)
        if number == 0:
            return layer
        return layer.from_config({**layer.get_config(), "name": f"{layer.name}_{number}"})

    return PositionEncoding(bias, sharing_modes=("layer-wise", "none"))


def serialize_position_encoding(position_encoding):
    """Return a name as it is and a bias layer as its configuration."""
    if isinstance(position_encoding, keras.layers.Layer):
        return keras.layers.serialize(position_encoding)
    return position_encoding


def deserialize_position_encoding(config):
    """Return a copy of a layer's `config` in which a bias layer is a layer again."""
    position_encoding = config.get("position_encoding")
    if not isinstance(position_encoding, dict):
        return config
    return {**config, "position_encoding": keras.layers.deserialize(position_encoding)}
