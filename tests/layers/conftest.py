"""Fixtures of the tests of layers."""

from tests.fixtures import keras_initializers, numpy_initializers

__all__ = ["keras_initializers", "numpy_initializers"]
