"""The argument `class_weight` of `fit`."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier
from tests.helpers import once, to_numpy
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import TEXTS, randomize_weights, tiny_backbone

NAMES = ["bad", "good", "neutral", "very good"]
LABELS = np.array([3, 0, 2, 1, 0])
# What the examples weigh if "bad" weighs 0.25, "neutral" 4 and "very good" 2.
WEIGHTS = np.array([2.0, 0.25, 4.0, 1.0, 0.25])


def tiny_classifier(**arguments):
    arguments = {"class_names": NAMES, **arguments}
    return randomize_weights(
        DietBertTextClassifier(
            tiny_backbone(num_layers=1, dropout=0.0),
            preprocessor=tiny_preprocessor("classifier"),
            dropout=0.0,
            **arguments,
        ),
        seed=4,
    )


def arrays(labels):
    return {"x": TEXTS, "y": labels, "batch_size": 5}


class OneBatch(keras.utils.PyDataset):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    @property
    def num_batches(self):
        return 1

    def __getitem__(self, index):
        return self.batch


def py_dataset(labels):
    return {"x": OneBatch((TEXTS, labels))}


def tf_data(labels):
    tf = pytest.importorskip("tensorflow")
    return {"x": tf.data.Dataset.from_tensor_slices((TEXTS, labels)).batch(5)}


BY_NAME = {"bad": 0.25, "neutral": 4, "very good": 2.0}
BY_INDEX = {0: 0.25, 2: 4, 3: 2.0}
BY_BOTH = {np.int64(0): np.float32(0.25), 1: 1, "neutral": 4, "very good": 2.0}


@pytest.mark.parametrize(
    ("make", "class_weight"),
    [
        (arrays, BY_BOTH),
        (py_dataset, BY_BOTH),
        (tf_data, BY_BOTH),
        *once((arrays, BY_NAME), (arrays, BY_INDEX), (py_dataset, BY_INDEX), (tf_data, BY_NAME)),
    ],
)
def test_examples_weigh_what_their_class_weighs(make, class_weight):
    model = tiny_classifier()
    logits = to_numpy(model.predict(TEXTS, verbose=0))
    losses = keras.losses.sparse_categorical_crossentropy(LABELS, logits, from_logits=True)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(**make(np.array(NAMES)[LABELS]), class_weight=class_weight, verbose=0)
    assert history.history["loss"][0] == pytest.approx(to_numpy(losses) @ WEIGHTS / 5, rel=1e-5)


def test_one_batch():
    model = tiny_classifier()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    expected = model.test_on_batch(TEXTS, LABELS, sample_weight=WEIGHTS, return_dict=True)
    class_weight = {"bad": 0.25, "neutral": 4, "very good": 2.0}
    received = model.train_on_batch(TEXTS, LABELS, class_weight=class_weight, return_dict=True)
    assert received["loss"] == pytest.approx(expected["loss"], rel=1e-5)


@pytest.mark.any_backend
def test_one_output_may_have_two_classes():
    model = tiny_classifier(class_names=None, num_classes=1)
    logits = to_numpy(model.predict(TEXTS, verbose=0))
    labels = np.array([1, 0, 0, 1, 0])
    losses = keras.losses.binary_crossentropy(labels[:, None], logits, from_logits=True)
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    history = model.fit(**arrays(labels), class_weight={0: 3.0, 1: 0.5}, verbose=0)
    expected = to_numpy(losses) @ np.where(labels, 0.5, 3.0) / 5
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({"goood": 2.0}, r"{'goood': 2.0}. Use indices in \[0, 4\) or the names 'bad', 'good', "),
        ({0: 1.0, 4: 2.0}, "Received: {4: 2.0}"),
        ({-1: 2.0}, "Received: {-1: 2.0}"),
        ({True: 2.0}, "Received: {True: 2.0}"),
        ({1.0: 2.0}, "Received: {1.0: 2.0}"),
        ("balanced", "must be a dictionary .* Received: str"),
        ({"good": "2"}, "Received: {'good': '2'}"),
        ({"good": -0.5}, "Received: {'good': -0.5}"),
        ({1: float("inf")}, "Received: {1: inf}"),
    ],
)
def test_refused_weights(class_weight, message):
    with pytest.raises(ValueError, match=message):
        tiny_classifier().fit(TEXTS, LABELS, class_weight=class_weight, verbose=0)


@pytest.mark.any_backend
@pytest.mark.parametrize("task", ["masked_lm", "multi_label"])
def test_several_labels_for_an_example(task):
    model = tiny_classifier(multi_label=True) if task == "multi_label" else tiny_task(task)
    labels = None if task == "masked_lm" else [["bad"], ["good"], [], ["bad", "good"], []]
    with pytest.raises(ValueError, match=r"several labels.*Pass `sample_weight`"):
        model.fit(TEXTS, labels, class_weight={0: 2.0}, verbose=0)
