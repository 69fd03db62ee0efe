"""Fixtures of the tests of models, and settings of the backends that suit tiny models."""

import keras
import pytest
from keras import ops

from tests.fixtures import numpy_initializers, quick_quantization

__all__ = [
    "keras_initializers",
    "numpy_initializers",
    "quick_quantization",
    "zero_initializers",
]

if keras.backend.backend() == "jax":
    import jax

    # Compiling takes nearly all of the time.
    jax.config.update("jax_disable_most_optimizations", True)
elif keras.backend.backend() == "torch":
    import torch

    # Threads would wait for each other.
    torch.set_num_threads(1)


@pytest.fixture
def keras_initializers(monkeypatch):
    """Keras's own initializers, for tests of the initial weights."""
    monkeypatch.undo()


@pytest.fixture
def zero_initializers(monkeypatch):
    """Fill weights with zeros: large models are built in no time."""

    def zeros(self, shape, dtype=None, **kwargs):
        return ops.zeros(shape, dtype=dtype)

    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", zeros)
