"""What the encoder's arguments may be, and what each refusal says."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    BucketedRelativePositionBias,
    DietEncoder,
    EncoderSizes,
    LinformerMultiHeadAttention,
    PositionEncoding,
    RelativeMultiHeadAttention,
    RelativePositionBias,
    UntiedPositionBias,
    register_position_encoding,
)
from keras_diet.layers.position.position_encoding import (
    SHARING_MODES,
    deserialize_position_encoding,
    serialize_position_encoding,
)
from keras_diet.layers.transformer.encoder_layers import make_attention, make_position_biases
from keras_diet.layers.transformer.position_encodings import (
    POSITION_ENCODINGS,
    find_position_encoding,
)
from keras_diet.models import DietBertBackbone
from tests.helpers import assert_close, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    NUM_HEADS,
    Slopes,
    make_encoder,
    make_inputs,
)

BIASES = {
    "diet_abs": AbsolutePositionBias,
    "diet_abs_input": AbsolutePositionBias,
    "diet_rel": RelativePositionBias,
    "t5": BucketedRelativePositionBias,
    "tupe_abs": UntiedPositionBias,
    "tupe_rel": UntiedPositionBias,
}
WITHOUT_BIAS = ("input", "sinusoidal", "shaw", "none")
PROJECTABLE = ("diet_abs", "diet_abs_input", "input", "sinusoidal", "none")


def sizes(**kwargs):
    arguments = {"num_layers": 2, "num_heads": 3, "hidden_dim": 15, "max_length": 7, **kwargs}
    return EncoderSizes(**arguments)


def make_biases(position_encoding, sharing=None, dtype="float32", **kwargs):
    encoding = find_position_encoding(position_encoding)
    return make_position_biases(encoding, sizes(**kwargs), sharing, False, dtype)


def test_names():
    assert set(POSITION_ENCODINGS) == {*BIASES, *WITHOUT_BIAS}


def test_sizes():
    assert sizes().head_dim == 5
    with pytest.raises(ValueError, match=r"`num_heads`.*hidden_dim=15, num_heads=2"):
        _ = sizes(num_heads=2).head_dim


@pytest.mark.parametrize("name", POSITION_ENCODINGS)
def test_default_sharing_is_what_the_papers_found_best(name):
    default = {"diet_rel": "none", "shaw": "head-wise"}.get(name, "layer-wise")
    modes = POSITION_ENCODINGS[name].sharing_modes
    expected = SHARING_MODES if name in BIASES else ("head-wise",) if name == "shaw" else ()
    assert set(modes) == set(expected)
    assert modes[:1] == ((default,) if expected else ())


@pytest.mark.parametrize("sharing", [None, *SHARING_MODES])
@pytest.mark.parametrize("name", BIASES)
def test_biases(name, sharing):
    biases = make_biases(name, sharing)
    sharing = sharing or ("none" if name == "diet_rel" else "layer-wise")
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
        assert (layer.num_heads, layer.key_dim, layer.dropout, layer.name) == (3, 5, 0.5, "own")
        return layer

    for name in POSITION_ENCODINGS:
        layer = attention(name)
        kind = RelativeMultiHeadAttention if name == "shaw" else BiasedMultiHeadAttention
        assert type(layer) is kind
        assert layer.scale == (0.1**0.5 if name.startswith("tupe") else None)
    shaw = attention("shaw")
    assert (shaw.max_distance, shaw.use_value_embedding) == (1024, True)
    for name in PROJECTABLE:
        layer = attention(name, projection_dim=2)
        assert type(layer) is LinformerMultiHeadAttention
        assert (layer.sequence_length, layer.projection_dim) == (7, 2)


@pytest.mark.parametrize("name", BIASES)
def test_biases_have_the_dtype_policy_of_the_encoder(name):
    (bias, *_) = make_biases(name, dtype="mixed_bfloat16")
    assert bias.compute_dtype == "bfloat16"
    assert bias.variable_dtype == "float32"


def test_which_encodings_score_positions():
    silent = {name for name, encoding in POSITION_ENCODINGS.items() if encoding.embedding is None}
    assert silent == set(POSITION_ENCODINGS) - {"input", "sinusoidal", "diet_abs_input"}
    assert find_position_encoding(Slopes(3)).embedding is None


# === Encodings of one's own ===


@pytest.fixture
def registry(monkeypatch):
    """What a test registers is gone after it."""
    monkeypatch.setattr(
        "keras_diet.layers.transformer.position_encodings.POSITION_ENCODINGS",
        dict(POSITION_ENCODINGS),
    )


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
def test_an_encoding_of_one_s_own_in_an_encoder(rng, slopes, sharing, count):
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
    with pytest.raises(ValueError, match=r"`rank` has no meaning.*'slopes'"):
        DietEncoder(2, 3, 11, position_encoding=slopes, rank=5)


def test_an_encoding_of_one_s_own_in_a_backbone(tmp_path, slopes):
    backbone = DietBertBackbone(31, 2, 3, 15, 23, position_encoding=slopes)
    assert [type(bias) for bias in backbone.encoder.position_biases] == [Slopes, Slopes]
    inputs = {name: np.ones((2, 5), "int32") for name in backbone.input}
    backbone.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.position_encoding == "slopes"
    for name, output in backbone(inputs).items():
        assert_close(loaded(inputs)[name], output, 1e-6)


@pytest.mark.usefixtures("slopes")
def test_positions_of_one_s_own_at_the_input(rng):
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
    with pytest.raises(ValueError, match=r"name given to.*register_position_encoding.*'own'"):
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


# === Arguments ===


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


BAD_ARGUMENTS = [
    ({"position_encoding": "xlnet"}, "`position_encoding`.*'diet_abs'.*'t5'.*'xlnet'"),
    ({"position_encoding": None}, "`position_encoding`.*'diet_abs'.*None"),
    ({"position_encoding": AbsolutePositionBias}, "`position_encoding`.*or a bias layer"),
    ({"sharing": "heads"}, "`sharing`.*'head-wise'.*'heads'"),
    ({"position_encoding": "diet_rel", "sharing": "all"}, "`sharing`.*'all'"),
    ({"position_encoding": Slopes(3), "sharing": "head-wise"}, "`sharing`.*'head-wise'"),
    ({"position_encoding": "input", "sharing": "none"}, "`sharing` has no meaning.*'input'"),
    ({"position_encoding": "none", "sharing": "layer-wise"}, "`sharing` has no meaning.*'none'"),
    ({"position_encoding": "sinusoidal", "sharing": "none"}, "`sharing` has no meaning.*'sinus"),
    ({"position_encoding": "shaw", "sharing": "none"}, "`sharing` must be one of 'head-wise'"),
    ({"position_encoding": "t5", "rank": 5}, "`rank` has no meaning.*'t5'.*rank=5"),
    ({"position_encoding": "tupe_abs", "rank": 5}, "`rank` has no meaning.*'tupe_abs'.*rank=5"),
    ({"position_encoding": "shaw", "rank": 5}, "`rank` has no meaning.*'shaw'.*rank=5"),
    *(
        (
            {"position_encoding": name, "projection_dim": 5, "segment_encoding": "none"},
            f"`projection_dim` has no meaning.*'{name}'.*projection_dim=5",
        )
        for name in POSITION_ENCODINGS
        if name not in PROJECTABLE
    ),
    (
        {"position_encoding": Slopes(3), "projection_dim": 5, "segment_encoding": "none"},
        "`projection_dim` has no meaning.*bias layer.*projection_dim=5",
    ),
    ({"projection_dim": 5}, "`segment_encoding` must be.*projection_dim=5.*'per-head'"),
    ({"projection_dim": 0}, "`projection_dim` must be a positive integer.*projection_dim=0"),
    ({"projection_dim": 2.5}, "`projection_dim` must be a positive integer.*=2.5"),
    ({"position_encoding": "diet_rel", "rank": 5}, "`rank` has no meaning.*'diet_rel'.*rank=5"),
    ({"position_encoding": "input", "rank": 5}, "`rank` has no meaning.*'input'.*rank=5"),
    ({"position_encoding": "none", "rank": 5}, "`rank` has no meaning.*'none'.*rank=5"),
    ({"position_encoding": Slopes(3), "rank": 5}, "`rank` has no meaning.*bias layer.*rank=5"),
    ({"position_encoding": "diet_rel", "rank": 0}, "`rank`.*rank=0"),
    ({"rank": 0}, "`rank` must be a positive integer.*rank=0"),
    ({"rank": -1}, "`rank` must be a positive integer.*rank=-1"),
    ({"rank": 2.5}, "`rank` must be a positive integer.*rank=2.5"),
    ({"rank": True}, "`rank` must be a positive integer.*rank=True"),
    ({"segment_encoding": "both"}, "`segment_encoding`.*'per-head', 'input', 'none'.*'both'"),
    ({"segment_encoding": None}, "`segment_encoding`.*None"),
    ({"num_segments": 0}, "`num_segments` must be a positive integer.*=0"),
    ({"max_sequence_length": -1}, "`max_sequence_length` must be a positive integer.*=-1"),
    ({"num_layers": 0}, "`num_layers` must be a positive integer.*=0"),
    ({"num_heads": 1.5}, "`num_heads` must be a positive integer.*=1.5"),
    ({"intermediate_dim": None}, "`intermediate_dim` must be a positive integer.*=None"),
]


@pytest.mark.parametrize("kwargs, message", BAD_ARGUMENTS, ids=lambda value: str(value)[:50])
def test_bad_arguments_are_named(kwargs, message):
    arguments = {"num_layers": 2, "num_heads": NUM_HEADS, "intermediate_dim": 11, **kwargs}
    with pytest.raises(ValueError, match=message):
        DietEncoder(**arguments)


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(ValueError, match=r"`num_heads`.*hidden_dim=6, num_heads=5"):
        DietEncoder(2, 5, 11)(np.ones((BATCH, LENGTH, HIDDEN), "float32"))


@pytest.mark.parametrize("position_encoding", [*POSITION_ENCODINGS, Slopes(NUM_HEADS)], ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
def test_too_long_sequences_are_refused(position_encoding, symbolic):
    encoder = DietEncoder(
        1, NUM_HEADS, 11, position_encoding=position_encoding, max_sequence_length=LENGTH
    )
    x = np.ones((BATCH, LENGTH + 2, HIDDEN), "float32")
    call = encoder.compute_output_spec if symbolic else encoder
    with pytest.raises(ValueError, match=r"longer than `max_sequence_length`.*length=7"):
        call(x)


@pytest.mark.parametrize("symbolic", [False, True])
def test_segment_ids_without_segments_are_refused(symbolic):
    encoder = DietEncoder(1, NUM_HEADS, 11, segment_encoding="none")
    x = np.ones((BATCH, LENGTH, HIDDEN), "float32")
    call = encoder.compute_output_spec if symbolic else encoder
    with pytest.raises(ValueError, match=r"`segment_ids` would be ignored"):
        call(x, segment_ids=np.zeros((BATCH, LENGTH), "int32"))


@pytest.mark.parametrize("segment_encoding", ["per-head", "input"])
@pytest.mark.parametrize("shape", [(BATCH, LENGTH + 2), (BATCH + 1, LENGTH)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_segment_ids_of_another_shape_are_refused(segment_encoding, shape, symbolic):
    encoder = DietEncoder(1, NUM_HEADS, 11, segment_encoding=segment_encoding)
    x = np.ones((BATCH, LENGTH, HIDDEN), "float32")
    call = encoder.compute_output_spec if symbolic else encoder
    with pytest.raises(ValueError, match=r"`segment_ids` must have the shape"):
        call(x, segment_ids=np.zeros(shape, "int32"))


def test_segment_ids_of_encoded_inputs_are_refused():
    encoder = DietEncoder(1, NUM_HEADS, 11, segment_encoding="input", encode_inputs=False)
    with pytest.raises(ValueError, match=r"`segment_ids` would be ignored.*encode_inputs=False"):
        encoder(np.ones((BATCH, LENGTH, HIDDEN), "float32"), np.zeros((BATCH, LENGTH), "int32"))


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"attention_mask": np.ones((BATCH, LENGTH, LENGTH), "bool")}, "attention_mask"),
        ({"use_causal_mask": True}, "use_causal_mask"),
    ],
)
def test_masks_of_pairs_are_refused_with_projected_keys(arguments, name):
    encoder = DietEncoder(1, NUM_HEADS, 11, segment_encoding="none", projection_dim=2)
    with pytest.raises(ValueError, match=f"`{name}` has no meaning"):
        encoder(np.ones((BATCH, LENGTH, HIDDEN), "float32"), **arguments)


class WrongScores(keras.layers.Layer):
    """A bias layer that returns what cannot be added to the scores."""

    def __init__(self, shape, scores_dtype, **kwargs):
        super().__init__(**kwargs)
        self.scores = np.zeros(shape, scores_dtype)

    def call(self, inputs):
        return keras.ops.convert_to_tensor(self.scores)


@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((1, NUM_HEADS, LENGTH, LENGTH + 2), "float32"),
        ((1, NUM_HEADS + 1, LENGTH, LENGTH), "float32"),
        ((1, NUM_HEADS, LENGTH, LENGTH), "bool"),
    ],
)
def test_scores_of_own_layers_are_checked(shape, dtype):
    encoder = DietEncoder(1, NUM_HEADS, 11, position_encoding=WrongScores(shape, dtype))
    with pytest.raises(ValueError, match="`position_encoding` must be"):
        encoder(np.ones((BATCH, LENGTH, HIDDEN), "float32"))


@pytest.mark.parametrize("segment_encoding", ["per-head", "input"])
@pytest.mark.parametrize("bad_id", [-1, 2])
def test_segment_ids_out_of_range_are_refused(segment_encoding, bad_id):
    encoder = DietEncoder(1, NUM_HEADS, 11, segment_encoding=segment_encoding)
    segment_ids = np.zeros((BATCH, LENGTH), "int32")
    segment_ids[1, 3] = bad_id
    with pytest.raises(ValueError, match=r"Segment ids.*num_segments.*2\)"):
        encoder(np.ones((BATCH, LENGTH, HIDDEN), "float32"), segment_ids=segment_ids)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    "name, value",
    [("attention_mask", np.ones((BATCH, LENGTH, LENGTH), bool)), ("use_causal_mask", True)],
)
def test_masks_of_pairs_with_projected_keys_are_refused(name, value, symbolic):
    encoder = DietEncoder(1, NUM_HEADS, 11, segment_encoding="none", projection_dim=3)
    x = np.ones((BATCH, LENGTH, HIDDEN), "float32")
    call = encoder.compute_output_spec if symbolic else encoder
    with pytest.raises(
        ValueError, match=f"`{name}` has no meaning with projection_dim=3.*`padding"
    ):
        call(x, **{name: value})
