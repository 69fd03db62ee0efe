"""Keras's own tests of `MultiHeadAttention`, run against `BiasedMultiHeadAttention`.

Keras ships them in its wheel. A test that the layer of Keras fails as well is skipped, and the
reason of the skip names its error.
"""

import contextlib
import importlib
import types
import unittest

import keras
import pytest

from keras_diet.layers import BiasedMultiHeadAttention

MODULE = "keras.src.layers.attention.multi_head_attention_test"


def load():
    """The module with the tests, or `None`, and the error that explains a missing module."""
    try:
        return importlib.import_module(MODULE), None
    except ImportError as error:
        return None, error


KERAS_TESTS, ERROR = load()


def test_methods():
    """The name of each test of Keras, with the marks that skip it."""
    test_case = getattr(KERAS_TESTS, "MultiHeadAttentionTest", None)
    if test_case is None:
        return []
    names = unittest.TestLoader().getTestCaseNames(test_case)
    return [pytest.param(name, marks=marks_of(name, getattr(test_case, name))) for name in names]


test_methods.__test__ = False


def marks_of(name, method):
    """Tests of numbers run on each backend, and the others on one."""
    marks = getattr(method, "pytestmark", [])
    marks = [mark for mark in marks if mark.name in ("skip", "skipif")]
    has_numbers = any(part in name for part in ("mask", "causal", "correctness", "sliding_window"))
    return marks if has_numbers else [*marks, pytest.mark.any_backend]


METHODS = test_methods()


@contextlib.contextmanager
def attention_of_keras_tests(attention_class):
    """Let the tests of Keras find `attention_class` as `layers.MultiHeadAttention`."""
    names = {**vars(keras.src.layers), "MultiHeadAttention": attention_class}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERAS_TESTS, "layers", types.SimpleNamespace(**names))
        yield


def run(name, attention_class):
    case = KERAS_TESTS.MultiHeadAttentionTest(name)
    with attention_of_keras_tests(attention_class):
        case.setUp()
        try:
            getattr(case, name)()
        finally:
            case.tearDown()
            case.doCleanups()


@pytest.fixture(autouse=True)
def settings_of_keras():
    """Restore the settings that the tests of Keras change."""
    filtering = keras.config.is_traceback_filtering_enabled()
    yield
    if filtering:
        keras.config.enable_traceback_filtering()


@pytest.mark.any_backend
def test_keras_still_ships_its_tests():
    assert len(METHODS) > 40, (
        f"Keras {keras.__version__} does not ship the tests `MultiHeadAttentionTest` in {MODULE}: "
        f"found {len(METHODS)} tests, and the import says {ERROR!r}. Find out where they are now."
    )


# These tests make Keras warn, of masks and optimizers, say.
@pytest.mark.filterwarnings(r"ignore:::keras\.src\.")
@pytest.mark.parametrize("name", METHODS)
def test_of_keras_passes(request, name):
    # The others read no initial values, and NumPy draws them faster.
    if name == "test_initializer":
        request.getfixturevalue("keras_initializers")
    try:
        run(name, BiasedMultiHeadAttention)
    except Exception:
        try:
            run(name, keras.layers.MultiHeadAttention)
        except Exception as error:
            pytest.skip(f"the layer of Keras fails it too: {type(error).__name__}: {error}")
        raise


@pytest.mark.any_backend
def test_the_tests_use_the_layer_that_they_are_given():
    """Otherwise they would test the layer of Keras, and always pass."""

    class Refuses(keras.layers.MultiHeadAttention):
        def __init__(self, *args, **kwargs):
            raise AssertionError("this layer")

    with pytest.raises(AssertionError, match="this layer"):
        run("test_masking_with_different_shapes", Refuses)
    run("test_masking_with_different_shapes", keras.layers.MultiHeadAttention)
