"""Fixtures for the tests of the benchmarks."""

import keras
import pytest

from tests.fixtures import compiled_steps, eager_steps, numpy_initializers, unpatched

__all__ = ["compiled_steps", "eager_steps", "numpy_initializers", "unpatched"]


@pytest.fixture(autouse=True)
def quick_sessions(monkeypatch):
    """Begin a session of Keras without searching all objects for garbage."""
    clear = keras.backend.clear_session
    monkeypatch.setattr(keras.backend, "clear_session", lambda: clear(free_memory=False))
