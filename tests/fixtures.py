"""Fixtures that several folders of tests use; their `conftest.py` imports them."""

import gc

import keras
import pytest

from tests.models.tiny import draw_with_numpy

DRAW_WITH_KERAS = keras.initializers.TruncatedNormal.__call__


@pytest.fixture(autouse=True)
def numpy_initializers(monkeypatch):
    """Draw initial weights with NumPy, which is faster; most tests overwrite them."""
    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", draw_with_numpy)


@pytest.fixture
def quick_quantization():
    """Keras collects garbage on PyTorch for each quantized layer: what exists now is left out."""
    # It stays out: `gc.unfreeze` would bring back what is imported, too.
    gc.freeze()


@pytest.fixture
def keras_initializers(numpy_initializers, monkeypatch):
    """Keras's own initializers, for tests of the initial weights."""
    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", DRAW_WITH_KERAS)
