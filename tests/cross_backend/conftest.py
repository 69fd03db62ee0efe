"""Runs the worker once for each backend, all at the same time."""

import importlib.util

import numpy as np
import pytest

from tests.cross_backend.cases import BACKENDS
from tests.distribution.conftest import finish, start_worker


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """The arrays of each file that the workers write, by backend."""
    missing = [backend for backend in BACKENDS if importlib.util.find_spec(backend) is None]
    if missing:
        pytest.skip(f"needs all backends, but {missing} are not installed")
    folder = tmp_path_factory.mktemp("cross_backend")
    finish(*(start_worker("cross_backend.worker", folder, backend=name) for name in BACKENDS))
    names = ("outputs", "gradients", "translation", "tasks", "loaded")
    return {
        name: {backend: dict(np.load(folder / backend / f"{name}.npz")) for backend in BACKENDS}
        for name in names
    }
