"""Settings of the backends that suit tiny models."""

from tests.fixtures import numpy_initializers

__all__ = ["numpy_initializers"]
