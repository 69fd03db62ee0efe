"""Fixtures of all tests."""

import keras
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _seed():
    """Make initializers and dropout repeat themselves in every test."""
    keras.utils.set_random_seed(13)


@pytest.fixture
def rng():
    """A NumPy generator with the same numbers in every test."""
    return np.random.default_rng(11)
