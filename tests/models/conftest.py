"""Fixtures of the tests of models."""

import keras
import pytest
from keras import ops

from tests.fixtures import (
    compiled_steps,
    eager_steps,
    keras_initializers,
    numpy_initializers,
    unpatched,
)

__all__ = [
    "compiled_steps",
    "eager_steps",
    "keras_initializers",
    "numpy_initializers",
    "unpatched",
    "zero_initializers",
]

if keras.backend.backend() == "torch":
    import torch

    # Threads would wait for each other.
    torch.set_num_threads(1)


@pytest.fixture
def zero_initializers(monkeypatch):
    """Fill weights with zeros: large models are built in no time."""

    def zeros(self, shape, dtype=None, **kwargs):
        return ops.zeros(shape, dtype=dtype)

    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", zeros)
