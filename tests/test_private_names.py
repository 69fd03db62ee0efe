"""Private names of Keras and KerasHub are used in one file, and exist."""

import ast
import inspect
import re
from pathlib import Path

import keras
import keras_hub
import pytest

import keras_diet
from keras_diet import _compat

pytestmark = pytest.mark.any_backend
ROOT = Path(keras_diet.__file__).parent
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.rglob("*.py")}
# `_backend.py` calls PyTorch's plain operations.
ALLOWED = {"_compat.py", "_backend.py"}


def own_names():
    """Names that this library defines or assigns."""
    names = set()
    for source in SOURCES.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return names


def private_names(source, own):
    """Private attributes and imports of other libraries."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and ".src" in (node.module or ""):
            names |= {alias.name for alias in node.names}
    return names - own


def test_private_names_are_in_one_file():
    own = own_names()
    used = {path: private_names(source, own) for path, source in SOURCES.items()}
    assert {path for path, names in used.items() if names} <= ALLOWED
    assert len(set().union(*used.values())) <= 9


def exists(name):
    """Whether Keras or KerasHub has a name of `PRIVATE_NAMES`."""
    class_name, _, attribute = name.rpartition(".")
    if not class_name:
        return hasattr(_compat, attribute)
    modules = (keras, keras.layers, keras_hub.models, keras_hub.tokenizers)
    owner = next(filter(None, (getattr(module, class_name, None) for module in modules)))
    sources = (inspect.getsource(base) for base in owner.__mro__ if base is not object)
    return any(re.search(rf"\b{attribute}\b", source) for source in sources)


@pytest.mark.parametrize("name", _compat.PRIVATE_NAMES)
def test_each_private_name_exists_and_has_its_reason(name):
    assert exists(name)
    assert _compat.PRIVATE_NAMES[name].endswith(".")
