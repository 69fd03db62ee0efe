"""The position encodings that an encoder knows by name, a line each."""

import dataclasses

import keras

from keras_diet.layers.attention.relative_multi_head_attention import SHAW
from keras_diet.layers.position.absolute_position_bias import DIET_ABS
from keras_diet.layers.position.bucketed_relative_position_bias import T5
from keras_diet.layers.position.input_encoding import INPUT, SINUSOIDAL
from keras_diet.layers.position.position_encoding import (
    PositionEncoding,
    check_arguments,
    encoding_of_layer,
)
from keras_diet.layers.position.relative_position_bias import DIET_REL
from keras_diet.layers.position.untied_position_bias import TUPE_ABS, TUPE_REL

POSITION_ENCODINGS = {
    "diet_abs": DIET_ABS,
    "diet_rel": DIET_REL,
    "input": INPUT,
    "diet_abs_input": dataclasses.replace(DIET_ABS, embedding=INPUT.embedding),
    "sinusoidal": SINUSOIDAL,
    "shaw": SHAW,
    "t5": T5,
    "tupe_abs": TUPE_ABS,
    "tupe_rel": TUPE_REL,
    "none": PositionEncoding(allows_projection=True),
}
_BUILT_IN = frozenset(POSITION_ENCODINGS)


def register_position_encoding(name, encoding):
    """Make an encoding of your own known by name to `DietEncoder` and `DietBertBackbone`.

    A model that uses the name can be saved and loaded; whoever loads it must have registered the
    same encoding before. Registering a name of yours again replaces it for models made later.

    Args:
        name: str. A name that is none of the library's own.
        encoding: `PositionEncoding`.

    Raises:
        ValueError: If the name is empty, no string or one of the library's own, or `encoding` is no
            `PositionEncoding`.

    Example:

    ```python
    keras_diet.layers.register_position_encoding(
        "causal_t5",
        keras_diet.layers.PositionEncoding(
            bias=lambda sizes, **kwargs: keras_diet.layers.BucketedRelativePositionBias(
                sizes.num_heads, bidirectional=False, **kwargs
            ),
            sharing_modes=("layer-wise", "none"),
        ),
    )
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="causal_t5")
    ```
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"`name` must be a string that is not empty. Received: name={name!r}")
    if name in _BUILT_IN:
        raise ValueError(
            f"`name` is taken by an encoding of keras_diet: choose another. Received: name={name!r}"
        )
    if not isinstance(encoding, PositionEncoding):
        raise ValueError(f"`encoding` must be a `PositionEncoding`. Received: {encoding!r}")
    POSITION_ENCODINGS[name] = encoding


def find_position_encoding(position_encoding, rank=None, sharing=None, projection_dim=None):
    """Return the `PositionEncoding` of a name or of a bias layer of the user's own.

    Raises a `ValueError` for an unknown name, and for arguments without meaning.
    """
    if isinstance(position_encoding, keras.layers.Layer):
        encoding, name = encoding_of_layer(position_encoding), "a bias layer"
    elif isinstance(position_encoding, str) and position_encoding in POSITION_ENCODINGS:
        encoding, name = POSITION_ENCODINGS[position_encoding], repr(position_encoding)
    else:
        raise ValueError(
            f"`position_encoding` must be one of {', '.join(map(repr, POSITION_ENCODINGS))}, a "
            "name given to `keras_diet.layers.register_position_encoding` before, or a bias layer. "
            f"Received: position_encoding={position_encoding!r}"
        )
    check_arguments(encoding, name, rank, sharing, projection_dim)
    return encoding
