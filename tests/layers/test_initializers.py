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


def test_a_name_becomes_an_initializer():
    assert isinstance(embedding_initializer("ones"), keras.initializers.Ones)


def test_two_copies_return_different_values():
    initializer = keras.initializers.RandomNormal(stddev=0.5)
    first, second = to_numpy(fresh(initializer)((7, 5))), to_numpy(fresh(initializer)((7, 5)))
    assert np.abs(first - second).max() > 1e-2
    assert fresh(initializer).stddev == 0.5


def test_two_copies_with_a_chosen_seed_return_the_same_values():
    initializer = keras.initializers.RandomNormal(stddev=0.5, seed=3)
    first, second = to_numpy(fresh(initializer)((7, 5))), to_numpy(fresh(initializer)((7, 5)))
    np.testing.assert_array_equal(first, second)


def test_a_function_is_not_copied():
    function = lambda shape, dtype=None: keras.ops.ones(shape, dtype)  # noqa: E731
    assert fresh(function) is function
