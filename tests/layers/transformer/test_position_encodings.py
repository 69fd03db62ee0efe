"""The position encodings that an encoder knows, and custom encodings."""

import numpy as np
import pytest

from keras_diet.layers import (
    POSITION_ENCODINGS,
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    BucketedRelativePositionBias,
    DietEncoder,
    EncoderSizes,
    FirePositionBias,
    KerplePositionBias,
    LinformerMultiHeadAttention,
    PositionEncoding,
    RelativeMultiHeadAttention,
    RelativePositionBias,
    RotaryMultiHeadAttention,
    TransformerXLMultiHeadAttention,
    UntiedPositionBias,
    register_position_encoding,
)
from keras_diet.layers.position.input_encoding import SINUSOIDAL, make_input_encoding
from keras_diet.layers.position.position_encoding import SHARING_MODES
from keras_diet.layers.transformer.position_encodings import find_position_encoding
from tests import reference
from tests.helpers import assert_close
from tests.layers.diet_encoders import BATCH, LENGTH, Slopes, make_encoder, make_inputs

pytestmark = pytest.mark.any_backend
BIASES = {
    "diet_abs": AbsolutePositionBias,
    "diet_abs_input": AbsolutePositionBias,
    "diet_rel": RelativePositionBias,
    "fire": FirePositionBias,
    "kerple": KerplePositionBias,
    "t5": BucketedRelativePositionBias,
    "tupe_abs": UntiedPositionBias,
    "tupe_rel": UntiedPositionBias,
}
OWN_ATTENTION = {
    "shaw": RelativeMultiHeadAttention,
    "rotary": RotaryMultiHeadAttention,
    "transformer_xl": TransformerXLMultiHeadAttention,
}
# The only way of sharing, or none.
SHARING = {"shaw": "head-wise", "alibi": "layer-wise", "sandwich": "layer-wise"}
SHARING |= {"transformer_xl": "none", "input": None, "sinusoidal": None, "rotary": None}
SHARING |= {"none": None}
PROJECTABLE = ("diet_abs", "diet_abs_input", "input", "sinusoidal", "none")


def built(name, hidden_dim=18, **kwargs):
    encoder = DietEncoder(2, 3, 11, name, max_sequence_length=7, **kwargs)
    encoder.build((BATCH, LENGTH, hidden_dim))
    return encoder


def test_names_and_sharing():
    assert set(POSITION_ENCODINGS) == {*BIASES, *SHARING}
    for name, encoding in POSITION_ENCODINGS.items():
        if name in SHARING:
            assert encoding.sharing_modes == tuple(filter(None, [SHARING[name]]))
        else:
            default = "none" if name in ("diet_rel", "fire") else "layer-wise"
            assert encoding.sharing_modes[0] == default
            assert set(encoding.sharing_modes) == set(SHARING_MODES)
        at_input = name in ("input", "sinusoidal", "diet_abs_input")
        assert (encoding.embedding is not None) == at_input
        assert encoding.allows_projection == (name in PROJECTABLE)


@pytest.mark.parametrize("name", POSITION_ENCODINGS)
def test_layers_and_their_sizes(name):
    encoder = built(name, dtype="mixed_bfloat16")
    for block in encoder.transformer_layers:
        layer = block.self_attention
        assert type(layer) is OWN_ATTENTION.get(name, BiasedMultiHeadAttention)
        assert (layer.num_heads, layer.key_dim) == (3, 6)
        assert layer.scale == (12**-0.5 if name.startswith("tupe") else None)
    if name in BIASES:
        assert {type(bias) for bias in encoder.position_biases} == {BIASES[name]}
    names = {bias.name for bias in encoder.position_biases}
    assert len(names) == len(encoder.position_biases)
    for bias in encoder.position_biases:
        assert (bias.num_heads, bias.max_length) == (3, 7)
        assert (bias.compute_dtype, bias.variable_dtype) == ("bfloat16", "float32")


def test_arguments_of_encodings():
    assert built("diet_abs").position_biases[0].rank == 6
    assert built("diet_abs", rank=11).position_biases[0].rank == 11
    lin = built("diet_abs", projection_dim=2, segment_encoding="none")
    assert lin.position_biases[0].key_length == 2
    assert built("t5").position_biases[0].num_buckets == 32
    for max_distance in (None, 19):
        arguments = {"max_distance": max_distance}
        assert built("t5", **arguments).position_biases[0].max_distance == (max_distance or 128)
        assert built("tupe_rel", **arguments).position_biases[0].max_distance == max_distance
        shaw = built("shaw", **arguments).transformer_layers[0].self_attention
        assert (shaw.max_distance, shaw.use_value_embedding) == (max_distance or 1024, True)
    tupe = built("tupe_abs").position_biases[0]
    assert (tupe.key_dim, tupe.position_dim, tupe.untie_cls, tupe.relative) == (6, 18, True, False)
    assert built("tupe_rel").position_biases[0].relative
    for name in PROJECTABLE:
        encoder = built(name, projection_dim=2, segment_encoding="none", dropout=0.5)
        layer = encoder.transformer_layers[0].self_attention
        assert type(layer) is LinformerMultiHeadAttention
        assert (layer.sequence_length, layer.projection_dim, layer.dropout) == (7, 2, 0.5)
    with pytest.raises(ValueError, match=r"`num_heads`.*hidden_dim=15, num_heads=2"):
        _ = EncoderSizes(num_layers=2, num_heads=2, hidden_dim=15, max_length=7).head_dim


def test_sines_are_not_computed_in_half_precision():
    sizes = EncoderSizes(1, 3, 6, 300)
    encoding = make_input_encoding(SINUSOIDAL, sizes, None, "bfloat16")
    expected = reference.sinusoidal_positions(300, 6)[None]
    # The steps of bfloat16 are 1/256 near one, and 2 above 256.
    assert_close(encoding(np.zeros((1, 300, 6))), expected, 1e-2)


# === Custom encodings ===


def test_custom_encoding_in_an_encoder(rng, register):
    name = register(
        bias=lambda sizes, share_heads, **kwargs: Slopes(sizes.num_heads, **kwargs),
        attention=lambda sizes, **kwargs: BiasedMultiHeadAttention(
            sizes.num_heads, sizes.head_dim, scale=0.7, **kwargs
        ),
        sharing_modes=("none", "layer-wise"),
    )
    for sharing, count in ((None, 2), ("layer-wise", 1)):
        encoder = make_encoder(rng, position_encoding=name, sharing=sharing)
        assert [type(bias) for bias in encoder.position_biases] == [Slopes] * count
        assert {block.self_attention.scale for block in encoder.transformer_layers} == {0.7}
        copy = DietEncoder.from_config(encoder.get_config())
        x, segment_ids = make_inputs(rng)
        copy.build(x.shape)
        copy.set_weights(encoder.get_weights())
        assert_close(copy(x, segment_ids=segment_ids), encoder(x, segment_ids=segment_ids), 1e-6)
    # A custom name can be registered again, a name of the library cannot.
    encoding = PositionEncoding()
    register_position_encoding(name, encoding)
    assert find_position_encoding(name) is encoding
    with pytest.raises(ValueError, match=r"`name` is taken.*'t5'"):
        register_position_encoding("t5", PositionEncoding())


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"bias": Slopes}, "`sharing_modes` must be a tuple.*'head-wise'"),
        ({"bias": Slopes, "sharing_modes": ("layerwise",)}, "`sharing_modes` must be a tuple"),
        ({"sharing_modes": ("head-wise", "layer-wise")}, "`sharing_modes` must be a tuple"),
        ({"scale": len, "attention": Slopes}, "`scale` is only used without `attention`"),
    ],
)
def test_encodings_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PositionEncoding(**arguments)
