"""Fixtures of all tests, and settings of the backends for many small programs."""

import gc
import importlib.metadata
import importlib.util
import os
import re
import sys
import tempfile
from unittest import mock

import pytest
from packaging.version import Version

SETTINGS = {
    # `-n auto` starts one process for each core, and the tensors are tiny: a process with more
    # than one thread would only wait for them.
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    # Each program runs a few times, so XLA takes longer to optimize it than the program takes.
    "XLA_FLAGS": (
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        # The parts into which XLA splits a program for several threads take longer than one part.
        "--xla_cpu_parallel_codegen_split_count=1"
    ),
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    # The processes of pytest-xdist share the folder, so a program is compiled once for all.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}
# JAX 0.12 does not know this flag, and ends the process.
if importlib.util.find_spec("jax") and Version(importlib.metadata.version("jax")) < Version("0.12"):
    SETTINGS["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
for variable, value in SETTINGS.items():
    os.environ.setdefault(variable, value)
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    cache = tempfile.TemporaryDirectory(prefix="keras_diet_tests_", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache.name

import numpy as np  # noqa: E402

# The collector searches more often than the garbage of small models needs, above all during
# imports.
gc.set_threshold(100_000, 10, 10)


def pytest_ignore_collect(collection_path, config):
    """Do not import files whose cases all run on PyTorch, nor what they import."""
    if _backend() == "torch" or config.option.markexpr or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text("utf-8")
    is_of_torch = re.search(r"^pytestmark = \[?\s*pytest\.mark\.any_backend[,\n]", text, re.M)
    has_others = re.search(r"any_backend\(|every_backend", text)
    return True if is_of_torch and not has_others else None


def pytest_collection_modifyitems(config, items):
    """Run the `any_backend` cases on one backend, or wherever `-m` names the marker."""
    if "any_backend" in config.option.markexpr:
        return
    config.hook.pytest_deselected(items=[item for item in items if not _runs_here(item)])
    items[:] = [item for item in items if _runs_here(item)]


def _runs_here(item):
    """Whether `item` runs on this backend. `any_backend` may name one. PyTorch is the fastest.

    The marker of a case counts before that of its function, and this before that of its file.
    """
    names = ("any_backend", "every_backend")
    own = [marker for marker in item.own_markers if marker.name in names]
    marker = own[-1] if own else item.get_closest_marker("any_backend")
    if marker is None or marker.name == "every_backend":
        return True
    return _backend() == next(iter(marker.args), "torch")


def pytest_collection_finish():
    """Keep imported objects out of the garbage collector, so that it need not search them."""
    gc.freeze()


def pytest_sessionfinish():
    """Skip the last garbage collection of pytest. The process ends anyway."""
    gc.freeze()


def _backend():
    return os.environ.get("KERAS_BACKEND", "tensorflow")


@pytest.fixture(autouse=True, scope="module")
def _seed_of_tensorflow():
    """Give TensorFlow's own generator, which `tf.data` uses, the same seed in every file.

    TensorFlow then throws away the kernels of all operations. If every test did this, eager tests
    would take a fourth longer.
    """
    # The main process of pytest-xdist starts faster without this import.
    import keras

    keras.utils.set_random_seed(13)


@pytest.fixture(autouse=True, scope="session")
def _quick_quantization():
    """Delete the variables of a layer without searching all objects for garbage each time."""
    import keras

    delete = keras.layers.Layer.__delattr__

    def quick(layer, name):
        with mock.patch.object(gc, "collect"):
            delete(layer, name)

    with mock.patch.object(keras.layers.Layer, "__delattr__", quick):
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_tuning_of_tensorflow():
    """Iterate over `tf.data` without the thread that tunes its buffers.

    It sleeps for up to a minute, and the iterator cannot be deleted before it wakes up.
    """
    if _backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    options, iterate = tf.data.Options(), tf.data.Dataset.__iter__
    options.autotune.enabled = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tf.data.Dataset, "__iter__", lambda dataset: iterate(dataset.with_options(options))
        )
        yield


@pytest.fixture(autouse=True)
def _seed(_seed_of_tensorflow):
    """Give initializers and dropout the same seed in every test."""
    import keras

    with pytest.MonkeyPatch.context() as patch:
        if "tensorflow" in sys.modules:
            patch.setattr(sys.modules["tensorflow"].random, "set_seed", lambda seed: None)
        keras.utils.set_random_seed(13)


@pytest.fixture
def rng():
    """A NumPy generator with the same numbers in every test."""
    return np.random.default_rng(11)
