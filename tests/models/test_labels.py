"""Labels of tasks, in arrays and in `tf.data`: accepted dtypes, and labels that are refused."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertMaskedLM, DietBertTextClassifier
from tests.models.tiny import random_inputs, random_masked_inputs, tiny_backbone

NUM_CLASSES = 300
LABELS = {
    "bool": np.array([True, False, True, True]),
    "uint8": np.array([0, 255, 7, 2], dtype="uint8"),
    "int8": np.array([0, 127, 7, 2], dtype="int8"),
    "float": np.array([0.0, 299.0, 7.0, 2.0], dtype="float32"),
    "object": np.array([0, 299, 7, 2], dtype=object),
    "list": [0, 299, 7, 2],
}
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def tiny_classifier(**compile_arguments):
    classifier = DietBertTextClassifier(tiny_backbone(num_layers=1), NUM_CLASSES)
    if compile_arguments:
        classifier.compile(**compile_arguments)
    return classifier


@pytest.fixture(scope="module")
def classifier():
    return tiny_classifier()


@pytest.mark.parametrize("labels", LABELS)
def test_classes_of_any_dtype(rng, classifier, labels):
    inputs = random_inputs(rng, batch_size=4)
    plain = np.array(np.asarray(LABELS[labels]).tolist(), dtype="int32")
    expected = classifier.evaluate(inputs, plain, verbose=0)
    assert classifier.evaluate(inputs, LABELS[labels], verbose=0) == pytest.approx(expected)
    assert classifier.test_on_batch(inputs, LABELS[labels]) == pytest.approx(expected)


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize("labels", ["bool", "uint8", "int8", "float"])
def test_classes_of_any_dtype_in_tf_data(rng, classifier, labels):
    tf = pytest.importorskip("tensorflow")
    inputs = random_inputs(rng, batch_size=4)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, LABELS[labels])).batch(4)
    expected = classifier.evaluate(inputs, LABELS[labels], verbose=0)
    assert classifier.evaluate(dataset, verbose=0) == pytest.approx(expected)


@pytest.mark.any_backend
@pytest.mark.parametrize("loss", [[SPARSE], {"logits": SPARSE}], ids=["list", "dict"])
def test_losses_in_containers_are_checked(rng, loss):
    classifier = tiny_classifier(loss=loss, metrics=[])
    inputs = random_inputs(rng)
    for y in ([0, 300], {"logits": np.array([0, 300])}):
        with pytest.raises(ValueError, match=r"num_classes\) = \[0, 300\).*from 0 to 300"):
            classifier.evaluate(inputs, y, verbose=0)


def test_validation_data_in_a_list_is_checked(rng, classifier):
    inputs = random_inputs(rng)
    with pytest.raises(ValueError, match="labels from 0 to 300"):
        classifier.fit(inputs, [0, 1], validation_data=[inputs, [0, 300]], verbose=0)


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_one_hot_labels_need_another_loss(rng, classifier, dtype):
    one_hot = np.eye(2, NUM_CLASSES, dtype=dtype)
    inputs = random_inputs(rng)
    with pytest.raises(ValueError, match=r"shape=\(2, 300\)(.|\n)*CategoricalCrossentropy"):
        classifier.evaluate(inputs, one_hot, verbose=0)
    with pytest.raises(ValueError, match="CategoricalCrossentropy"):
        classifier.evaluate(inputs, one_hot.tolist(), verbose=0)


@pytest.mark.any_backend
@pytest.mark.parametrize("y", [[0.0, 0.5], [0.0, float("nan")]], ids=str)
def test_numbers_that_are_not_integers_are_refused(rng, classifier, y):
    with pytest.raises(ValueError, match=r"must be integers\. Received: labels of dtype float"):
        classifier.evaluate(random_inputs(rng), np.array(y), verbose=0)


@pytest.mark.any_backend
@pytest.mark.parametrize("y", [[0, None], [[0], [1, 2]]], ids=str)
def test_objects_that_are_not_numbers_are_refused(rng, classifier, y):
    with pytest.raises(ValueError, match="`y` must be numbers"):
        classifier.evaluate(random_inputs(rng), np.array(y, dtype=object), verbose=0)


def test_masked_tokens_lie_in_the_vocabulary(rng):
    inputs, labels, weights = random_masked_inputs(rng)
    masked_lm = DietBertMaskedLM(tiny_backbone(num_layers=1))
    masked_lm.evaluate(inputs, labels, sample_weight=weights, verbose=0)
    labels[0, 0] = 31
    for call in (masked_lm.fit, masked_lm.evaluate):
        with pytest.raises(ValueError, match=r"vocabulary_size\) = \[0, 31\).* to 31"):
            call(inputs, labels, sample_weight=weights, verbose=0)


@pytest.mark.any_backend
def test_default_metrics_of_one_output_suit_the_loss():
    def names(**arguments):
        regression = DietBertTextClassifier(tiny_backbone(num_layers=1), 1)
        regression.compile(**arguments)
        metrics = regression.get_compile_config()["metrics"]
        return [metric["config"]["name"] for metric in metrics]

    squared = ["root_mean_squared_error"]
    assert names() == names(loss="mse") == squared
    assert names(loss=keras.losses.MeanSquaredError()) == squared
    assert names(loss="binary_crossentropy") == []


@pytest.mark.any_backend
def test_default_metric_of_one_hot_labels(rng):
    labels = np.eye(NUM_CLASSES, dtype="float32")[[17, 4, 0, 299]]
    model = tiny_classifier(loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    results = model.evaluate(random_inputs(rng, batch_size=4), labels, verbose=0, return_dict=True)
    assert set(results) == {"loss", "categorical_accuracy"}
