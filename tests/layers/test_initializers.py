import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    BucketedRelativePositionBias,
    RelativePositionBias,
    SegmentBias,
    UntiedPositionBias,
)
from keras_diet.layers.initializers import bert_initializer, fresh
from keras_diet.layers.position.input_encoding import InputEncoding, LearnedPositions
from tests.helpers import assert_weights_start_differently, to_numpy

pytestmark = pytest.mark.any_backend


@pytest.mark.usefixtures("keras_initializers")
def test_bert_initializer():
    values = to_numpy(bert_initializer()((101, 97)))
    # A normal distribution that is cut at two standard deviations keeps 0.88 of its deviation.
    assert abs(values.std() - 0.0176) < 2e-4
    assert np.abs(values).max() <= 0.04
    assert abs(values.mean()) < 1e-3


def test_two_copies_differ_unless_their_seed_was_chosen():
    for seed in (None, 3):
        initializer = keras.initializers.RandomNormal(stddev=0.5, seed=seed)
        first, second = (to_numpy(fresh(initializer)((7, 5))) for _ in range(2))
        assert np.array_equal(first, second) == (seed == 3)
        assert fresh(initializer).stddev == 0.5
    function = lambda shape, dtype=None: keras.ops.ones(shape, dtype)  # noqa: E731
    assert fresh(function) is function


LAYERS = {
    "absolute": (lambda **kwargs: AbsolutePositionBias(3, 11, 7, **kwargs), 2),
    "relative": (lambda **kwargs: RelativePositionBias(3, 11, **kwargs), 1),
    "t5": (lambda **kwargs: BucketedRelativePositionBias(3, **kwargs), 1),
    "tupe": (lambda **kwargs: UntiedPositionBias(3, 2, 11, 7, relative=True, **kwargs), 5),
    "segments": (lambda **kwargs: SegmentBias(3, 5, **kwargs), 1),
    "positions": (lambda **kwargs: LearnedPositions(31, **kwargs), 1),
    "input segments": (lambda **kwargs: InputEncoding(None, 31, **kwargs), 1),
}


@pytest.mark.usefixtures("keras_initializers")
@pytest.mark.parametrize("make, count", LAYERS.values(), ids=list(LAYERS))
def test_embeddings_start_as_those_of_bert(make, count):
    """A normal distribution of deviation 0.02, cut at two deviations, unless it is chosen."""
    layer, ones = make(), make(initializer="ones")
    for each in (layer, ones):
        each.build((2, 5, 11))
    arrays = [array for array in map(to_numpy, layer.weights) if np.ptp(array)]
    assert len(arrays) == count
    values = np.concatenate([array.ravel() for array in arrays])
    assert 0.01 < values.std() < 0.025
    assert np.abs(values).max() <= 0.04
    if count > 1:
        assert_weights_start_differently(layer)
    arrays = list(map(to_numpy, ones.weights))
    assert all(np.all(array == 1) for array in arrays if array.min() != 0)
