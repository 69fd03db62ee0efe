"""Everything but `tf.data` works on JAX and PyTorch without TensorFlow.

docs/without_tensorflow.md says so. TensorFlow is blocked, not uninstalled: raw text goes through
Python and grain. One process for each backend does everything, because its imports take longest.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.models.tasks import tiny_task

BACKEND = keras.config.backend()
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow is the backend")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the worker prints. It runs in a folder that is not the repository."""
    folder = tmp_path_factory.mktemp("process")
    tiny_task("masked_lm").save_to_preset(str(folder / "diet_bert"))
    command = [sys.executable, "-W", "ignore", "-m", "tests.without_tensorflow"]
    process = subprocess.run(
        [*command, "tests.without_tensorflow.worker", str(folder / "diet_bert")],
        cwd=folder,
        env={**os.environ, "KERAS_BACKEND": BACKEND, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1])


def test_models_and_pretraining_run(results):
    assert results["backend"] == BACKEND


def test_before_the_import_a_preset_is_refused(results):
    """Its classes are not registered yet, and the errors name them."""
    assert len(results["refusals"]) == 3
    for message in results["refusals"]:
        assert "keras_diet>DietBert" in message


def test_import_loads_only_what_it_needs(results):
    """KerasHub, and nothing but itself on top."""
    # KerasHub and Keras load packages such as matplotlib, if they are installed.
    assert set(results["packages"]) <= {"keras_diet", "safetensors"}
    # KerasHub and Keras find these classes in files without another import.
    expected = {"DietBertTextClassifier", "DietEncoder", "WarmupLinearDecay"}
    assert {f"keras_diet>{name}" for name in expected} <= set(results["registered"])
