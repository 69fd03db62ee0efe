"""The position encodings that an encoder knows, and custom encodings."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    BucketedRelativePositionBias,
    DietEncoder,
    FirePositionBias,
    KerplePositionBias,
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






def test_names():
    assert set(POSITION_ENCODINGS) == {*BIASES, *ONE_SHARING, *WITHOUT_BIAS}




@pytest.mark.parametrize("name", POSITION_ENCODINGS)
def test_default_sharing_is_what_the_papers_found_best(name):
    modes = POSITION_ENCODINGS[name].sharing_modes
    if name in BIASES:
        assert modes[0] == ("none" if name in NOT_SHARED else "layer-wise")
        assert set(modes) == set(SHARING_MODES)
    else:
        assert modes == tuple(mode for other, mode in ONE_SHARING.items() if other == name)


















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




def test_registering_again_replaces(slopes):
    encoding = PositionEncoding()
    register_position_encoding(slopes, encoding)
    assert find_position_encoding(slopes) is encoding




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
