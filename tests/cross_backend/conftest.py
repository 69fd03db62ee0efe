"""Runs the worker once for each backend and phase, the backends side by side."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cross_backend.cases import BACKENDS

ROOT = Path(__file__).parents[2]


def run_workers(phase, folder):
    """Run one phase on all backends at once; raise with the output of those that failed."""
    # One thread each: the models are tiny, and the processes share the cores.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.cross_backend.worker", phase, str(folder)]
    processes = {}
    for backend in BACKENDS:
        with open(folder / f"{phase}-{backend}.log", "w") as log:
            processes[backend] = subprocess.Popen(
                command,
                env={**environment, "KERAS_BACKEND": backend},
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
    failed = [backend for backend, process in processes.items() if process.wait()]
    for backend in failed:
        print((folder / f"{phase}-{backend}.log").read_text()[-3000:])
    assert not failed, f"`worker {phase}` failed on {failed}"


def read(folder, file):
    """The arrays of one file of each backend."""
    return {backend: dict(np.load(folder / backend / file)) for backend in BACKENDS}


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """The folder that all backends have written their results and models to."""
    missing = [backend for backend in BACKENDS if importlib.util.find_spec(backend) is None]
    if missing:
        pytest.skip(f"needs all backends, but {missing} are not installed")
    folder = tmp_path_factory.mktemp("cross_backend")
    run_workers("save", folder)
    return folder


@pytest.fixture(scope="session")
def outputs(saved):
    """Outputs of the backbone by backend and case."""
    return read(saved, "outputs.npz")


@pytest.fixture(scope="session")
def gradients(saved):
    """Gradients of the masked LM by backend and case."""
    return read(saved, "gradients.npz")


@pytest.fixture(scope="session")
def task_outputs(saved):
    """Outputs of the tasks that each backend saved, computed there."""
    return read(saved, "tasks.npz")


@pytest.fixture(scope="session")
def loaded_outputs(saved):
    """Outputs of the tasks that all backends saved, by the backend that loaded them."""
    run_workers("load", saved)
    return read(saved, "loaded.npz")
