"""Fixtures of the tests of layers."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.fixtures import keras_initializers, numpy_initializers

__all__ = ["keras_initializers", "numpy_initializers"]


@pytest.fixture(autouse=True)
def numpy_kernels(numpy_initializers, monkeypatch):
    """Draw kernels with NumPy as well. Most tests overwrite them."""

    def draw(initializer, shape, dtype=None, **kwargs):
        limit = np.sqrt(6 / (shape[0] + shape[-1]))
        return ops.convert_to_tensor(np.random.uniform(-limit, limit, shape), dtype=dtype)

    monkeypatch.setattr(keras.initializers.VarianceScaling, "__call__", draw)
