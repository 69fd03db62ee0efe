"""Fixtures of the tests of benchmarks."""

from tests.fixtures import numpy_initializers, quick_compilation

__all__ = ["numpy_initializers", "quick_compilation"]
