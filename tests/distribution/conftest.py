"""Runs the workers. Each is a process, because a process chooses its devices when it starts."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.training.resumed import assert_same

ROOT = Path(__file__).parents[2]
# Seconds. It ends a deadlock, and is long enough for a busy machine.
DEADLOCK = 3600


def start_worker(module, *arguments, backend=None, launcher=(), **environment):
    """Start `python -m tests.<module> ...`.

    Another backend than TensorFlow starts faster as if TensorFlow were not installed.

    Args:
        module: Name of the worker.
        *arguments: Its arguments.
        backend: Name of the backend, or `None` for the one of the tests.
        launcher: Arguments of Python before the worker, for a program that starts it.
        **environment: Environment variables of the process.
    """
    backend = backend or keras.config.backend()
    blocked = [] if backend == "tensorflow" else ["tests.without_tensorflow"]
    command = [sys.executable, *launcher, "-m", *blocked, f"tests.{module}", *map(str, arguments)]
    environment = {
        "KERAS_BACKEND": backend,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*processes):
    """Wait for all workers and return what they print. If some fail, fail with their output."""
    try:
        outputs = [process.communicate(timeout=DEADLOCK)[0] for process in processes]
    except subprocess.TimeoutExpired as error:
        printed = (error.output or b"").decode(errors="replace")
        pytest.fail(f"A worker did not end within {error.timeout} seconds: {printed[-3000:]}")
    finally:
        for process in processes:
            end(process)
    results = zip(processes, outputs, strict=True)
    failed = [output[-9000:] for process, output in results if process.returncode]
    assert not failed, "\n".join(failed)
    return "".join(outputs)


def end(process):
    """End a worker that still runs. `torchrun` then ends its processes."""
    process.terminate()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()


def values(path):
    with np.load(path) as file:
        return dict(file)


def check_resumed(folder, num_processes=1):
    """A training that crashed twice ends as one that did not, bitwise and in each process."""
    for rank in range(num_processes):
        assert_same(values(folder / f"crashed_{rank}.npz"), values(folder / f"once_{rank}.npz"))
    assert len(list(folder.glob("crashed_*.npz"))) == num_processes
    assert len(list((folder / "crashed").glob("step_*.npz"))) == 2
