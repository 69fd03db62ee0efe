"""Each task as a user runs it: raw text, compiled steps, Keras's initializers, nothing patched."""

import keras
import numpy as np
import pytest
from keras.initializers import TruncatedNormal

from keras_diet.models import (
    DietBertMaskedLM,
    DietBertMaskedLMPreprocessor,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenizer,
)
from tests.fixtures import KERAS_DRAWS
from tests.helpers import to_numpy
from tests.models.tiny import SIZES, TEXTS, VOCABULARY, tiny_backbone

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
def test_masked_lm_learns():
    masked_lm = DietBertMaskedLM(
        tiny_backbone(num_layers=1),
        DietBertMaskedLMPreprocessor(
            DietBertTokenizer(VOCABULARY), sequence_length=13, mask_selection_length=5
        ),
    )
    masked_lm.compile(adam())
    texts = TEXTS[:1] * 8
    first, last = trained(masked_lm, texts, None, epochs=30)
    assert first == pytest.approx(np.log(SIZES["vocabulary_size"]), abs=0.3)
    assert last < 0.8 * first
    assert masked_lm.predict(texts, batch_size=4, verbose=0).shape == (8, 5, 31)


@pytest.mark.any_backend
def test_text_embedder_learns():
    embedder = DietBertTextEmbedder(
        tiny_backbone(num_layers=1),
        DietBertTextEmbedderPreprocessor(DietBertTokenizer(VOCABULARY), sequence_length=9),
    )
    embedder.compile(adam(), loss="mse")
    # Texts about foxes have one direction, all others the opposite direction. Hidden states have a
    # mean of zero, and so has the direction.
    direction = np.linspace(-1, 1, 15, dtype="float32")
    y = np.stack([direction] * 4 + [-direction] * 4) / np.linalg.norm(direction)
    first, last = trained(embedder, FOXES + OTHERS, y, epochs=30)
    assert last < 0.5 * first
    similarities = to_numpy(
        embedder.similarity(
            embedder.encode_text("the fox", verbose=0),
            embedder.encode_documents(["a quick fox", "a quick cat"], verbose=0),
        )
    )
    assert similarities.shape == (1, 2)
    assert similarities[0, 0] > similarities[0, 1]


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
