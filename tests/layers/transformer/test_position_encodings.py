"""The position encodings that an encoder knows, and custom encodings."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
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
from keras_diet.layers.position.position_encoding import (
    SHARING_MODES,
    deserialize_position_encoding,
    serialize_position_encoding,
)
from keras_diet.layers.transformer.position_encodings import (
    POSITION_ENCODINGS,
    find_position_encoding,
)
from keras_diet.models import DietBertBackbone
from tests.helpers import assert_close, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    LENGTH,
    Slopes,
    make_encoder,
    make_inputs,
)

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
NOT_SHARED = ("diet_rel", "fire")
OWN_ATTENTION = {
    "shaw": RelativeMultiHeadAttention,
    "rotary": RotaryMultiHeadAttention,
    "transformer_xl": TransformerXLMultiHeadAttention,
}
WITHOUT_BIAS = ("input", "sinusoidal", "none", *OWN_ATTENTION)
ONE_SHARING = {
    "shaw": "head-wise",
    "alibi": "layer-wise",
    "sandwich": "layer-wise",
    "transformer_xl": "none",
}
PROJECTABLE = ("diet_abs", "diet_abs_input", "input", "sinusoidal", "none")


def sizes(**kwargs):
    arguments = {"num_layers": 2, "num_heads": 3, "hidden_dim": 15, "max_length": 7, **kwargs}
    return EncoderSizes(**arguments)


def make_biases(position_encoding, sharing=None, dtype="float32", **kwargs):
    encoding = find_position_encoding(position_encoding)
    return make_position_biases(encoding, sizes(**kwargs), sharing, False, dtype)


def test_names():
    assert set(POSITION_ENCODINGS) == {*BIASES, *ONE_SHARING, *WITHOUT_BIAS}


def test_sizes():
    assert sizes().head_dim == 5
    with pytest.raises(ValueError, match=r"`num_heads`.*hidden_dim=15, num_heads=2"):
        _ = sizes(num_heads=2).head_dim


@pytest.mark.parametrize("name", POSITION_ENCODINGS)
def test_default_sharing_is_what_the_papers_found_best(name):
    modes = POSITION_ENCODINGS[name].sharing_modes
    if name in BIASES:
        assert modes[0] == ("none" if name in NOT_SHARED else "layer-wise")
        assert set(modes) == set(SHARING_MODES)
    else:
        assert modes == tuple(mode for other, mode in ONE_SHARING.items() if other == name)


@pytest.mark.parametrize("sharing", [None, *SHARING_MODES])
@pytest.mark.parametrize("name", ["diet_abs", "diet_rel", "fire", "kerple", "t5", "tupe_rel"])
def test_biases(name, sharing):
    biases = make_biases(name, sharing)
    sharing = sharing or ("none" if name in NOT_SHARED else "layer-wise")
    assert [type(bias) for bias in biases] == [BIASES[name]] * (1 if sharing == "layer-wise" else 2)
    assert len({bias.name for bias in biases}) == len(biases)
    for bias in biases:
        expected = (3, 7, sharing == "head-wise")
        assert (bias.num_heads, bias.max_length, bias.share_heads) == expected


@pytest.mark.parametrize("name", WITHOUT_BIAS)
def test_no_biases(name):
    assert make_biases(name) == []


@pytest.mark.parametrize("rank, expected", [(None, 5), (11, 11)])
def test_rank_defaults_to_the_head_size(rank, expected):
    assert make_biases("diet_abs", rank=rank)[0].rank == expected


@pytest.mark.any_backend
@pytest.mark.parametrize("max_distance", [None, 19])
def test_max_distance(max_distance):
    stack = DietEncoder(2, 3, 11, position_encoding="t5", max_distance=max_distance)
    assert stack.from_config(stack.get_config()).max_distance == max_distance
    assert stack.sizes(15).max_distance == max_distance
    for name, default in (("t5", 128), ("tupe_rel", None)):
        (bias,) = make_biases(name, max_distance=max_distance)
        assert bias.max_distance == (max_distance or default), name
    shaw = make_attention(POSITION_ENCODINGS["shaw"], sizes(max_distance=max_distance))
    assert shaw.max_distance == (max_distance or 1024)


@pytest.mark.any_backend
def test_max_distance_of_an_encoding_without_distances():
    with pytest.raises(ValueError, match=r"`max_distance` is not supported.*'diet_rel'.*=19"):
        DietEncoder(2, 3, 11, position_encoding="diet_rel", max_distance=19)
    with pytest.raises(ValueError, match=r"`max_distance` must be a positive integer.*=0"):
        DietEncoder(2, 3, 11, position_encoding="shaw", max_distance=0)


def test_sizes_of_biases():
    assert make_biases("diet_abs", projection_dim=2)[0].key_length == 2
    (t5,) = make_biases("t5")
    assert (t5.num_buckets, t5.max_distance, t5.bidirectional) == (32, 128, True)
    for name, relative in (("tupe_abs", False), ("tupe_rel", True)):
        (tupe,) = make_biases(name)
        assert (tupe.key_dim, tupe.position_dim, tupe.untie_cls) == (5, 15, True)
        assert tupe.relative == relative


def test_attention_layers():
    def attention(name, **kwargs):
        layer = make_attention(POSITION_ENCODINGS[name], sizes(**kwargs), dropout=0.5, name="own")
        head_dim = sizes(**kwargs).head_dim
        found = (layer.num_heads, layer.key_dim, layer.dropout, layer.name)
        assert found == (3, head_dim, 0.5, "own")
        return layer

    for name in POSITION_ENCODINGS:
        # Rotary positions need an even size.
        layer = attention(name, **({"hidden_dim": 18} if name == "rotary" else {}))
        assert type(layer) is OWN_ATTENTION.get(name, BiasedMultiHeadAttention)
        assert layer.scale == (0.1**0.5 if name.startswith("tupe") else None)
    shaw = attention("shaw")
    assert (shaw.max_distance, shaw.use_value_embedding) == (1024, True)
    for name in PROJECTABLE:
        layer = attention(name, projection_dim=2)
        assert type(layer) is LinformerMultiHeadAttention
        assert (layer.sequence_length, layer.projection_dim) == (7, 2)


@pytest.mark.parametrize("name", ["diet_abs", "tupe_rel"])
def test_biases_have_the_dtype_policy_of_the_encoder(name):
    (bias, *_) = make_biases(name, dtype="mixed_bfloat16")
    assert bias.compute_dtype == "bfloat16"
    assert bias.variable_dtype == "float32"


def test_which_encodings_score_positions():
    silent = {name for name, encoding in POSITION_ENCODINGS.items() if encoding.embedding is None}
    assert silent == set(POSITION_ENCODINGS) - {"input", "sinusoidal", "diet_abs_input"}
    assert find_position_encoding(Slopes(3)).embedding is None


# === Custom encodings ===


@pytest.fixture
def slopes(registry):
    """The name of an encoding that is known in one test."""
    register_position_encoding(
        "slopes",
        PositionEncoding(
            bias=lambda sizes, share_heads, **kwargs: Slopes(sizes.num_heads, **kwargs),
            attention=lambda sizes, **kwargs: BiasedMultiHeadAttention(
                sizes.num_heads, sizes.head_dim, scale=0.7, **kwargs
            ),
            sharing_modes=("none", "layer-wise"),
        ),
    )
    return "slopes"


@pytest.mark.parametrize("sharing, count", [(None, 2), ("layer-wise", 1)])
def test_custom_encoding_in_an_encoder(rng, slopes, sharing, count):
    encoder = make_encoder(rng, position_encoding=slopes, sharing=sharing)
    assert [type(bias) for bias in encoder.position_biases] == [Slopes] * count
    assert {block.self_attention.scale for block in encoder.transformer_layers} == {0.7}
    copy = DietEncoder.from_config(encoder.get_config())
    assert copy.get_config() == encoder.get_config()
    x, segment_ids = make_inputs(rng)
    copy.build(x.shape)
    copy.set_weights(encoder.get_weights())
    assert_close(copy(x, segment_ids=segment_ids), encoder(x, segment_ids=segment_ids), 1e-6)
    with pytest.raises(ValueError, match=r"`sharing` must be one of 'none', 'layer-wise'"):
        DietEncoder(2, 3, 11, position_encoding=slopes, sharing="head-wise")
    with pytest.raises(ValueError, match=r"`rank` is not supported.*'slopes'"):
        DietEncoder(2, 3, 11, position_encoding=slopes, rank=5)


def test_custom_encoding_in_a_backbone(tmp_path, slopes):
    backbone = DietBertBackbone(31, 2, 3, 15, 23, position_encoding=slopes)
    assert [type(bias) for bias in backbone.encoder.position_biases] == [Slopes, Slopes]
    inputs = {name: np.ones((2, 5), "int32") for name in backbone.input}
    backbone.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.position_encoding == "slopes"
    for name, output in backbone(inputs).items():
        assert_close(loaded(inputs)[name], output, 1e-6)


@pytest.mark.usefixtures("slopes")
def test_custom_positions_at_the_input(rng):
    def ones(sizes, dtype, name):
        return keras.layers.Lambda(keras.ops.ones_like, dtype=dtype, name=name)

    register_position_encoding("ones", PositionEncoding(embedding=ones))
    encoder = make_encoder(rng, position_encoding="ones", segment_encoding="none")
    x, _ = make_inputs(rng)
    assert_close(encoder.input_encoding(x), x + 1)
    assert np.all(np.isfinite(to_numpy(encoder(x))))


@pytest.mark.parametrize(
    "name, encoding, message",
    [
        ("t5", PositionEncoding(), "`name` is taken.*'t5'"),
        (5, PositionEncoding(), "`name` must be a string.*5"),
        ("", PositionEncoding(), "`name` must be a string that is not empty"),
        ("own", Slopes, "`encoding` must be a `PositionEncoding`.*Slopes"),
    ],
)
def test_encodings_that_cannot_be_registered(name, encoding, message):
    with pytest.raises(ValueError, match=message):
        register_position_encoding(name, encoding)
    with pytest.raises(ValueError, match=r"must be one of.*'own'.*register_position_encoding"):
        find_position_encoding("own")


def test_registering_again_replaces(slopes):
    encoding = PositionEncoding()
    register_position_encoding(slopes, encoding)
    assert find_position_encoding(slopes) is encoding


@pytest.mark.parametrize(
    "arguments",
    [
        {"bias": Slopes},
        {"bias": Slopes, "sharing_modes": "none"},
        {"bias": Slopes, "sharing_modes": ("layerwise",)},
        {"sharing_modes": ("head-wise", "layer-wise")},
    ],
)
def test_sharing_modes_without_effect_are_refused(arguments):
    with pytest.raises(ValueError, match=r"`sharing_modes` must be a tuple.*'head-wise'"):
        PositionEncoding(**arguments)


def test_embeddings_of_encoder_and_backbone_get_the_same_sizes(registry):
    seen = []

    def embedding(sizes, **kwargs):
        seen.append(sizes)
        return keras.layers.Identity(**kwargs)

    register_position_encoding(
        "own", PositionEncoding(embedding=embedding, has_rank=True, allows_projection=True)
    )
    arguments = {"position_encoding": "own", "rank": 3, "projection_dim": 4}
    arguments.update(segment_encoding="none", max_sequence_length=7)
    DietBertBackbone(11, 2, 3, 6, 13, **arguments)
    DietEncoder(2, 3, 13, **arguments).build((BATCH, LENGTH, 6))
    assert seen[0] == seen[1]
    assert (seen[0].rank, seen[0].projection_dim) == (3, 4)


@pytest.mark.parametrize("position_encoding", ["diet_abs", Slopes(3, name="slopes")], ids=str)
def test_serialization(position_encoding):
    config = {"position_encoding": serialize_position_encoding(position_encoding), "rank": 2}
    restored = deserialize_position_encoding(config)
    assert restored["rank"] == 2
    if isinstance(position_encoding, str):
        assert restored == {"position_encoding": "diet_abs", "rank": 2}
    else:
        assert isinstance(config["position_encoding"], dict)
        assert restored["position_encoding"].get_config() == position_encoding.get_config()
