"""What `import keras_diet` loads: KerasHub, and nothing but itself on top."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json
import sys

import keras
import keras_hub


def packages():
    return {name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names


before = packages()
import keras_diet

registered = [name for name in keras.saving.get_custom_objects() if name.startswith("keras_diet>")]
print(json.dumps([sorted(packages() - before), registered]))
"""


@pytest.mark.any_backend
def test_import_loads_only_what_it_needs(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    added, registered = json.loads(result.stdout.splitlines()[-1])
    # KerasHub and Keras load packages such as matplotlib, if they are installed.
    assert set(added) <= {"keras_diet", "safetensors"}
    # KerasHub and Keras find these classes in files without another import.
    assert {"keras_diet>DietBertTextClassifier", "keras_diet>DietEncoder"} <= set(registered)
    assert "keras_diet>WarmupLinearDecay" in registered
