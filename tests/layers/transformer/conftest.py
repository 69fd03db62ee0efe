"""Fixtures of the tests of blocks and stacks."""

import pytest

from keras_diet.layers import PositionEncoding, register_position_encoding
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS


@pytest.fixture
def registry(monkeypatch):
    """A copy of the registered encodings for one test."""
    name = "keras_diet.layers.transformer.position_encodings.POSITION_ENCODINGS"
    monkeypatch.setattr(name, dict(POSITION_ENCODINGS))


@pytest.fixture
def register(registry):
    """A function that registers an encoding for one test and returns its name."""

    def register(**kwargs):
        register_position_encoding("custom", PositionEncoding(**kwargs))
        return "custom"

    return register
