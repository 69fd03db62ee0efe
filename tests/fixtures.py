"""Fixtures that several folders of tests use; their `conftest.py` imports them."""

import gc

import keras
import pytest

from tests.models.tiny import draw_with_numpy

DRAW_WITH_KERAS = keras.initializers.TruncatedNormal.__call__


@pytest.fixture
def unpatched():
    """For tests that run as a user's program does: the fixtures below change nothing."""


@pytest.fixture(autouse=True)
def numpy_initializers(request, monkeypatch):
    """Draw initial weights with NumPy, which is faster. Most tests overwrite them."""
    if "unpatched" not in request.fixturenames:
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
