"""Fixtures of the tests of malformed inputs."""

from tests.fixtures import numpy_initializers

__all__ = ["numpy_initializers"]
