"""What the encoder's arguments may be, and what each refusal says."""

import keras
import numpy as np
import pytest

from keras_diet.layers import AbsolutePositionBias, DietEncoder, RelativePositionBias
from keras_diet.layers.position_encodings import (
    POSITION_ENCODINGS,
    SHARING_MODES,
    check_position_encoding,
    deserialize_position_encoding,
    make_position_biases,
    serialize_position_encoding,
)
from tests.layers.diet_encoders import BATCH, HIDDEN, LENGTH, NUM_HEADS, Slopes


def make_biases(position_encoding, **kwargs):
    arguments = {"rank": None, "sharing": None, "dtype": "float32", **kwargs}
    return make_position_biases(
        position_encoding, num_layers=2, num_heads=3, head_dim=5, max_length=7, **arguments
    )


def test_names_and_sharing_modes():
    assert set(POSITION_ENCODINGS) == {"diet_abs", "diet_rel", "input", "none"}
    assert SHARING_MODES == ("none", "head-wise", "layer-wise")


@pytest.mark.parametrize(
    "name, default", [("diet_abs", "layer-wise"), ("diet_rel", "none"), ("input", None)]
)
def test_default_sharing_is_the_paper_s_best(name, default):
    assert POSITION_ENCODINGS[name].default_sharing == default


@pytest.mark.parametrize(
    "position_encoding, sharing, bias_class, count, share_heads",
    [
        ("diet_abs", None, AbsolutePositionBias, 1, False),
        ("diet_abs", "none", AbsolutePositionBias, 2, False),
        ("diet_abs", "head-wise", AbsolutePositionBias, 2, True),
        ("diet_rel", None, RelativePositionBias, 2, False),
        ("diet_rel", "layer-wise", RelativePositionBias, 1, False),
        ("diet_rel", "head-wise", RelativePositionBias, 2, True),
    ],
)
def test_biases(position_encoding, sharing, bias_class, count, share_heads):
    biases = make_biases(position_encoding, sharing=sharing)
    assert [type(bias) for bias in biases] == [bias_class] * count
    assert len({bias.name for bias in biases}) == count
    for bias in biases:
        assert (bias.num_heads, bias.max_length, bias.share_heads) == (3, 7, share_heads)


@pytest.mark.parametrize("position_encoding", ["input", "none"])
def test_no_biases(position_encoding):
    assert make_biases(position_encoding) == []


@pytest.mark.parametrize("rank, expected", [(None, 5), (11, 11)])
def test_rank_defaults_to_the_head_size(rank, expected):
    assert make_biases("diet_abs", rank=rank)[0].rank == expected


def test_biases_have_the_dtype_policy_of_the_encoder():
    for name in ("diet_abs", "diet_rel"):
        (bias, *_) = make_biases(name, dtype="mixed_bfloat16")
        assert bias.compute_dtype == "bfloat16"
        assert bias.variable_dtype == "float32"


def test_only_input_positions_go_to_the_input():
    at_input = {name for name, encoding in POSITION_ENCODINGS.items() if encoding.at_input}
    assert at_input == {"input"}
    assert not check_position_encoding(Slopes(3), None, None).at_input


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
    ({"position_encoding": "t5"}, "`position_encoding`.*'diet_abs'.*'t5'"),
    ({"position_encoding": None}, "`position_encoding`.*'diet_abs'.*None"),
    ({"position_encoding": AbsolutePositionBias}, "`position_encoding`.*or a bias layer"),
    ({"sharing": "heads"}, "`sharing`.*'head-wise'.*'heads'"),
    ({"position_encoding": "diet_rel", "sharing": "all"}, "`sharing`.*'all'"),
    ({"position_encoding": Slopes(3), "sharing": "head-wise"}, "`sharing`.*'head-wise'"),
    ({"position_encoding": "input", "sharing": "none"}, "`sharing` has no meaning.*'input'"),
    ({"position_encoding": "none", "sharing": "layer-wise"}, "`sharing` has no meaning.*'none'"),
    ({"position_encoding": "input", "sharing": "none"}, "`sharing` has no meaning.*'input'"),
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
