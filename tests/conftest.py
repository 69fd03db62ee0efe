"""Fixtures of all tests."""

import os

# Tests compute with few numbers in several processes, where more threads only wait.
for variable in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(variable, "1")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True)
def _seed():
    """Make initializers and dropout repeat themselves in every test."""
    keras.utils.set_random_seed(13)


@pytest.fixture
def rng():
    """A NumPy generator with the same numbers in every test."""
    return np.random.default_rng(11)
