"""Fixtures of the tests of layers."""

from tests.fixtures import quick_compilation

__all__ = ["quick_compilation"]
