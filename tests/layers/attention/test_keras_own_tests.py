"""Keras's own tests of `MultiHeadAttention`, run against `BiasedMultiHeadAttention`.

Keras ships them in its wheel. A test that the layer of Keras fails as well is skipped, and the
reason of the skip names its error.
"""

import importlib
import types
import unittest

import keras
import pytest

from keras_diet.layers import BiasedMultiHeadAttention

KERAS_TESTS = importlib.import_module("keras.src.layers.attention.multi_head_attention_test")
NAMES = unittest.TestLoader().getTestCaseNames(KERAS_TESTS.MultiHeadAttentionTest)


def run(name, attention_class):
    """Run a test of Keras, which finds `attention_class` as `layers.MultiHeadAttention`."""
    names = {**vars(keras.src.layers), "MultiHeadAttention": attention_class}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERAS_TESTS, "layers", types.SimpleNamespace(**names))
        KERAS_TESTS.MultiHeadAttentionTest(name).debug()


@pytest.fixture(autouse=True)
def settings_of_keras():
    """Restore the settings that the tests of Keras change."""
    yield
    keras.config.enable_traceback_filtering()


@pytest.mark.any_backend
# These tests make Keras warn, of masks and optimizers, say.
@pytest.mark.filterwarnings(r"ignore:::keras\.src\.")
@pytest.mark.parametrize("name", NAMES)
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
