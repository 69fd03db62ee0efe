"""A task as a user runs it: raw text, compiled steps, Keras's initializers, nothing patched."""

import keras
import numpy as np
import pytest
from keras.initializers import TruncatedNormal

from keras_diet.models import (
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
)
from tests.fixtures import KERAS_DRAWS
from tests.helpers import to_numpy
from tests.models.tiny import VOCABULARY, tiny_backbone

pytestmark = pytest.mark.usefixtures("unpatched")
# Whether a text is about a fox is easy to learn.
FOXES = ["the quick fox", "a red fox jumped", "foxes sleep .", "the fox and the tree"]
OTHERS = ["the quick dog", "a red cat jumped", "birds sing .", "the mat and the tree"]


def trained(task, x, y, epochs):
    """Check that nothing is patched, train, and return the losses before and after."""
    assert TruncatedNormal.__call__ is KERAS_DRAWS[TruncatedNormal]
    assert not task.run_eagerly
    first = task.evaluate(x, y, batch_size=4, return_dict=True, verbose=0)["loss"]
    history = task.fit(x, y, batch_size=4, epochs=epochs, verbose=0).history["loss"]
    assert len(history) == epochs
    return first, task.evaluate(x, y, batch_size=4, return_dict=True, verbose=0)["loss"]


def adam():
    return keras.optimizers.Adam(3e-3)


def test_text_classifier_learns():
    classifier = DietBertTextClassifier(
        tiny_backbone(num_layers=1, dropout=0.1),
        num_classes=2,
        preprocessor=DietBertTextClassifierPreprocessor(
            DietBertTokenizer(VOCABULARY), sequence_length=9
        ),
    )
    classifier.compile(adam())
    labels = [1, 1, 1, 1, 0, 0, 0, 0]
    first, last = trained(classifier, FOXES + OTHERS, labels, epochs=30)
    assert first == pytest.approx(np.log(2), abs=0.1)
    assert last < 0.5 * first
    predicted = classifier.predict(FOXES + OTHERS, batch_size=4, verbose=0)
    assert predicted.shape == (8, 2)
    assert predicted.argmax(axis=-1).tolist() == labels


@pytest.mark.any_backend
def test_no_two_weights_start_equal():
    backbone = tiny_backbone(sharing="none")
    kernels = [
        to_numpy(weight) for weight in backbone.weights if weight.path.endswith("query/kernel")
    ]
    kernels += [
        to_numpy(weight) for weight in backbone.weights if weight.path.endswith("key/kernel")
    ]
    tables = [
        to_numpy(table)
        for bias in backbone.encoder.position_biases
        for table in (bias.query_embedding, bias.key_embedding)
    ]
    for values in (kernels, tables):
        assert len(values) == 4
        for i, one in enumerate(values):
            assert one.std() > 0.01
            for other in values[:i]:
                assert np.abs(one - other).max() > 0.01
