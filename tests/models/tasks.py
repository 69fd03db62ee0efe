"""One small model of each task, for the tests of what all tasks share."""

import operator

import numpy as np
import pytest

from keras_diet.data.columns import map_columns
from keras_diet.models import (
    DietBertMaskedLM,
    DietBertMaskedLMPreprocessor,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenClassifier,
    DietBertTokenClassifierPreprocessor,
    DietBertTokenizer,
)
from tests.models.tiny import SIZES, VOCABULARY, random_inputs, random_masked_inputs, tiny_backbone

CLASSES = {
    "masked_lm": (DietBertMaskedLM, DietBertMaskedLMPreprocessor, {}),
    "classifier": (DietBertTextClassifier, DietBertTextClassifierPreprocessor, {"num_classes": 7}),
    "embedder": (DietBertTextEmbedder, DietBertTextEmbedderPreprocessor, {"pooling_mode": "max"}),
    "token_classifier": (
        DietBertTokenClassifier,
        DietBertTokenClassifierPreprocessor,
        {"num_classes": 5},
    ),
}


def tiny_preprocessor(task, vocabulary=VOCABULARY, **arguments):
    arguments = {"sequence_length": SIZES["max_sequence_length"], **arguments}
    if task == "masked_lm":
        arguments = {"mask_selection_length": 5, "mask_selection_rate": 0.4, **arguments}
    return CLASSES[task][1](DietBertTokenizer(vocabulary), **arguments)


def tiny_task(task, vocabulary=VOCABULARY, with_preprocessor=True, compile=True, **arguments):
    """A task of one layer; `arguments` are the backbone's."""
    cls, _, head = CLASSES[task]
    backbone = tiny_backbone(**{"num_layers": 1, **arguments})
    preprocessor = tiny_preprocessor(task, vocabulary) if with_preprocessor else None
    return cls(backbone=backbone, preprocessor=preprocessor, compile=compile, **head)


def random_data(task, rng):
    """Preprocessed inputs, labels and weights."""
    if task == "masked_lm":
        return random_masked_inputs(rng)
    if task == "token_classifier":
        inputs = random_inputs(rng)
        return inputs, rng.integers(0, 5, (2, 11)), inputs["padding_mask"].astype("float32")
    labels = np.array([6, 2]) if task == "classifier" else rng.normal(size=(2, 15))
    return random_inputs(rng), labels, np.ones(2)


def batches(*columns, size=2):
    """Batches of the rows of columns, as tuples."""
    first = columns[0][0] if isinstance(columns[0], tuple) else columns[0]
    starts = range(0, len(first), size)
    return [map_columns(operator.itemgetter(slice(i, i + size)), columns) for i in starts]


def dataset_of(kind, *columns):
    """Columns as a dataset of batches of 2 rows."""
    if kind == "generator":
        return iter(batches(*columns))
    tf = pytest.importorskip("tensorflow")
    tensors = map_columns(tf.ragged.constant, columns)
    return tf.data.Dataset.from_tensor_slices(tensors).batch(2)


# `tests/models/test_data.py` has all kinds of datasets.
every_dataset = pytest.mark.parametrize("kind", ["generator", "tf.data"])
