"""Runs the workers. Each is a process, because a process chooses its devices when it starts."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[2]
# Seconds. It ends a deadlock, and is long enough for a busy machine.
DEADLOCK = 3600


def start_worker(module, *arguments, launcher=(), **environment):
    """Start `python -m tests.distribution.<module> ...` with the backend of the tests.

    Another backend than TensorFlow starts faster as if TensorFlow were not installed.

    Args:
        module: Name of the worker.
        *arguments: Its arguments.
        launcher: Arguments of Python before the worker, for a program that starts it.
        **environment: Environment variables of the process.
    """
    blocked = [] if keras.config.backend() == "tensorflow" else ["tests.without_tensorflow"]
    command = [sys.executable, *launcher, "-m", *blocked, f"tests.distribution.{module}"]
    command += map(str, arguments)
    environment = {
        "KERAS_BACKEND": keras.config.backend(),
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
    """Wait for all workers and return what they print. If one fails, fail with its output."""
    try:
        outputs = [process.communicate(timeout=DEADLOCK)[0] for process in processes]
    except subprocess.TimeoutExpired as error:
        printed = (error.output or b"").decode(errors="replace")
        pytest.fail(f"A worker did not end within {error.timeout} seconds: {printed[-3000:]}")
    finally:
        for process in processes:
            end(process)
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-20000:]
    return "".join(outputs)


def end(process):
    """End a worker that still runs. `torchrun` then ends its processes."""
    process.terminate()
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
