"""Masks that Keras attaches to tensors, where blocks or attention are recomputed."""

import keras
import numpy as np
import pytest

from keras_diet import layers
from tests.helpers import to_numpy

TOKENS = np.array([[5, 6, 7, 0, 0, 0], [5, 6, 7, 8, 9, 10]])


@pytest.mark.parametrize("recompute", ["block", "attention"])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_recomputation_of_masked_inputs(recompute, is_decoder):
    results = []
    for each in ("none", recompute):
        keras.utils.set_random_seed(11)
        inputs = keras.Input((6,), dtype="int32")
        x = keras.layers.Embedding(20, 16, mask_zero=True)(inputs)
        if is_decoder:
            x = layers.DietDecoder(1, 2, 32, max_sequence_length=7, recompute=each)(x, x)
        else:
            x = layers.DietEncoder(1, 2, 32, max_sequence_length=7, recompute=each)(x)
        model = keras.Model(inputs, x)
        model.compile(keras.optimizers.SGD(0.7), "mse")
        loss = model.train_on_batch(TOKENS, np.full((2, 6, 16), 0.3, "float32"))
        results.append((loss, [to_numpy(weight) for weight in model.weights]))
    (expected_loss, expected), (loss, actual) = results
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    for got, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)
