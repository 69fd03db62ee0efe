"""Fixtures of all tests, and settings of the backends that suit programs that run once."""

import gc
import os
import tempfile

import pytest

SETTINGS = {
    # Tests compute with few numbers in several processes, where more threads only wait.
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    # Compiling takes longer than computing: JAX compiles every operation for every shape.
    "XLA_FLAGS": "--xla_cpu_use_fusion_emitters=false",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    # The processes of pytest-xdist inherit the folder and compile nothing twice.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}
for variable, value in SETTINGS.items():
    os.environ.setdefault(variable, value)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = tempfile.TemporaryDirectory(prefix="keras_diet_tests_", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache.name

import numpy as np  # noqa: E402


def pytest_collection_finish():
    """What is imported stays: the garbage collector need not search it again and again."""
    gc.freeze()


def pytest_sessionfinish():
    """The process ends: pytest need not collect all that tests left, one graph after the other."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed():
    """Make initializers and dropout repeat themselves in every test."""
    # Not above: the process of pytest-xdist that only hands out tests starts faster without.
    import keras

    keras.utils.set_random_seed(13)


@pytest.fixture
def rng():
    """A NumPy generator with the same numbers in every test."""
    return np.random.default_rng(11)
