import keras
import keras_hub
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask
from keras_diet.layers.position.input_encoding import InputEncoding, LearnedPositions
from keras_diet.layers.position.sinusoids import Sinusoids
from tests.helpers import assert_close, check_layer, once, to_numpy

BATCH, LENGTH, HIDDEN, MAX_LENGTH, NUM_SEGMENTS = 2, 5, 3, 7, 3


def make_inputs(rng, length=LENGTH):
    return rng.normal(size=(BATCH, length, HIDDEN)).astype("float32")


LAYERS = {
    "learned": lambda: LearnedPositions(MAX_LENGTH, keras.initializers.RandomNormal(stddev=0.5)),
    "keras_hub": lambda: keras_hub.layers.SinePositionEncoding(100),
    "sinusoids": Sinusoids,
}


on_layers = pytest.mark.parametrize("kind", ["learned", *once("keras_hub", "sinusoids")])


@on_layers
def test_start_index(rng, kind):
    encoding = InputEncoding(MAX_LENGTH, position_embedding=LAYERS[kind]())
    x = make_inputs(rng)
    for start in (3, keras.ops.convert_to_tensor(3, "int32")):
        assert_close(encoding(x[:, 3:], start_index=start), to_numpy(encoding(x))[:, 3:])


@on_layers
def test_as_a_layer(rng, kind):
    x = make_inputs(rng, MAX_LENGTH)
    initializer = keras.initializers.RandomNormal(stddev=0.5, seed=3)
    encoding = InputEncoding(MAX_LENGTH, 3, initializer, LAYERS[kind](), name="input")
    # A segment that does not occur would have no gradient.
    segment_ids = np.array([[0, 1, 2, 0, 1, 1, 0], [2, 1, 0, 0, 2, 2, 1]], "int32")
    check_layer(encoding, x, segment_ids=segment_ids)
    assert_close(encoding(x), encoding(x, segment_ids=0 * segment_ids))


@pytest.mark.parametrize(
    "layer", [*LAYERS.values(), lambda: Places(dtype="int32")], ids=[*LAYERS, "places"]
)
def test_positions(rng, layer):
    encoding = InputEncoding(MAX_LENGTH, position_embedding=layer())
    x = make_inputs(rng)
    positions = np.array([[0, 1, 2, 0, 1], [4, 0, 1, 2, 3]], "int32")
    of_places = to_numpy(encoding(x)) - x
    assert np.ptp(of_places[0], axis=0).max() > 0.1
    assert_close(to_numpy(encoding(x, positions=positions)) - x, of_places[0][positions])


class Places(keras.layers.Layer):
    """The smallest layer of positions: numbers `(T, 1)`."""

    def call(self, inputs):
        return keras.ops.arange(keras.ops.shape(inputs)[1])[:, None]


def test_positions_of_a_layer_that_reads_the_inputs(rng):
    x = make_inputs(rng)
    encoding = InputEncoding(MAX_LENGTH, position_embedding=keras.layers.Rescaling(0.5))
    assert_close(encoding(x), 1.5 * x)


@pytest.mark.any_backend
def test_the_mask_of_the_inputs_is_kept():
    tokens = np.array([[3, 1, 2, 0, 0], [2, 2, 1, 3, 0]])
    x = keras.layers.Embedding(5, HIDDEN, mask_zero=True)(tokens)
    encoding = InputEncoding(MAX_LENGTH, NUM_SEGMENTS)
    np.testing.assert_array_equal(to_numpy(get_keras_mask(encoding(x))), tokens > 0)
