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
    """On PyTorch, `jit_compile=True` would need a compiler of C++."""
    tokenizer = DietBertTokenizer(VOCABULARY)
    preprocessor = DietBertTextClassifierPreprocessor(tokenizer, sequence_length=9)
    backbone = tiny_backbone(num_layers=1, dropout=0.1)
    classifier = DietBertTextClassifier(backbone, num_classes=2, preprocessor=preprocessor)
    jit_compile = keras.backend.backend() != "torch"
    classifier.compile(keras.optimizers.Adam(3e-3), jit_compile=jit_compile)
    assert TruncatedNormal.__call__ is KERAS_DRAWS[TruncatedNormal]
    assert not classifier.run_eagerly
    texts, labels = FOXES + OTHERS, [1, 1, 1, 1, 0, 0, 0, 0]
    before = classifier.evaluate(texts, labels, batch_size=4, verbose=0)[0]
    assert before == pytest.approx(np.log(2), abs=0.1)
    classifier.fit(texts, labels, batch_size=4, epochs=30, verbose=0)
    assert classifier.evaluate(texts, labels, batch_size=4, verbose=0)[0] < 0.5 * before
    predicted = classifier.predict(texts, batch_size=4, verbose=0)
    assert predicted.argmax(axis=-1).tolist() == labels
