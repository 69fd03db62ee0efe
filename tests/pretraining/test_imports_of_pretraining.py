"""The modules of `keras_diet.pretraining` import neither TensorFlow nor models."""

import ast
from pathlib import Path

import pytest

from keras_diet import pretraining


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "path", sorted(Path(pretraining.__file__).parent.glob("*.py")), ids=lambda path: path.stem
)
def test_modules_import_neither_tensorflow_nor_models(path):
    imports = [
        ast.unparse(node)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    for name in ("tensorflow", "keras_diet.models", "keras_diet.layers"):
        assert not any(name in line for line in imports)
