"""Fixtures that several folders of tests use; their `conftest.py` imports them."""

import gc

import keras
import pytest

from tests.models.tiny import draw_with_numpy


@pytest.fixture(autouse=True)
def quick_compilation():
    """Let JAX compile as quickly as it can: what runs here runs once, on a few numbers."""
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def numpy_initializers(monkeypatch):
    """Draw initial weights with NumPy, which is faster; most tests overwrite them."""
    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", draw_with_numpy)


@pytest.fixture
def quick_quantization():
    """Keras collects garbage on PyTorch for each quantized layer: what exists now is left out."""
    gc.freeze()
    yield
    gc.unfreeze()
