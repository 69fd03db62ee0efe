"""Fixtures of the tests of models."""

import keras
import pytest
from keras import ops

from tests.fixtures import (
    keras_initializers,
    numpy_initializers,
    quick_quantization,
    unpatched,
)

__all__ = [
    "keras_initializers",
    "numpy_initializers",
    "quick_quantization",
    "unpatched",
    "zero_initializers",
]

if keras.backend.backend() == "torch":
    import torch

    # Threads would wait for each other.
    torch.set_num_threads(1)


@pytest.fixture
def compiled_steps():
    """For tests of compiled steps: `eager_steps` does not change them."""


@pytest.fixture(autouse=True)
def eager_steps(request, monkeypatch):
    """Run the steps of `fit`, `evaluate` and `predict` without compiling them for each model.

    Compiling takes 1 to 6 seconds a model on JAX; operations are compiled once for all models.
    """
    if not {"compiled_steps", "unpatched"} & set(request.fixturenames):
        eager = property(lambda trainer: True, lambda trainer, value: None)
        monkeypatch.setattr(keras.Model, "run_eagerly", eager)


@pytest.fixture
def zero_initializers(monkeypatch):
    """Fill weights with zeros: large models are built in no time."""

    def zeros(self, shape, dtype=None, **kwargs):
        return ops.zeros(shape, dtype=dtype)

    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", zeros)
