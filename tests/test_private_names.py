"""Private names of Keras and KerasHub are used in one file."""

import ast
import re
from pathlib import Path

import pytest

import keras_diet

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
