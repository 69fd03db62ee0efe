"""The modules of `keras_diet.pretraining` import neither TensorFlow nor models."""

import re
from pathlib import Path

import pytest

from keras_diet import pretraining


@pytest.mark.any_backend
def test_modules_import_neither_tensorflow_nor_models():
    for path in Path(pretraining.__file__).parent.glob("*.py"):
        found = re.findall(r"^(?:import|from) (\S+)", path.read_text(), re.MULTILINE)
        assert not [x for x in found if x.startswith(("tensorflow", "keras_diet.models"))], path
