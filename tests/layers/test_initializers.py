import keras
import numpy as np
import pytest

from keras_diet.layers.initializers import bert_initializer, embedding_initializer, fresh
from tests.helpers import to_numpy

pytestmark = pytest.mark.any_backend


@pytest.mark.usefixtures("keras_initializers")
def test_bert_initializer():
    values = to_numpy(bert_initializer()((101, 97)))
    # A normal distribution that is cut at two standard deviations keeps 0.88 of its deviation.
    assert abs(values.std() - 0.0176) < 2e-4
    assert np.abs(values).max() <= 0.04
    assert abs(values.mean()) < 1e-3


def test_none_means_the_initializer_of_bert():
    assert isinstance(embedding_initializer(None), keras.initializers.TruncatedNormal)
    assert embedding_initializer(None).stddev == 0.02
    assert isinstance(embedding_initializer("ones"), keras.initializers.Ones)


def test_two_copies_differ_unless_their_seed_was_chosen():
    for seed in (None, 3):
        initializer = keras.initializers.RandomNormal(stddev=0.5, seed=seed)
        first, second = (to_numpy(fresh(initializer)((7, 5))) for _ in range(2))
        assert np.array_equal(first, second) == (seed == 3)
        assert fresh(initializer).stddev == 0.5
    function = lambda shape, dtype=None: keras.ops.ones(shape, dtype)  # noqa: E731
    assert fresh(function) is function
