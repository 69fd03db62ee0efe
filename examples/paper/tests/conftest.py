"""The settings and fixtures of all tests, for the tests of the experiments."""

from tests.conftest import *  # noqa: F403
from tests.conftest import _no_tuning_of_tensorflow, _seed, _seed_of_tensorflow  # noqa: F401
from tests.fixtures import (  # noqa: F401
    compiled_steps,
    eager_steps,
    numpy_initializers,
    unpatched,
)
