"""The position encodings that an encoder knows by name."""

import dataclasses
from typing import Any

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


def register_position_encoding(name: str, encoding: PositionEncoding) -> None:
    """Register a custom encoding under a name for `DietEncoder` and `DietBertBackbone`.

    A model that uses the name can be saved. Register the same encoding before you load the model.
    If you register a name again, models that are made later use the new encoding.

    Args:
        name: str. A name that keras_diet does not use itself.
        encoding: `PositionEncoding`.

    Raises:
        ValueError: If the name is not a string, is empty or belongs to keras_diet, or if `encoding`
            is not a `PositionEncoding`.

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
            "`name` is taken by an encoding of keras_diet. "
            f"Received: name={name!r}. Choose another name."
        )
    if not isinstance(encoding, PositionEncoding):
        raise ValueError(f"`encoding` must be a `PositionEncoding`. Received: {encoding!r}")
    POSITION_ENCODINGS[name] = encoding


def find_position_encoding(
    position_encoding: Any,
    rank: int | None = None,
    sharing: str | None = None,
    projection_dim: int | None = None,
) -> PositionEncoding:
    """Return the `PositionEncoding` of a name or of a custom bias layer.

    Args:
        position_encoding: The argument of the encoder.
        rank: Another argument of the encoder.
        sharing: Another argument of the encoder.
        projection_dim: Another argument of the encoder.

    Raises:
        ValueError: If the name is unknown, or the encoding does not use an argument that is given.
    """
    if isinstance(position_encoding, keras.layers.Layer):
        encoding, name = encoding_of_layer(position_encoding), "a bias layer"
    elif isinstance(position_encoding, str) and position_encoding in POSITION_ENCODINGS:
        encoding, name = POSITION_ENCODINGS[position_encoding], repr(position_encoding)
    else:
        raise ValueError(
            f"`position_encoding` must be one of {', '.join(map(repr, POSITION_ENCODINGS))}, a "
            "name given to `keras_diet.layers.register_position_encoding`, or a bias layer. "
            f"Received: position_encoding={position_encoding!r}"
        )
    check_arguments(encoding, name, rank, sharing, projection_dim)
    return encoding
