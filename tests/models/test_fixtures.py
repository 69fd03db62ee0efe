"""Fixtures undo nothing that others have done."""

import gc

import keras
import numpy as np
import pytest

from tests.helpers import to_numpy


@pytest.mark.usefixtures("keras_initializers")
def test_keras_initializers_leave_eager_steps():
    values = to_numpy(keras.initializers.TruncatedNormal(seed=3)((5,)))
    again = to_numpy(keras.initializers.TruncatedNormal(seed=3)((5,)))
    np.testing.assert_array_equal(values, again)
    assert keras.Model().run_eagerly == (keras.backend.backend() != "jax")


@pytest.mark.usefixtures("quick_quantization")
def test_what_is_imported_stays_out_of_garbage_collection():
    assert gc.get_freeze_count() > 1000
