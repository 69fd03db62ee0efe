"""The command that kills trainings and compares them with one that was not killed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.any_backend


def test_killed_processes(tmp_path):
    """The command that kills trainings by SIGKILL, also while they write a checkpoint."""
    command = [sys.executable, "-m", "examples.paper.kill_and_resume", "--runs", "3"]
    command += ["--kills", "1", "--seed", "3"]
    command += ["--moments", "step", "write", "--output", str(tmp_path / "runs.json")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    found = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert len(found) == 3
    for run in found:
        assert (run["different"], len(run["kills"])) == ([], 1)
        assert run["values"] > 20
    assert {kill["moment"][0] for run in found for kill in run["kills"]} == {"step", "write"}
