"""Fixtures of the tests of benchmarks."""

from tests.fixtures import numpy_initializers

__all__ = ["numpy_initializers"]
