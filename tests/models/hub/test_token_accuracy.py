"""`TokenAccuracy` beside loops over tokens."""

import keras
import numpy as np
import pytest

from keras_diet.models.hub.token_accuracy import TokenAccuracy


@pytest.mark.parametrize("weighted", [True, False])
def test_each_token_counts_the_same_in_batches_of_all_lengths(rng, weighted):
    metric, correct, total = TokenAccuracy(), 0.0, 0.0
    for length in (3, 11):
        labels, outputs = rng.integers(0, 3, (2, length)), rng.normal(size=(2, length, 3))
        weights = rng.integers(0, 5, (2, length)) if weighted else np.ones((2, length))
        metric.update_state(labels, outputs, weights if weighted else None)
        for row in range(2):
            for place in range(length):
                weight = float(weights[row, place])
                correct += weight * (outputs[row, place].argmax() == labels[row, place])
                total += weight
    assert float(metric.result()) == pytest.approx(correct / total, rel=1e-5)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert type(copy) is TokenAccuracy
    assert copy.name == "sparse_categorical_accuracy"
