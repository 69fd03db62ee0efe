"""Everything but `tf.data` works on JAX and PyTorch without TensorFlow.

`tests/test_imports.py` shows what works without KerasHub, too.

The page on installation says so. TensorFlow is blocked, not uninstalled: raw text goes through
Python and grain. One process does everything, because its imports take longest.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


# On JAX, the workers of `tests/cross_backend` and `tests/distribution` run without TensorFlow.
@pytest.mark.any_backend
def test_models_and_pretraining_run(tmp_path):
    """The worker runs in a folder that is not the repository."""
    module = "tests.without_tensorflow"
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, f"{module}.worker"],
        cwd=tmp_path,
        env={**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.splitlines()[-1] == "torch"
