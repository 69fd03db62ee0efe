"""Fixtures for the tests of the benchmarks."""

from tests.fixtures import compiled_steps, eager_steps, numpy_initializers, unpatched

__all__ = ["compiled_steps", "eager_steps", "numpy_initializers", "unpatched"]
