"""Describes a position encoding to an encoder, and makes its layers."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import keras

from keras_diet import validation
from keras_diet.types import Config

SHARING_MODES = ("none", "head-wise", "layer-wise")


@dataclasses.dataclass(frozen=True)
class EncoderSizes:
    """The sizes of an encoder or decoder. The functions of a `PositionEncoding` get them.

    Attributes:
        num_layers: Number of blocks.
        num_heads: Number of attention heads.
        hidden_dim: Size of the hidden states.
        max_length: Number of positions, in tokens.
        rank: Rank of positional scores, or `None` for the head size.
        projection_dim: Number of projected keys of Linformer, or `None`.
        max_distance: Distance of tokens from which on all share their parameters, or `None` for the
            default of the encoding.
        max_wavelength: Base of the wavelengths of rotary positions in the layer whose attention is
            made, or `None` for the default of the encoding.
        is_causal: Whether a token attends only to itself and earlier tokens, as in self-attention
            of a decoder.
        initial_score_stddev: Standard deviation of the positional scores before training, or `None`
            for the default of the encoding.

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
    max_distance: int | None = None
    max_wavelength: float | None = None
    is_causal: bool = False
    initial_score_stddev: float | None = None

    @property
    def head_dim(self) -> int:
        """Size of a head, `hidden_dim / num_heads`."""
        return validation.divisible_heads(self.hidden_dim, self.num_heads)


@dataclasses.dataclass(frozen=True)
class PositionEncoding:
    """Where an encoder adds positions: to its inputs, in a score bias, or in its attention layers.

    Each function gets the `EncoderSizes` of the encoder. Functions that return a layer also get its
    keyword arguments. Any function may be left out. `register_position_encoding` gives the encoding
    a name.

    Attributes:
        bias: `bias(sizes, share_heads, dtype, name)` returns a bias layer. The encoder calls it
            with the hidden states `(B, T, hidden_dim)`, and it returns scores broadcastable to
            `(B, num_heads, T, T)`. With Linformer the encoder also passes `key`, a tensor with
            `projection_dim` rows, and the layer returns scores for these keys. A `DietDecoder`
            also needs `rows(query, key, start_index)`, and passes `key` for other lengths.
        embedding: `embedding(sizes, dtype, name)` returns a layer. The encoder calls it with its
            inputs and adds its output to them. A `DietDecoder` also passes `start_index`, the
            position of the first token, in steps after the first.
        attention: `attention(sizes, dropout, use_bias, kernel_initializer, bias_initializer, dtype,
            name)` returns the attention layer of a block. It also gets `scale`, if the encoder has
            an `attention_scale`. Defaults to `None`, which means `BiasedMultiHeadAttention`, or
            `LinformerMultiHeadAttention` with a `projection_dim`.
        scale: `scale(sizes)` returns the factor of the products of queries and keys. Defaults to
            `None`, which means `1 / sqrt(head_dim)`. Only used without `attention`, and without an
            `attention_scale` of the encoder.
        sharing_modes: tuple. The values of `sharing` that the encoding supports, the default
            first. Possible values are `"none"`, `"head-wise"` and `"layer-wise"`. With
            `"layer-wise"` the encoder makes one bias for all layers. With `"head-wise"` it passes
            `share_heads=True`. An encoding without a `bias` has at most one value, which says how
            its attention layers share parameters.
        has_rank: bool. Whether the encoding uses `rank`.
        has_max_distance: bool. Whether the encoding uses `max_distance`.
        has_max_wavelength: bool. Whether the encoding uses `max_wavelength`.
        has_initial_score_stddev: bool. Whether the encoding uses `initial_score_stddev`.
        allows_projection: bool. Whether the encoding works with Linformer's `projection_dim`.

    Raises:
        ValueError: If `sharing_modes` is not a tuple of these names, is empty with a `bias`, or
            has several names without a `bias`; or if `scale` is given with `attention`.

    Example:

    ```python
    # Learned vectors for the distances of keys but not of values (section 2.2.2).
    keras_diet.layers.register_position_encoding(
        "shaw_keys",
        keras_diet.layers.PositionEncoding(
            attention=lambda sizes, **kwargs: keras_diet.layers.RelativeMultiHeadAttention(
                sizes.num_heads, sizes.head_dim, max_distance=9, use_value_embedding=False, **kwargs
            ),
            sharing_modes=("head-wise",),
        ),
    )
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="shaw_keys")
    y = encoder(np.ones((2, 10, 32), dtype="float32"))
    ```
    """

    bias: Callable[..., keras.layers.Layer] | None = None
    embedding: Callable[..., keras.layers.Layer] | None = None
    attention: Callable[..., keras.layers.Layer] | None = None
    scale: Callable[[EncoderSizes], float] | None = None
    sharing_modes: tuple[str, ...] = ()
    has_rank: bool = False
    has_max_distance: bool = False
    has_max_wavelength: bool = False
    has_initial_score_stddev: bool = False
    allows_projection: bool = False

    def __post_init__(self) -> None:
        """Check that the fields fit together."""
        if self.scale is not None and self.attention is not None:
            raise ValueError(
                "`scale` is only used without `attention`. Received: both. Remove `scale`, and set "
                "the factor in the layer that `attention` returns."
            )
        modes = self.sharing_modes
        known = isinstance(modes, tuple) and all(mode in SHARING_MODES for mode in modes)
        if not known or not (modes if self.bias is not None else len(modes) <= 1):
            raise ValueError(
                f"`sharing_modes` must be a tuple of names from {SHARING_MODES}. With a `bias` it "
                "needs one name or more, without a `bias` one or none. Received: "
                f"sharing_modes={modes!r} {'without' if self.bias is None else 'with'} a `bias`"
            )


def check_arguments(
    encoding: PositionEncoding,
    name: str,
    rank: int | None,
    sharing: str | None,
    projection_dim: int | None,
    max_distance: int | None,
    max_wavelength: Any,
    initial_score_stddev: float | None,
) -> None:
    """Raise a `ValueError` for arguments of an encoder that its encoding does not support.

    Args:
        encoding: `PositionEncoding`.
        name: Name of the encoding in messages.
        rank: `None`, or the rank of positional scores.
        sharing: `None`, or one of `sharing_modes`.
        projection_dim: `None`, or a number of projected keys.
        max_distance: `None`, or the distance from which on tokens share their parameters.
        max_wavelength: `None`, or the base of the wavelengths, of all layers or for each.
        initial_score_stddev: `None`, or the standard deviation of the scores before training.
    """

    for argument, value, is_supported in (
        ("sharing", sharing, encoding.sharing_modes),
        ("rank", rank, encoding.has_rank),
        ("projection_dim", projection_dim, encoding.allows_projection),
        ("max_distance", max_distance, encoding.has_max_distance),
        ("max_wavelength", max_wavelength, encoding.has_max_wavelength),
        ("initial_score_stddev", initial_score_stddev, encoding.has_initial_score_stddev),
    ):
        if value is not None and not is_supported:
            raise ValueError(
                f"`{argument}` is not supported with position_encoding={name}. Received: "
                f"{argument}={value!r}. Leave it at `None` or choose another encoding."
            )
        if argument == "sharing" and sharing is not None:
            validation.choice("sharing", sharing, encoding.sharing_modes)
        if argument in ("rank", "projection_dim", "max_distance"):
            validation.optional_positive_int(argument, value)


def encoding_of_layer(layer: keras.layers.Layer) -> PositionEncoding:
    """Return the `PositionEncoding` of a custom bias layer. The layer keeps its dtype.

    The first layer of an encoder uses this bias layer. The other layers use copies of it.
    """
    numbers = itertools.count()

    def bias(sizes, **kwargs):
        number = next(numbers)
        if number == 0:
            return layer
        return layer.from_config({**layer.get_config(), "name": f"{layer.name}_{number}"})

    return PositionEncoding(bias, sharing_modes=("layer-wise", "none"))


def another_position_encoding(position_encoding: str | keras.layers.Layer) -> Any:
    """Return a name unchanged, and a copy of a bias layer with new weights."""
    if isinstance(position_encoding, keras.layers.Layer):
        return position_encoding.from_config(position_encoding.get_config())
    return position_encoding


def serialize_position_encoding(position_encoding: str | keras.layers.Layer) -> str | Config:
    """Return a name unchanged, and a bias layer as its configuration."""
    if isinstance(position_encoding, keras.layers.Layer):
        return keras.layers.serialize(position_encoding)
    return position_encoding


def deserialize_position_encoding(config: Config) -> Config:
    """Return the configuration of an encoder, in which a serialized bias layer is a layer again."""
    position_encoding = config.get("position_encoding")
    if not isinstance(position_encoding, dict):
        return config
    return {**config, "position_encoding": keras.layers.deserialize(position_encoding)}
