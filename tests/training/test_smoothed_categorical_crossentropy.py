"""Cross-entropy with smoothed labels."""

import keras
import numpy as np
import pytest

from keras_diet.models.hub.labels import sparse_loss
from keras_diet.training import SmoothedCategoricalCrossentropy
from tests.helpers import assert_close, gradients, once, to_numpy

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
    for weights in (WEIGHTS, WEIGHTS[..., None]):
        assert_close(loss(LABELS, logits, weights), (expected * WEIGHTS).sum() / 3)
    assert_close(SmoothedCategoricalCrossentropy(smoothing, None)(LABELS, logits), expected)
    assert_close(loss(LABELS[..., None], logits), expected.mean())
    of_rows = SmoothedCategoricalCrossentropy(smoothing, None)(LABELS, logits, np.array([2.0, 0.5]))
    assert_close(of_rows, expected * np.array([[2.0], [0.5]]))


@pytest.mark.parametrize(
    "wrong, reduction",
    [(-100, "mean_with_sample_weight"), *once((-1, "sum"), (5, None), (5, "sum"), (-1, None))],
)
def test_labels_without_weight_have_no_effect(wrong, reduction, rng):
    logits = 3 * rng.normal(size=(2, 3, 5)).astype("float32")
    labels = np.where(WEIGHTS == 0, wrong, LABELS)
    expected = SmoothedCategoricalCrossentropy(0.3, reduction)(LABELS, logits, WEIGHTS)
    loss = SmoothedCategoricalCrossentropy(0.3, reduction)
    assert_close(loss(labels, logits, WEIGHTS), expected)
    assert np.isnan(to_numpy(loss(labels, logits, WEIGHTS + 1))).any()
    ignoring = SmoothedCategoricalCrossentropy(0.3, reduction, ignore_class=wrong)
    assert_close(ignoring(labels, logits), expected)
    variable = keras.Variable(logits)
    slopes = [
        gradients(lambda y=y: keras.ops.sum(loss(y, variable + 0.0, WEIGHTS)), [variable])[0]
        for y in (LABELS, labels)
    ]
    assert_close(slopes[1], slopes[0], 1e-6)
    assert np.abs(slopes[0]).max() > 1e-3


@pytest.mark.any_backend
@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
def test_ignored_labels_count_as_in_keras(reduction, rng):
    """The mean is over the labels that are not ignored, and other weights do not change it."""
    logits = 3 * rng.normal(size=(2, 3, 5)).astype("float32")
    weights = np.array([[0.5, 2.0, 1.0], [3.0, 0.0, 1.5]], "float32")
    options = {"ignore_class": 1, "reduction": reduction}
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)
    found = SmoothedCategoricalCrossentropy(0.0, **options)(LABELS, logits, weights)
    assert_close(found, theirs(LABELS, logits, weights))


@pytest.mark.any_backend
def test_config():
    arguments = {"label_smoothing": 0.25, "reduction": "sum", "name": "mine", "ignore_class": 3}
    loss = SmoothedCategoricalCrossentropy(**arguments)
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert restored.get_config() == arguments
    assert SmoothedCategoricalCrossentropy().label_smoothing == 0.1


@pytest.mark.any_backend
def test_is_a_sparse_loss_of_logits():
    assert sparse_loss(SmoothedCategoricalCrossentropy(ignore_class=7)) == (True, 7, True)


@pytest.mark.any_backend
def test_smoothing_is_checked():
    with pytest.raises(ValueError, match=r"`label_smoothing` must .*label_smoothing=1\.5"):
        SmoothedCategoricalCrossentropy(1.5)
