"""Fixtures of the tests of layers."""

from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

from tests.fixtures import keras_initializers, numpy_initializers

__all__ = ["keras_initializers", "numpy_initializers"]


@pytest.fixture(autouse=True)
def _seed():
    """Give initializers and dropout the same seed in every test.

    No layer uses TensorFlow's own generator. Its `set_seed` would throw away the kernels of all
    operations, and creating them again takes a tenth of the time of a test.
    """
    if keras.backend.backend() != "tensorflow":
        keras.utils.set_random_seed(13)
        return
    import tensorflow as tf

    with mock.patch.object(tf.random, "set_seed"):
        keras.utils.set_random_seed(13)


@pytest.fixture(autouse=True)
def numpy_kernels(numpy_initializers, monkeypatch):
    """Draw kernels with NumPy as well. Most tests overwrite them."""

    def draw(initializer, shape, dtype=None, **kwargs):
        limit = np.sqrt(6 / (shape[0] + shape[-1]))
        return ops.convert_to_tensor(np.random.uniform(-limit, limit, shape), dtype=dtype)

    monkeypatch.setattr(keras.initializers.VarianceScaling, "__call__", draw)
