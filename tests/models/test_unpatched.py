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
from tests.models.tiny import VOCABULARY, tiny_backbone

pytestmark = pytest.mark.usefixtures("unpatched")
# Whether a text is about a fox is easy to learn.
FOXES = ["the quick fox", "a red fox jumped", "foxes sleep .", "the fox and the tree"]
OTHERS = ["the quick dog", "a red cat jumped", "birds sing .", "the mat and the tree"]


def test_text_classifier_learns():
    classifier = DietBertTextClassifier(
        tiny_backbone(num_layers=1, dropout=0.1),
        num_classes=2,
        preprocessor=DietBertTextClassifierPreprocessor(
            DietBertTokenizer(VOCABULARY), sequence_length=9
        ),
    )
    classifier.compile(keras.optimizers.Adam(3e-3))
    assert TruncatedNormal.__call__ is KERAS_DRAWS[TruncatedNormal]
    assert not classifier.run_eagerly
    texts, labels = FOXES + OTHERS, [1, 1, 1, 1, 0, 0, 0, 0]
    losses = []
    for epochs in (30, 0):
        found = classifier.evaluate(texts, labels, batch_size=4, return_dict=True, verbose=0)
        losses.append(found["loss"])
        if epochs:
            classifier.fit(texts, labels, batch_size=4, epochs=epochs, verbose=0)
    assert losses[0] == pytest.approx(np.log(2), abs=0.1)
    assert losses[1] < 0.5 * losses[0]
    predicted = classifier.predict(texts, batch_size=4, verbose=0)
    assert predicted.shape == (8, 2)
    assert predicted.argmax(axis=-1).tolist() == labels
