"""Which arguments `DietEncoder` refuses, and what the messages say."""

import keras
import numpy as np
import pytest

from keras_diet.layers import AbsolutePositionBias, DietEncoder
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from tests.layers.diet_encoders import BATCH, HIDDEN, LENGTH, NUM_HEADS, Slopes

PROJECTABLE = ("diet_abs", "diet_abs_input", "input", "sinusoidal", "none")
BAD_ARGUMENTS = [
    ({"position_encoding": "xlnet"}, "`position_encoding`.*'diet_abs'.*'t5'.*'xlnet'"),
    ({"position_encoding": None}, "`position_encoding`.*'diet_abs'.*None"),
    ({"position_encoding": AbsolutePositionBias}, "`position_encoding`.*or a bias layer"),
    ({"sharing": "heads"}, "`sharing`.*'head-wise'.*'heads'"),
    ({"position_encoding": "diet_rel", "sharing": "all"}, "`sharing`.*'all'"),
    ({"position_encoding": Slopes(3), "sharing": "head-wise"}, "`sharing`.*'head-wise'"),
    ({"position_encoding": "input", "sharing": "none"}, "`sharing` is not supported.*'input'"),
    ({"position_encoding": "none", "sharing": "layer-wise"}, "`sharing` is not supported.*'none'"),
    ({"position_encoding": "sinusoidal", "sharing": "none"}, "`sharing` is not supported.*'sinus"),
    ({"position_encoding": "shaw", "sharing": "none"}, "`sharing` must be one of 'head-wise'"),
    ({"position_encoding": "rotary", "sharing": "none"}, "`sharing` is not supported.*'rotary'"),
    ({"position_encoding": "rotary", "rank": 5}, "`rank` is not supported.*'rotary'.*rank=5"),
    ({"position_encoding": "rotary", "max_distance": 5}, "`max_distance` is not.*'rotary'"),
    (
        {"position_encoding": "transformer_xl", "sharing": "layer-wise"},
        "`sharing` must be one of 'none'.*'layer-wise'",
    ),
    ({"position_encoding": "t5", "rank": 5}, "`rank` is not supported.*'t5'.*rank=5"),
    ({"position_encoding": "tupe_abs", "rank": 5}, "`rank` is not supported.*'tupe_abs'.*rank=5"),
    ({"position_encoding": "shaw", "rank": 5}, "`rank` is not supported.*'shaw'.*rank=5"),
    *(
        (
            {"position_encoding": name, "projection_dim": 5, "segment_encoding": "none"},
            f"`projection_dim` is not supported.*'{name}'.*projection_dim=5",
        )
        for name in POSITION_ENCODINGS
        if name not in PROJECTABLE
    ),
    (
        {"position_encoding": Slopes(3), "projection_dim": 5, "segment_encoding": "none"},
        "`projection_dim` is not supported.*bias layer.*projection_dim=5",
    ),
    ({"projection_dim": 5}, "`segment_encoding` must be.*projection_dim=5.*'per-head'"),
    ({"projection_dim": 0}, "`projection_dim` must be a positive integer.*projection_dim=0"),
    ({"projection_dim": 2.5}, "`projection_dim` must be a positive integer.*=2.5"),
    ({"position_encoding": "diet_rel", "rank": 5}, "`rank` is not supported.*'diet_rel'.*rank=5"),
    ({"position_encoding": "input", "rank": 5}, "`rank` is not supported.*'input'.*rank=5"),
    ({"position_encoding": "none", "rank": 5}, "`rank` is not supported.*'none'.*rank=5"),
    ({"position_encoding": Slopes(3), "rank": 5}, "`rank` is not supported.*bias layer.*rank=5"),
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


@pytest.mark.parametrize("position_encoding", ["diet_abs", "sinusoidal", "shaw", "none"])
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


@pytest.mark.parametrize(
    "segment_encoding, shape",
    [("per-head", (BATCH, LENGTH + 2)), ("input", (BATCH + 1, LENGTH))],
)
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
    with pytest.raises(ValueError, match=r"`segment_ids`.*num_segments.*2\)"):
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
        ValueError, match=f"`{name}` is not supported with.*projection_dim=3.*`padding_mask`"
    ):
        call(x, **{name: value})
