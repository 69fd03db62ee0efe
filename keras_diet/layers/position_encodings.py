"""The position encodings that an encoder knows by name: a line each."""

import dataclasses

import keras
from keras_hub.layers import PositionEmbedding, SinePositionEncoding

from keras_diet import validation
from keras_diet.layers.absolute_position_bias import AbsolutePositionBias
from keras_diet.layers.biased_multi_head_attention import BiasedMultiHeadAttention
from keras_diet.layers.bucketed_relative_position_bias import BucketedRelativePositionBias
from keras_diet.layers.initializers import bert_initializer
from keras_diet.layers.position_encoding import PositionEncoding, encoding_of_layer
from keras_diet.layers.relative_multi_head_attention import RelativeMultiHeadAttention
from keras_diet.layers.relative_position_bias import RelativePositionBias
from keras_diet.layers.untied_position_bias import UntiedPositionBias

# The paper's parameter counts (Table 6) come out with it, although its sequences are shorter.
_SHAW_MAX_DISTANCE = 1024


def _diet_abs(sizes, **kwargs):
    rank = sizes.head_dim if sizes.rank is None else sizes.rank
    return AbsolutePositionBias(
        sizes.num_heads, sizes.max_length, rank, key_length=sizes.projection_dim, **kwargs
    )


def _diet_rel(sizes, **kwargs):
    return RelativePositionBias(sizes.num_heads, sizes.max_length, **kwargs)


def _t5(sizes, **kwargs):
    return BucketedRelativePositionBias(sizes.num_heads, max_length=sizes.max_length, **kwargs)


def _tupe_abs(sizes, relative=False, **kwargs):
    return UntiedPositionBias(
        sizes.num_heads,
        sizes.head_dim,
        sizes.max_length,
        position_dim=sizes.hidden_dim,
        relative=relative,
        **kwargs,
    )


def _tupe_rel(sizes, **kwargs):
    return _tupe_abs(sizes, relative=True, **kwargs)


def _tupe_attention(sizes, **kwargs):
    scale = (2 * sizes.head_dim) ** -0.5
    return BiasedMultiHeadAttention(sizes.num_heads, sizes.head_dim, scale=scale, **kwargs)


def _shaw_attention(sizes, **kwargs):
    return RelativeMultiHeadAttention(sizes.num_heads, sizes.head_dim, _SHAW_MAX_DISTANCE, **kwargs)


def _learned(sizes, **kwargs):
    return PositionEmbedding(sizes.max_length, initializer=bert_initializer(), **kwargs)


def _sinusoidal(sizes, dtype, name):
    # In bfloat16 neighbouring positions beyond 256 would be the same.
    return SinePositionEncoding(dtype="float32", name=name)


# The default first: what the papers found best.
_BY_LAYER = ("none", "head-wise", "layer-wise")
_BY_MODEL = ("layer-wise", "none", "head-wise")
_DIET_ABS = PositionEncoding(
    _diet_abs, sharing_modes=_BY_MODEL, has_rank=True, allows_projection=True
)

POSITION_ENCODINGS = {
    "diet_abs": _DIET_ABS,
    "diet_rel": PositionEncoding(_diet_rel, sharing_modes=_BY_LAYER),
    "input": PositionEncoding(embedding=_learned, allows_projection=True),
    "diet_abs_input": dataclasses.replace(_DIET_ABS, embedding=_learned),
    "sinusoidal": PositionEncoding(embedding=_sinusoidal, allows_projection=True),
    "shaw": PositionEncoding(attention=_shaw_attention, sharing_modes=("head-wise",)),
    "t5": PositionEncoding(_t5, sharing_modes=_BY_MODEL),
    "tupe_abs": PositionEncoding(_tupe_abs, attention=_tupe_attention, sharing_modes=_BY_MODEL),
    "tupe_rel": PositionEncoding(_tupe_rel, attention=_tupe_attention, sharing_modes=_BY_MODEL),
    "none": PositionEncoding(allows_projection=True),
}


def register_position_encoding(name, encoding):
    """Make an encoding of your own known by name to `DietEncoder` and `DietBertBackbone`.

    A model that uses the name can be saved and loaded; whoever loads it must have registered the
    same encoding before.

    Args:
        name: str. A name that is not taken.
        encoding: `PositionEncoding`.

    Raises:
        ValueError: If the name is taken or no string, `encoding` is no `PositionEncoding`, or it
            has a bias and no sharing mode.

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
    if not isinstance(name, str) or name in POSITION_ENCODINGS:
        raise ValueError(
            f"`name` must be a string other than {', '.join(map(repr, POSITION_ENCODINGS))}. "
            f"Received: name={name!r}"
        )
    if not isinstance(encoding, PositionEncoding):
        raise ValueError(f"`encoding` must be a `PositionEncoding`. Received: {encoding!r}")
    if encoding.bias is not None and not encoding.sharing_modes:
        raise ValueError(
            "An `encoding` with a bias must have `sharing_modes`, the default first. "
            f"Received: {encoding!r}"
        )
    POSITION_ENCODINGS[name] = encoding


def find_position_encoding(position_encoding, rank=None, sharing=None, projection_dim=None):
    """Return the `PositionEncoding` of a name or of a bias layer of the user's own.

    Raises a `ValueError` for an unknown name, and for arguments without meaning.
    """
    if isinstance(position_encoding, keras.layers.Layer):
        encoding, name = encoding_of_layer(position_encoding), "a bias layer"
    elif isinstance(position_encoding, str):
        validation.choice("position_encoding", position_encoding, tuple(POSITION_ENCODINGS))
        encoding, name = POSITION_ENCODINGS[position_encoding], repr(position_encoding)
    else:
        raise ValueError(
            f"`position_encoding` must be one of {', '.join(map(repr, POSITION_ENCODINGS))} "
            f"or a bias layer. Received: position_encoding={position_encoding!r}"
        )
    encoding.check(name, rank, sharing, projection_dim)
    return encoding
