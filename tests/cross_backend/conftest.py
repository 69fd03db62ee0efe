"""Runs the worker once for each backend, all at the same time."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.cross_backend.cases import BACKENDS

ROOT = Path(__file__).parents[2]


def run_workers(folder):
    """Run the worker on all backends at once. If one fails, fail with its output."""
    # `tests/conftest.py` has set the threads and the compilers in `os.environ`.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    worker = ["tests.cross_backend.worker", str(folder)]
    processes = {}
    for backend in BACKENDS:
        blocked = [] if backend == "tensorflow" else ["tests.without_tensorflow"]
        command = [sys.executable, "-m", *blocked, *worker]
        with open(folder / f"{backend}.log", "w") as log:
            processes[backend] = subprocess.Popen(
                command,
                env={**environment, "KERAS_BACKEND": backend},
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
    # The workers wait for each other's models, so end all of them when one fails.
    while None in (codes := [process.poll() for process in processes.values()]) and not any(codes):
        time.sleep(0.2)
    for process in processes.values():
        process.kill()
    failed = [backend for backend, code in zip(processes, codes, strict=True) if code]
    for backend in failed:
        print((folder / f"{backend}.log").read_text()[-3000:])
    assert not failed, f"the worker failed on {failed}"


def read(folder, file):
    """The arrays of one file of each backend."""
    return {backend: dict(np.load(folder / backend / file)) for backend in BACKENDS}


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """The folder with the results and models of all backends."""
    missing = [backend for backend in BACKENDS if importlib.util.find_spec(backend) is None]
    if missing:
        pytest.skip(f"needs all backends, but {missing} are not installed")
    folder = tmp_path_factory.mktemp("cross_backend")
    run_workers(folder)
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
def translations(saved):
    """Outputs, paths of weights and generated tokens of DietTransformer."""
    return read(saved, "translation.npz")


@pytest.fixture(scope="session")
def task_outputs(saved):
    """Outputs of each task on the backend that saved it."""
    return read(saved, "tasks.npz")


@pytest.fixture(scope="session")
def loaded_outputs(saved):
    """Outputs of all saved tasks, by the backend that loaded them."""
    return read(saved, "loaded.npz")
