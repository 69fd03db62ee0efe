"""Cross-entropy with smoothed labels."""

import keras
import numpy as np
import pytest

from keras_diet.models.hub.losses import sparse_loss
from keras_diet.training import SmoothedCategoricalCrossentropy
from tests.helpers import assert_close

LABELS = np.array([[2, 0, 4], [1, 1, 0]])
WEIGHTS = np.array([[1, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_equals_the_loss_of_one_hot_labels(smoothing, rng):
    logits = 3 * rng.normal(size=(2, 3, 5)).astype("float32")
    loss = SmoothedCategoricalCrossentropy(smoothing)
    one_hot = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing, reduction=None
    )
    expected = keras.ops.convert_to_numpy(one_hot(np.eye(5)[LABELS], logits))
    assert_close(loss(LABELS, logits, WEIGHTS), (expected * WEIGHTS).sum() / 3)
    assert_close(SmoothedCategoricalCrossentropy(smoothing, None)(LABELS, logits), expected)
    assert_close(loss(LABELS[..., None], logits), expected.mean())


@pytest.mark.any_backend
def test_config():
    arguments = {"label_smoothing": 0.25, "reduction": "sum", "name": "mine"}
    loss = SmoothedCategoricalCrossentropy(**arguments)
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert restored.get_config() == arguments
    assert SmoothedCategoricalCrossentropy().label_smoothing == 0.1


@pytest.mark.any_backend
def test_is_a_sparse_loss_of_logits():
    loss = SmoothedCategoricalCrossentropy()
    assert sparse_loss(loss) == (True, None)
    assert loss.from_logits


@pytest.mark.any_backend
def test_smoothing_is_checked():
    with pytest.raises(ValueError, match=r"`label_smoothing` must .*label_smoothing=1\.5"):
        SmoothedCategoricalCrossentropy(1.5)
