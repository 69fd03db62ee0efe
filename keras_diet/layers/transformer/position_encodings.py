"""The position encodings that have a name."""

import dataclasses
from typing import Any

import keras

from keras_diet import validation
from keras_diet.layers.attention.disentangled_multi_head_attention import DEBERTA, DEBERTA_V1
from keras_diet.layers.attention.relative_multi_head_attention import SHAW
from keras_diet.layers.attention.rotary_multi_head_attention import ROTARY
from keras_diet.layers.attention.transformer_xl_multi_head_attention import TRANSFORMER_XL
from keras_diet.layers.position.absolute_position_bias import DIET_ABS
from keras_diet.layers.position.alibi_position_bias import ALIBI
from keras_diet.layers.position.bucketed_relative_position_bias import T5
from keras_diet.layers.position.fire_position_bias import FIRE
from keras_diet.layers.position.forgetting_position_bias import FORGETTING
from keras_diet.layers.position.input_encoding import INPUT, SINUSOIDAL
from keras_diet.layers.position.kerple_position_bias import KERPLE
from keras_diet.layers.position.log_cpb_bias import LOG_CPB
from keras_diet.layers.position.position_encoding import (
    PositionEncoding,
    encoding_of_layer,
)
from keras_diet.layers.position.query_relative_position_bias import QUERY_RELATIVE
from keras_diet.layers.position.relative_position_bias import DIET_REL
from keras_diet.layers.position.sandwich_position_bias import SANDWICH
from keras_diet.layers.position.untied_position_bias import TUPE_ABS, TUPE_REL

POSITION_ENCODINGS: dict[str, PositionEncoding] = {
    "diet_abs": DIET_ABS,
    "diet_rel": DIET_REL,
    "input": INPUT,
    "diet_abs_input": dataclasses.replace(DIET_ABS, embedding=INPUT.embedding),
    "sinusoidal": SINUSOIDAL,
    "shaw": SHAW,
    "t5": T5,
    "t5_input": dataclasses.replace(T5, embedding=INPUT.embedding),
    "tupe_abs": TUPE_ABS,
    "tupe_rel": TUPE_REL,
    "alibi": ALIBI,
    "kerple": KERPLE,
    "sandwich": SANDWICH,
    "fire": FIRE,
    "rotary": ROTARY,
    "transformer_xl": TRANSFORMER_XL,
    "deberta": DEBERTA,
    "deberta_v1": DEBERTA_V1,
    "query_relative": QUERY_RELATIVE,
    "forgetting": FORGETTING,
    "log_cpb": LOG_CPB,
    "none": PositionEncoding(),
}
_BUILT_IN = frozenset(POSITION_ENCODINGS)


def register_position_encoding(name: str, encoding: PositionEncoding) -> None:
    """Register a custom encoding by name for `DietEncoder` and `DietBertBackbone`.

    A model that uses the name can be saved. Register the same encoding before you load the model.
    Registering a custom name again replaces the encoding in models that are made later.

    Args:
        name: str. A name that the library does not use.
        encoding: `PositionEncoding`.

    Raises:
        ValueError: If the library uses `name`.

    Example:

    ```python
    keras_diet.layers.register_position_encoding(
        "causal_t5",
        keras_diet.layers.PositionEncoding(
            bias=lambda num_heads, **kwargs: keras_diet.layers.BucketedRelativePositionBias(
                num_heads, bidirectional=False, **kwargs
            ),
            sharing_modes=("layer-wise", "none"),
        ),
    )
    encoder = keras_diet.layers.DietEncoder(2, 4, 64, position_encoding="causal_t5")
    ```
    """
    if name in _BUILT_IN:
        raise ValueError(
            f"`name` is taken by an encoding of keras_diet. Received: name={name!r}. Choose "
            "another `name`."
        )
    POSITION_ENCODINGS[name] = encoding


def find_position_encoding(
    position_encoding: str | keras.layers.Layer, **arguments: Any
) -> PositionEncoding:
    """Return the `PositionEncoding` of a name or of a custom bias layer.

    Args:
        position_encoding: A name, or a bias layer.
        **arguments: Arguments of an encoder that not all encodings use, such as `rank`. `None`
            means that the argument is not given.

    Raises:
        ValueError: If the name is unknown, or the encoding does not use an argument.
    """
    if isinstance(position_encoding, keras.layers.Layer):
        encoding, name = encoding_of_layer(position_encoding), "a bias layer"
    elif isinstance(position_encoding, str) and position_encoding in POSITION_ENCODINGS:
        encoding, name = POSITION_ENCODINGS[position_encoding], repr(position_encoding)
    else:
        raise ValueError(
            f"`position_encoding` must be one of {', '.join(map(repr, POSITION_ENCODINGS))}, or a "
            f"bias layer. Received: position_encoding={position_encoding!r}. RoPE is 'rotary', and "
            "BERT's learned absolute positions are 'input'. Register other names with "
            "`keras_diet.layers.register_position_encoding` first."
        )
    for argument, value in arguments.items():
        if value is not None and not encoding.takes(argument):
            raise ValueError(
                f"`{argument}` is not supported with position_encoding={name}. Received: "
                f"{argument}={value!r}. Leave it at `None` or choose another encoding."
            )
    if arguments.get("sharing") is not None:
        validation.choice("sharing", arguments["sharing"], encoding.sharing_modes)
    return encoding
