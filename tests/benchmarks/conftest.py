"""Fixtures for the tests of the benchmarks."""

from tests.fixtures import numpy_initializers

__all__ = ["numpy_initializers"]
