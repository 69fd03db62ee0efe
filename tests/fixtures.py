"""Fixtures that several folders of tests use. Their `conftest.py` imports them."""

import keras
import pytest

from tests.helpers import EAGER
from tests.models.tiny import draw_with_numpy

KERAS_DRAWS = {
    initializer: initializer.__call__
    for initializer in (keras.initializers.TruncatedNormal, keras.initializers.VarianceScaling)
}


@pytest.fixture
def unpatched():
    """For tests that run as a user's program does: the fixtures below change nothing."""


@pytest.fixture(autouse=True)
def numpy_initializers(request, monkeypatch):
    """Draw initial weights with NumPy, which is faster. Most tests overwrite them.

    They differ in every call. Keras's own initializers repeat their values: a test that two weights
    start differently needs `keras_initializers`.
    """
    if "unpatched" not in request.fixturenames:
        monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", draw_with_numpy)


@pytest.fixture
def compiled_steps():
    """For tests of compiled steps: `eager_steps` does not change them."""


@pytest.fixture(autouse=True)
def eager_steps(request, monkeypatch):
    """Run the steps of `fit`, `evaluate` and `predict` without compiling them for each model.

    JAX always compiles, as users do. It would compile each operation of an eager step, which takes
    longer. Its compiled steps also destroy the arrays that they get.
    """
    compiled = {"compiled_steps", "unpatched"} & set(request.fixturenames)
    if keras.backend.backend() != "jax" and not compiled:
        monkeypatch.setattr(keras.Model, "run_eagerly", EAGER)


@pytest.fixture
def keras_initializers(numpy_initializers, monkeypatch):
    """Keras's own initializers, for tests of the initial weights."""
    for initializer, draw in KERAS_DRAWS.items():
        monkeypatch.setattr(initializer, "__call__", draw)
