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


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """The arrays of each file that the workers write, by backend."""
    missing = [backend for backend in BACKENDS if importlib.util.find_spec(backend) is None]
    if missing:
        pytest.skip(f"needs all backends, but {missing} are not installed")
    folder = tmp_path_factory.mktemp("cross_backend")
    run_workers(folder)
    names = ("outputs", "gradients", "translation", "tasks", "loaded")
    return {
        name: {backend: dict(np.load(folder / backend / f"{name}.npz")) for backend in BACKENDS}
        for name in names
    }
