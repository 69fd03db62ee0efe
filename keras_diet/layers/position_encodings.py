"""The position encodings that an encoder knows by name, and how their parameters are shared."""

import dataclasses
from collections.abc import Callable

import keras

from keras_diet import validation
from keras_diet.layers.absolute_position_bias import AbsolutePositionBias
from keras_diet.layers.relative_position_bias import RelativePositionBias

SHARING_MODES = ("none", "head-wise", "layer-wise")


@dataclasses.dataclass(frozen=True)
class PositionEncoding:
    """What an encoder has to know about one position encoding.

    Attributes:
        bias: Constructor of the bias layer, called with `num_heads`, `max_length`, `share_heads`
            (and `rank` if `has_rank`) and with layer arguments; `None` adds nothing to scores.
        default_sharing: The sharing mode that the paper found best; `None` without a bias.
        has_rank: Whether the bias takes a `rank`.
        at_input: Whether positions are added to the inputs.
    """

    bias: Callable | None = None
    default_sharing: str | None = None
    has_rank: bool = False
    at_input: bool = False


POSITION_ENCODINGS = {
    "diet_abs": PositionEncoding(AbsolutePositionBias, "layer-wise", has_rank=True),
    "diet_rel": PositionEncoding(RelativePositionBias, "none"),
    "input": PositionEncoding(at_input=True),
    "none": PositionEncoding(),
}


def check_position_encoding(position_encoding, rank, sharing):
    """Return the `PositionEncoding`, or raise a `ValueError` for arguments without meaning.

    `position_encoding` is a name or a bias layer of the user's own.
    """
    if isinstance(position_encoding, keras.layers.Layer):
        encoding, name = PositionEncoding(lambda: None, "layer-wise"), "a bias layer"
        sharing_modes = ("none", "layer-wise")
    else:
        if not isinstance(position_encoding, str):
            raise ValueError(
                f"`position_encoding` must be one of {', '.join(map(repr, POSITION_ENCODINGS))} "
                f"or a bias layer. Received: position_encoding={position_encoding!r}"
            )
        validation.choice("position_encoding", position_encoding, tuple(POSITION_ENCODINGS))
        encoding, name = POSITION_ENCODINGS[position_encoding], repr(position_encoding)
        sharing_modes = SHARING_MODES
    if sharing is not None:
        if encoding.bias is None:
            raise ValueError(_without_meaning("sharing", sharing, name))
        validation.choice("sharing", sharing, sharing_modes)
    if rank is not None:
        if not encoding.has_rank:
            raise ValueError(_without_meaning("rank", rank, name))
        validation.positive_int("rank", rank)
    return encoding


def _without_meaning(argument, value, name):
    return (
        f"`{argument}` has no meaning with position_encoding={name} and must be left at `None`. "
        f"Received: {argument}={value!r}"
    )


def make_position_biases(
    position_encoding, *, num_layers, num_heads, head_dim, max_length, rank, sharing, dtype
):
    """Return the bias layers of an encoder: none, one for all its layers, or one for each.

    Args:
        position_encoding: A name in `POSITION_ENCODINGS`, or a bias layer of the user's own.
        num_layers: int. Number of encoder layers.
        num_heads: int. Number of attention heads.
        head_dim: int. Size of a head, which is the rank if `rank` is `None`.
        max_length: int. Number of positions.
        rank: int or `None`.
        sharing: `"none"`, `"head-wise"`, `"layer-wise"`, or `None` for the paper's choice.
        dtype: The dtype policy of the layers.
    """
    encoding = check_position_encoding(position_encoding, rank, sharing)
    if encoding.bias is None:
        return []
    sharing = sharing or encoding.default_sharing
    if isinstance(position_encoding, keras.layers.Layer):
        copies = 0 if sharing == "layer-wise" else num_layers - 1
        config = position_encoding.get_config()
        return [position_encoding] + [
            position_encoding.from_config({**config, "name": f"{config['name']}_{i + 1}"})
            for i in range(copies)
        ]
    arguments = {
        "num_heads": num_heads,
        "max_length": max_length,
        "share_heads": sharing == "head-wise",
        "dtype": dtype,
    }
    if encoding.has_rank:
        arguments["rank"] = head_dim if rank is None else rank
    if sharing == "layer-wise":
        return [encoding.bias(name="position_bias", **arguments)]
    return [encoding.bias(name=f"position_bias_{i}", **arguments) for i in range(num_layers)]


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
