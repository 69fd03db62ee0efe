"""Describes a position encoding to an encoder, and makes its layers."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import keras

from keras_diet.layers.configuration import named_arguments
from keras_diet.types import Config

SHARING_MODES = ("none", "head-wise", "layer-wise")
# Arguments of an encoder that only some encodings use: those with a function that names them.
OPTIONAL_ARGUMENTS = (
    *("rank", "projection_dim", "max_distance", "max_wavelength", "rope_scaling"),
    "initial_score_stddev",
)


@dataclasses.dataclass(frozen=True)
class PositionEncoding:
    """Where an encoder adds positions: to its inputs, in a score bias, or in its attention layers.

    The functions make layers, so a function can be the class of a layer. Any function may be left
    out. An encoder calls it by keyword, with `dtype`, `name`, and those of these arguments that its
    signature names:

    - `num_heads`: int. Number of attention heads.
    - `key_dim`: int. Size of a head.
    - `max_length`: int. Number of positions, the `max_sequence_length` of the encoder.
    - `is_causal`: bool. Whether a token attends only to itself and earlier tokens, as in
      self-attention of a decoder.
    - `rank`, `max_distance`, `max_wavelength`, `rope_scaling`, `initial_score_stddev`: As in
      `DietEncoder`. They are left out if they are `None` there, so give them defaults. An encoder
      refuses those that no function names.
    - `table`: The layer of the function `table`, if there is one.
    - `projection_dim`: int. Number of projected keys of Linformer. Left out without Linformer. An
      encoding with a `bias` works with Linformer if `bias` names it.

    `register_position_encoding` gives the encoding a name.

    Attributes:
        bias: Returns a bias layer. The encoder calls it with the hidden states
            `(B, T, hidden_dim)`, and it returns scores broadcastable to `(B, num_heads, T, T)`.
            With Linformer the encoder also passes `key`, a tensor with `projection_dim` rows, and
            the layer returns scores for these keys. A `DietDecoder` also needs
            `rows(query, key, start_index)`, and passes `key` for other lengths.
        embedding: Returns a layer. The encoder calls it with its inputs and adds its output to
            them. A `DietDecoder` also passes `start_index`, the position of the first token, in
            steps after the first. Of the arguments above, it gets `max_length` only.
        attention: Returns the attention layer of a block. It also gets `dropout`, `use_bias`,
            `kernel_initializer` and `bias_initializer`, and `scale` if the encoder has an
            `attention_scale`. Defaults to `None`, which means `BiasedMultiHeadAttention`, or
            `LinformerMultiHeadAttention` with a `projection_dim`.
        table: Returns a layer that all attention layers share, such as a `PositionTable`. It is
            built with the shape of the inputs. Only used with `attention`.
        scale: Returns the factor of the products of queries and keys, without a `dtype` and a
            `name`. Defaults to `None`, which means `1 / sqrt(key_dim)`. Only used without
            `attention`, and without an `attention_scale` of the encoder.
        sharing_modes: tuple. The values of `sharing` that the encoding supports, the default
            first. Possible values are `"none"`, `"head-wise"` and `"layer-wise"`. With
            `"layer-wise"` the encoder makes one bias for all layers. With `"head-wise"` it passes
            `share_heads=True` to `bias`. An encoding without a `bias` has at most one value, which
            says how its attention layers share parameters.
        self_attention_only: bool. Whether the cross-attention of a decoder has no positions,
            because the scores of two sequences have no meaning. Defaults to `False`.

    Raises:
        ValueError: If `sharing_modes` is not a tuple of these names, is empty with a `bias`, or
            has several names without a `bias`; or if `scale` is given with `attention`.

    Example:

    ```python
    # Learned vectors for the distances of keys but not of values (section 2.2.2).
    def attention(num_heads, key_dim, max_distance=9, **kwargs):
        return keras_diet.layers.RelativeMultiHeadAttention(
            num_heads, key_dim, max_distance, use_value_embedding=False, **kwargs
        )

    keras_diet.layers.register_position_encoding(
        "shaw_keys",
        keras_diet.layers.PositionEncoding(attention=attention, sharing_modes=("head-wise",)),
    )
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="shaw_keys")
    y = encoder(np.ones((2, 10, 32), dtype="float32"))
    ```
    """

    bias: Callable[..., keras.layers.Layer] | None = None
    embedding: Callable[..., keras.layers.Layer] | None = None
    attention: Callable[..., keras.layers.Layer] | None = None
    scale: Callable[..., float] | None = None
    sharing_modes: tuple[str, ...] = ()
    table: Callable[..., keras.layers.Layer] | None = None
    self_attention_only: bool = False

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

    def takes(self, argument: str) -> bool:
        """Whether the encoding uses an argument of an encoder, by its name."""
        if argument == "sharing":
            return bool(self.sharing_modes)
        if argument == "projection_dim" and self.bias is None:
            return self.attention is None
        functions = (self.bias, self.attention)
        return any(each is not None and argument in named_arguments(each) for each in functions)


def call_named(function: Callable[..., Any], arguments: Config, **others: Any) -> Any:
    """Call a function of a `PositionEncoding`.

    Args:
        function: The function, or a class.
        arguments: The function gets those that its signature names, except `None`.
        **others: Arguments that every function gets.
    """
    names = named_arguments(function)
    given = {name: arguments[name] for name in names if arguments.get(name) is not None}
    return function(**given, **others)


def encoding_of_layer(layer: keras.layers.Layer) -> PositionEncoding:
    """Return the `PositionEncoding` of a custom bias layer. The layer keeps its dtype.

    The first layer of an encoder uses this bias layer. The other layers use copies of it.
    """
    numbers = itertools.count()

    def bias(**kwargs):
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
