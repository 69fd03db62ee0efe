import keras
import keras_hub
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask
from keras_diet.layers import InputEncoding
from tests import reference
from tests.helpers import (
    assert_close,
    assert_weights_start_differently,
    check_layer,
    randomize,
    to_numpy,
)

BATCH, LENGTH, HIDDEN, MAX_LENGTH, NUM_SEGMENTS = 2, 5, 3, 7, 3


def make(rng, max_sequence_length=MAX_LENGTH, num_segments=NUM_SEGMENTS):
    encoding = InputEncoding(max_sequence_length, num_segments)
    encoding.build((BATCH, LENGTH, HIDDEN))
    return randomize(encoding, rng)


def make_inputs(rng, length=LENGTH):
    x = rng.normal(size=(BATCH, length, HIDDEN)).astype("float32")
    return x, rng.integers(NUM_SEGMENTS, size=(BATCH, length))


def expected_output(encoding, x, segment_ids):
    """BERT's inputs. Each row of `x` is the embedding of another token."""
    positions = encoding.max_sequence_length is not None
    segments = encoding.num_segments is not None
    weights = [to_numpy(weight) for weight in encoding.weights]
    return reference.bert_inputs(
        x.reshape(-1, HIDDEN),
        np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2]),
        position_embedding=weights[0] if positions else None,
        segment_embedding=weights[-1] if segments else None,
        segment_ids=segment_ids if segments else None,
    )


@pytest.mark.parametrize(
    "max_sequence_length, num_segments",
    [(MAX_LENGTH, NUM_SEGMENTS), (MAX_LENGTH, None), (None, NUM_SEGMENTS)],
)
@pytest.mark.parametrize("length", [LENGTH, MAX_LENGTH])
def test_equals_reference(rng, length, num_segments, max_sequence_length):
    encoding = make(rng, max_sequence_length, num_segments)
    x, segment_ids = make_inputs(rng, length)
    given = None if num_segments is None else segment_ids
    assert_close(encoding(x, segment_ids=given), expected_output(encoding, x, segment_ids))


def test_segment_ids_default_to_zero(rng):
    encoding = make(rng)
    x, segment_ids = make_inputs(rng)
    assert_close(encoding(x), expected_output(encoding, x, np.zeros_like(segment_ids)))


POSITIONS = {"position_embedding/embeddings": (MAX_LENGTH, HIDDEN)}
SEGMENTS = {"segment_embedding/embeddings": (NUM_SEGMENTS, HIDDEN)}


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({}, {**POSITIONS, **SEGMENTS}),
        ({"num_segments": None}, POSITIONS),
        ({"max_sequence_length": None}, SEGMENTS),
    ],
    ids=["both", "positions", "segments"],
)
def test_weights(rng, arguments, expected):
    weights = make(rng, **arguments).weights
    assert {weight.path.split("/", 1)[1]: tuple(weight.shape) for weight in weights} == expected


@pytest.mark.any_backend
@pytest.mark.usefixtures("keras_initializers")
def test_initial_weights_are_those_of_bert():
    encoding = InputEncoding(101, 101)
    encoding.build((BATCH, LENGTH, 11))
    assert_weights_start_differently(encoding)
    for weight in encoding.weights:
        assert 0.015 < to_numpy(weight).std() < 0.02
        assert np.abs(to_numpy(weight)).max() <= 0.04


@pytest.mark.any_backend
def test_the_mask_of_the_inputs_is_kept(rng):
    tokens = np.array([[3, 1, 2, 0, 0], [2, 2, 1, 3, 0]])
    x = keras.layers.Embedding(5, HIDDEN, mask_zero=True)(tokens)
    np.testing.assert_array_equal(to_numpy(get_keras_mask(make(rng)(x))), tokens > 0)


def test_functional_model_of_any_length(rng):
    encoding = make(rng)
    inputs = keras.Input((None, HIDDEN)), keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, encoding(inputs[0], segment_ids=inputs[1]))
    for length in (2, MAX_LENGTH):
        x, segment_ids = make_inputs(rng, length)
        expected = expected_output(encoding, x, segment_ids)
        assert_close(model.predict([x, segment_ids], verbose=0), expected)


@pytest.mark.parametrize("as_tensor", [False, True], ids=["int", "tensor"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_start_index(rng, positions, as_tensor):
    encoding = make(rng, num_segments=None)
    if positions == "sinusoidal":
        encoding = InputEncoding(
            MAX_LENGTH, position_embedding=keras_hub.layers.SinePositionEncoding()
        )
    x, _ = make_inputs(rng)
    start = keras.ops.convert_to_tensor(3, "int32") if as_tensor else 3
    assert_close(encoding(x[:, 3:], start_index=start), to_numpy(encoding(x))[:, 3:])


def test_without_positions_no_sequence_is_too_long(rng):
    encoding = make(rng, max_sequence_length=None)
    x, segment_ids = make_inputs(rng, 13)
    assert_close(encoding(x, segment_ids=segment_ids), expected_output(encoding, x, segment_ids))


@pytest.mark.parametrize("max_sequence_length", [None, MAX_LENGTH])
def test_positions_of_another_layer(rng, max_sequence_length):
    encoding = InputEncoding(
        max_sequence_length,
        NUM_SEGMENTS,
        position_embedding=keras_hub.layers.SinePositionEncoding(dtype="float32"),
        dtype="mixed_bfloat16",
    )
    x, segment_ids = make_inputs(rng, MAX_LENGTH)
    encoding.build(x.shape)
    (segments,) = (to_numpy(weight) for weight in randomize(encoding, rng).weights)
    expected = x + reference.sinusoidal_positions(MAX_LENGTH, HIDDEN) + segments[segment_ids]
    output = encoding(x, segment_ids=segment_ids)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    assert_close(output, expected, 3e-2)
    if max_sequence_length is not None:
        with pytest.raises(ValueError, match=r"longer than `max_sequence_length`.*length=8"):
            encoding(make_inputs(rng, MAX_LENGTH + 1)[0])


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_sequence_length": LENGTH},
        {"num_segments": 3},
        {"max_sequence_length": 5, "num_segments": 3},
        {"num_segments": 3, "position_embedding": keras_hub.layers.SinePositionEncoding(100)},
    ],
    ids=["positions", "segments", "both", "sinusoidal"],
)
def test_as_a_layer(rng, arguments):
    x, _ = make_inputs(rng)
    encoding = InputEncoding(
        **arguments, initializer=keras.initializers.RandomNormal(stddev=0.5, seed=3), name="input"
    )
    # A segment that does not occur would have no gradient.
    segment_ids = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]], "int32")
    has_segments = encoding.num_segments is not None
    check_layer(encoding, x, **({"segment_ids": segment_ids} if has_segments else {}))


IDS = np.zeros((BATCH, LENGTH), "int32")
REFUSED = {
    "nothing": (lambda x: InputEncoding(), "nothing to add.*`max_sequence_length`, `num_segments`"),
    "length 0": (
        lambda x: InputEncoding(0),
        "`max_sequence_length` must be a positive.*=0",
    ),
    "segments": (
        lambda x: InputEncoding(num_segments="2"),
        "`num_segments` must be a positive",
    ),
    "too long": (lambda x: InputEncoding(4)(x), "longer than `max_sequence_length`.*length=5"),
    "end": (lambda x: InputEncoding(7)(x, start_index=3), r"`max_sequence_length`.*length=8, .*=7"),
    "negative": (lambda x: InputEncoding(9)(x, start_index=-1), "must not be negative.*-1"),
    "fraction": (lambda x: InputEncoding(9)(x, start_index=1.5), "must be a single integer.*1.5"),
    "ignored": (lambda x: InputEncoding(9)(x, segment_ids=IDS), "`segment_ids` would be ignored"),
    "shape": (lambda x: InputEncoding(9, 2)(x, segment_ids=IDS[:, :4]), "`segment_ids` must have"),
    "broadcast": (lambda x: InputEncoding(9, 2)(x, segment_ids=IDS[:1]), "must have the shape"),
    "id": (lambda x: InputEncoding(9, 2)(x, segment_ids=IDS + 2), r"`segment_ids` must be .*2\)"),
    "id -1": (lambda x: InputEncoding(9, 2)(x, segment_ids=IDS - 1), "ids from -1 to -1"),
    "half id": (lambda x: InputEncoding(9, 2)(x, segment_ids=IDS + 0.5), "ids from 0.5 to 0.5"),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("call, message", REFUSED.values(), ids=list(REFUSED))
def test_refused(rng, call, message):
    with pytest.raises(ValueError, match=message):
        call(make_inputs(rng)[0])
