import keras
import numpy as np
import pytest

from keras_diet.layers.initializers import bert_initializer, embedding_initializer, fresh
from tests.helpers import to_numpy


@pytest.mark.usefixtures("keras_initializers")
def test_bert_initializer():
    values = to_numpy(bert_initializer()((101, 97)))
    # A normal distribution cut at two standard deviations keeps 0.88 of its own.
    assert abs(values.std() - 0.0176) < 2e-4
    assert np.abs(values).max() <= 0.04
    assert abs(values.mean()) < 1e-3


def test_none_stands_for_bert_s_initializer():
    assert isinstance(embedding_initializer(None), keras.initializers.TruncatedNormal)
    assert embedding_initializer(None).stddev == 0.02


@pytest.mark.parametrize("name, initializer", [("ones", keras.initializers.Ones)])
def test_names_are_resolved(name, initializer):
    assert isinstance(embedding_initializer(name), initializer)


def test_fresh_copies_draw_anew():
    initializer = keras.initializers.RandomNormal(stddev=0.5)
    first, second = to_numpy(fresh(initializer)((7, 5))), to_numpy(fresh(initializer)((7, 5)))
    assert np.abs(first - second).max() > 1e-2
    assert fresh(initializer).stddev == 0.5


def test_fresh_copies_of_seeded_initializers_repeat():
    initializer = keras.initializers.RandomNormal(stddev=0.5, seed=3)
    first, second = to_numpy(fresh(initializer)((7, 5))), to_numpy(fresh(initializer)((7, 5)))
    np.testing.assert_array_equal(first, second)


def test_functions_are_left_alone():
    function = lambda shape, dtype=None: keras.ops.ones(shape, dtype)  # noqa: E731
    assert fresh(function) is function
