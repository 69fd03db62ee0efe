"""Private names of Keras and KerasHub are used in one file each, and exist."""

import ast
import inspect
import re
from pathlib import Path

import keras
import keras_hub
import pytest
from keras.src import backend
from keras.src.backend.tensorflow import trainer as tensorflow_trainer
from keras.src.random import seed_generator
from keras.src.saving import saving_lib
from keras.src.trainers import epoch_iterator
from keras.src.trainers.data_adapters import (
    array_data_adapter,
    data_adapter_utils,
    generator_data_adapter,
    grain_dataset_adapter,
    py_dataset_adapter,
)
from keras.src.utils import rng_utils

import keras_diet
from keras_diet import _compat, _keras_fit

ROOT = Path(keras_diet.__file__).parent
# Layers on PyTorch inherit these. Tensors count writes in an attribute of this name.
NAMES_OF_PYTORCH = {"_version"}
ADAPTERS = (
    array_data_adapter,
    data_adapter_utils,
    epoch_iterator,
    generator_data_adapter,
    grain_dataset_adapter,
    py_dataset_adapter,
    tensorflow_trainer,
)
MODULES = (backend, saving_lib, seed_generator, rng_utils, *ADAPTERS)
# The only files that may use private names of each library.
ALLOWED = {"keras": ("_keras.py", "_keras_fit.py"), "keras_hub": ("_compat.py",)}
FILES_OF_KERAS = pytest.mark.parametrize("module", [_keras, _keras_fit])


def missing_names(names):
    """The names, as keys of `PRIVATE_NAMES`, that the installed Keras does not have."""
    return [name for name in names if not exists(name)]


def exists(name):
    class_name, _, attribute = name.rpartition(".")
    if not class_name:
        return any(hasattr(module, name) for module in MODULES)
    classes = (getattr(module, class_name, None) for module in (keras, keras.layers, *ADAPTERS))
    return attribute in private_attributes(next(filter(None, classes)))


def private_attributes(keras_class):
    """Private names of a class of Keras: attributes of the class and of built instances."""
    names = set(dir(keras_class))
    for base in keras_class.__mro__:
        if base.__module__.startswith("keras.src."):
            names |= assigned_attributes(base)
    return {name for name in names - NAMES_OF_PYTORCH if re.match("_[a-zA-Z]", name)}


def assigned_attributes(keras_class):
    """The names that methods of a class assign to `self`."""
    tree = ast.parse(inspect.getsource(keras_class))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


LAYER_ATTRIBUTES = private_attributes(keras.layers.Layer) | private_attributes(keras.Model)
ATTENTION_ATTRIBUTES = LAYER_ATTRIBUTES | private_attributes(keras.layers.MultiHeadAttention)


def private_imports(source):
    """The libraries whose private modules a source imports or names."""
    libraries = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and node.attr == "src":
            names = [ast.unparse(node)]
        for name in names:
            match = re.match(r"(keras|keras_hub)\.src\b", name)
            libraries |= {match[1]} if match else set()
    return libraries


def private_uses(source):
    """The private attributes of Keras that a source reads, assigns, defines or asks for."""
    return set().union(*map(uses_of_statement, ast.parse(source).body))


def uses_of_statement(statement):
    """The same for one statement of a module, such as a class.

    A class that is not an attention layer may use the names of Keras's attention layer.
    """
    bases = [ast.unparse(base) for base in getattr(statement, "bases", [])]
    is_attention = any(base.endswith("MultiHeadAttention") for base in bases)
    is_other_class = isinstance(statement, ast.ClassDef) and not is_attention
    own, others = set(), set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            (own if is_own else others).add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            own.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # As in `hasattr(layer, "_layers")`.
            others.add(node.value)
    return others & ATTENTION_ATTRIBUTES | own & (
        LAYER_ATTRIBUTES if is_other_class else ATTENTION_ATTRIBUTES
    )


@FILES_OF_KERAS
def test_installed_keras_has_every_name(module):
    missing = missing_names(module.PRIVATE_NAMES)
    assert not missing, f"Keras {keras.__version__} has no {', '.join(missing)}. See {module}."


@FILES_OF_KERAS
def test_every_name_is_used_and_explained(module):
    source = Path(module.__file__).read_text()
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= private_uses(source) | {alias.name for node in imports for alias in node.names}
    listed = {name.rpartition(".")[2] for name in module.PRIVATE_NAMES}
    assert listed <= used, f"{listed - used} are not used"
    imported = {
        alias.name
        for node in imports
        if node.module.startswith("keras.src")
        for alias in node.names
    }
    # The other file may list a name.
    names = {*_keras.PRIVATE_NAMES, *_keras_fit.PRIVATE_NAMES}
    assert imported <= names, f"{imported - names} are not listed"
    assert private_uses(source) <= listed
    assert all(reason.endswith(".") for reason in module.PRIVATE_NAMES.values())


def test_no_other_file_uses_private_names():
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text()
        for library in private_imports(source):
            assert path.name in ALLOWED[library], f"{path} imports {library}.src"
        if path.name not in ALLOWED["keras"]:
            used = private_uses(source)
            assert not used, f"{path} uses private names of Keras: {', '.join(sorted(used))}"


def overridden_methods(module):
    """The private methods of KerasHub that classes of a module override."""
    names = set()
    for cls in vars(module).values():
        if inspect.isclass(cls):
            bases = [base for base in cls.__mro__ if base.__module__.startswith("keras_hub.")]
            own = [base for base in cls.__mro__ if base.__module__.startswith(module.__name__)]
            for name in {name for base in own for name in vars(base)}:
                if re.match("_[a-z]", name) and any(name in vars(base) for base in bases):
                    names.add(name)
    return names - LAYER_ATTRIBUTES


def test_overridden_methods_of_keras_hub_are_listed_and_exist():
    listed = {name.rpartition(".")[2] for name in _compat.OVERRIDDEN_METHODS}
    assert overridden_methods(keras_diet.models) == listed
    for name, reason in _compat.OVERRIDDEN_METHODS.items():
        class_name, _, method = name.rpartition(".")
        keras_hub_class = getattr(keras_hub.models, class_name)
        assert hasattr(keras_hub_class, method), f"KerasHub has no {name}. See _compat.py."
        assert reason.endswith(".")


@pytest.mark.parametrize(
    "source, libraries",
    [
        ("from keras.src.backend import x", {"keras"}),
        ("from keras.src import backend", {"keras"}),
        ("from keras import src", {"keras"}),
        ("import keras_hub.src.utils", {"keras_hub"}),
        ("import keras\nx = keras.src.backend", {"keras"}),
        ("import keras\n# keras.src\nx = keras.backend", set()),
        ("from keras_diet import src", set()),
    ],
)
def test_checker_finds_imports(source, libraries):
    assert private_imports(source) == libraries


@pytest.mark.parametrize(
    "source, names",
    [
        ("self._flash_attention", {"_flash_attention"}),
        ("attention._dropout_layer.rate", {"_dropout_layer"}),
        ("layer._flatten_layers()", {"_flatten_layers"}),
        ("self._inverse_sqrt_key_dim = 3", {"_inverse_sqrt_key_dim"}),
        (
            "class A(MultiHeadAttention):\n    def _compute_attention(self): ...",
            {"_compute_attention"},
        ),
        ("hasattr(layer, '_layers')", {"_layers"}),
        ("class A(keras.layers.Layer):\n    x = lambda self: self._dropout", set()),
        ("class A(keras.layers.Layer):\n    x = lambda self: self._layers", {"_layers"}),
        ("class A(BiasedMultiHeadAttention):\n    x = lambda self: self._dropout", {"_dropout"}),
        ("self._hooks()\nself.__init__()", set()),
    ],
)
def test_checker_finds_attributes(source, names):
    assert private_uses(source) == names


def test_checker_finds_missing_names():
    names = ["get_keras_mask", "get_no_mask", "Layer._layers", "MultiHeadAttention._missing"]
    assert missing_names(names) == ["get_no_mask", "MultiHeadAttention._missing"]
