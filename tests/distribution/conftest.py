"""Runs the workers, which choose their devices when their process begins."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start_worker(backend, *arguments, **environment):
    """Start `python -m tests.distribution.<backend>_worker ...`, on that backend."""
    command = [sys.executable, "-m", f"tests.distribution.{backend}_worker", *map(str, arguments)]
    environment = {"KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(*processes):
    """Wait for all workers; fail with what the first that failed has printed."""
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-3000:]
