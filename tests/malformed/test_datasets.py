"""Malformed batches in all kinds of datasets."""

import functools

import grain
import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from tests.malformed.refusals import assert_refused, cases
from tests.models.tasks import tiny_task
from tests.models.tiny import (
    TEXTS,
)

pytestmark = pytest.mark.any_backend

# A refused call does not change a model, so the cases share models.
task = functools.cache(tiny_task)
LABELS = np.array([6, 2, 0, 3, 1])
TDS = tf.data.Dataset
pairs = list(zip(TEXTS, LABELS.tolist(), strict=True))


class PD(keras.utils.PyDataset):
    """Batches in a list."""

    def __init__(self, items):
        super().__init__()
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def dl(items):
    return torch.utils.data.DataLoader(items, batch_size=5)


def fit(x, **arguments):
    return task("classifier").fit(x, verbose=0, **arguments)


DATASETS = {
    "tf unbatched": (
        lambda: TDS.from_tensor_slices((TEXTS, LABELS)),
        "`x` must hold several texts. ... Received: one text",
    ),
    "tf no labels": (
        lambda: TDS.from_tensor_slices(TEXTS).batch(5),
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "tf ints": (
        lambda: TDS.from_tensor_slices((np.arange(5), LABELS)).batch(5),
        "`x` must be a string, a list ... Received: an array of dtype <dtype: 'int64'>",
    ),
    "tf dict": (
        lambda: TDS.from_tensor_slices(({"text": TEXTS}, LABELS)).batch(5),
        "`x` must be a string, a list of ... Received: a dict with the keys 'text'",
    ),
    "tf text labels": (
        lambda: TDS.from_tensor_slices((TEXTS, TEXTS)).batch(5),
        "`y` must be numbers. ... Received: text",
    ),
    "tf swapped": (
        lambda: TDS.from_tensor_slices((LABELS, TEXTS)).batch(5),
        "`x` must be a string, a list ... Received: an array of dtype <dtype: 'int64'>",
    ),
    "tf 4": (
        lambda: TDS.from_tensor_slices((TEXTS, LABELS, LABELS, LABELS)).batch(5),
        "Data is expected to be in format `x`, `(x,)`, `(x, y)`, or `(x, y,",
    ),
    "tf empty": (
        lambda: TDS.from_tensor_slices((TEXTS, LABELS)).batch(5).take(0),
        "A dataset must have at least one batch. ... Received: _TakeDataset of length 0",
    ),
    "tf twice batched": (
        lambda: TDS.from_tensor_slices((TEXTS, LABELS)).batch(2).batch(2),
        "`x` must be a string, a list of ... Received: texts in lists of lists, or in an",
    ),
    "tf one-hot": (
        lambda: TDS.from_tensor_slices((TEXTS, np.eye(7)[LABELS])).batch(5),
        "Labels of a sparse loss must be one integer for ... Received: y.shape=(None, 7)",
    ),
    "tf dict element": (
        lambda: TDS.from_tensor_slices({"text": TEXTS, "label": LABELS}).batch(5),
        "`x` must be a string, a list of ... Received: a dict with the keys 'text',",
    ),
    "grain unbatched": (
        lambda: grain.MapDataset.source(pairs),
        "`x` must hold several texts. ... Received: one text",
    ),
    "grain out of range": (
        lambda: grain.MapDataset.source([(TEXTS, LABELS + 9)]),
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from 9 to 15",
    ),
    "grain no labels": (
        lambda: grain.MapDataset.source([TEXTS]),
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "grain None": (
        lambda: grain.MapDataset.source([([*TEXTS[:4], None], LABELS)]),
        "`x` must hold strings. ... Received: None in row 4",
    ),
    "grain dict": (
        lambda: grain.MapDataset.source([{"text": TEXTS, "label": LABELS}]),
        "`x` must be a string, a list of ... Received: a dict with the keys 'text',",
    ),
    "grain empty": (
        lambda: grain.MapDataset.source([]),
        "A dataset must have at least one ... Received: SourceMapDataset of length 0",
    ),
    "grain fewer labels": (
        lambda: grain.MapDataset.source([(TEXTS, LABELS[:3])]),
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 3 in `y`",
    ),
    "grain iter": (
        lambda: grain.MapDataset.source([(TEXTS, LABELS + 9)]).to_iter_dataset(),
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from 9 to 15",
    ),
    "loader unbatched": (
        lambda: torch.utils.data.DataLoader(pairs, batch_size=None),
        "`x` must hold several texts. ... Received: one text",
    ),
    "loader out of range": (
        lambda: dl([(t, 9) for t in TEXTS]),
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from 9 to 9",
    ),
    "loader no labels": (
        lambda: dl(TEXTS),
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "loader dict": (
        lambda: dl([{"text": t, "label": 1} for t in TEXTS]),
        "`x` must be a string, a list of ... Received: a dict with the keys 'text',",
    ),
    "loader text labels": (
        lambda: dl([(t, "no") for t in TEXTS]),
        "`y` must be numbers. ... Received: text",
    ),
    "loader nan": (
        lambda: dl([(float("nan"), 1) for t in TEXTS]),
        "`x` must be a string, a list of ... Received: an array of dtype float64",
    ),
    "torch dataset": (
        lambda: torch.utils.data.TensorDataset(torch.zeros(5)),
        "`x` must be a string, a list of ... Received: an array of dtype float32",
    ),
    "pyd unbatched": (lambda: PD(pairs), "`x` must hold several texts. ... Received: one text"),
    "pyd out of range": (
        lambda: PD([(TEXTS, LABELS + 9)]),
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from 9 to 15",
    ),
    "pyd no labels": (
        lambda: PD([(TEXTS,)]),
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "pyd list only": (
        lambda: PD([TEXTS]),
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "pyd list element": (
        lambda: PD([[TEXTS, LABELS]]),
        "`x` must be a string, a list of ... Received: texts in lists of lists, or in an",
    ),
    "pyd empty": (
        lambda: PD([]),
        "A dataset must have at least one batch. ... Received: PD of length 0",
    ),
    "pyd None row": (
        lambda: PD([([*TEXTS[:4], None], LABELS)]),
        "`x` must hold strings. ... Received: None in row 4",
    ),
    "pyd dict": (
        lambda: PD([{"text": TEXTS}]),
        "`x` must be a string, a list of ... Received: a dict with the keys 'text'",
    ),
    "pyd 4": (
        lambda: PD([(TEXTS, LABELS, None, 3)]),
        "Data is expected to be in format `x`, `(x,)`, `(x, y)`, or `(x, y,",
    ),
    "gen unbatched": (
        lambda: (p for p in pairs),
        "`x` must hold several texts. ... Received: one text",
    ),
    "gen out of range": (
        lambda: iter([(TEXTS, LABELS + 9)]),
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from 9 to 15",
    ),
    "gen no labels": (
        lambda: iter([(TEXTS,)]),
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "gen texts": (lambda: iter(TEXTS), "`x` must hold several texts. ... Received: one text"),
    "gen empty": (
        lambda: iter([]),
        "A dataset must have at least one batch. ... Received: list_iterator without batches",
    ),
    "gen later bad": (
        lambda: iter([(TEXTS, LABELS), (TEXTS, LABELS[:2])]),
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 2 in `y`",
    ),
    "gen None": (lambda: iter([None]), "`x` must hold strings. ... Received: None in row 0"),
    "gen empty tuple": (
        lambda: iter([()]),
        "Data is expected to be in format `x`, `(x,)`, `(x, y)`, or `(x, y,",
    ),
    "gen numbers": (lambda: iter([3, 4]), "`x` must hold strings. ... Received: 3 in row 0"),
    "gen empty batch": (
        lambda: iter([([], [])]),
        "`x` must hold at least one example. ... Received: an empty batch",
    ),
    "gen 4": (
        lambda: iter([(TEXTS, LABELS, None, 3)]),
        "Data is expected to be in format `x`, `(x,)`, `(x, y)`, or `(x, y,",
    ),
    "gen nan weights": (
        lambda: iter([(TEXTS, LABELS, np.full(5, np.nan))]),
        "`sample_weight` must hold finite numbers. ... Received: nan in row 0",
    ),
    "str path": ("train.csv", "`x` must be a list of texts. ... Received: one text"),
}


@cases(DATASETS)
def test_datasets(sent, message):
    assert_refused(lambda: fit(sent() if callable(sent) else sent), message)


ARGUMENTS = {
    "y with": (
        lambda: task("classifier").fit(iter([(TEXTS, LABELS)]), LABELS, verbose=0),
        "`y` must be `None` if `x` is a dataset or a ... Received: x=list_iterator",
    ),
    "weights with": (
        lambda: task("classifier").fit(PD([(TEXTS, LABELS)]), sample_weight=np.ones(5), verbose=0),
        "`sample_weight` must be `None` if `x` is a dataset or a ... Received: x=PD",
    ),
    "bs with": (
        lambda: task("classifier").fit(PD([(TEXTS, LABELS)]), batch_size=4, verbose=0),
        "`batch_size` must be `None` if `x` is a dataset or a ... Received: x=PD. Set the batch",
    ),
    "split with": (
        lambda: task("classifier").fit(PD([(TEXTS, LABELS)]), validation_split=0.2, verbose=0),
        "`validation_split` needs arrays or lists. ... Received: x=PD",
    ),
    "validation out of range": (
        lambda: task("classifier").fit(
            TEXTS, LABELS, validation_data=PD([(TEXTS, LABELS + 9)]), verbose=0
        ),
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from 9 to 15",
    ),
    "validation batch size": (
        lambda: (
            task("classifier")
            .fit(
                TEXTS,
                LABELS,
                validation_data=PD([(TEXTS, LABELS)]),
                validation_batch_size=4,
                verbose=0,
            )
            .history
        ),
        "`validation_batch_size` must be `None` if `validation_data` is a dataset "
        "... Received: validation_data=PD. Set the batch size in the dataset.",
    ),
    "tf sparse weights shape": (
        lambda: (
            task("classifier")
            .fit(TDS.from_tensor_slices((TEXTS, LABELS, np.ones((5, 3)))).batch(5), verbose=0)
            .history
        ),
        "`sample_weight` must be one weight for each ... Received: shape=(None, 3)",
    ),
}


@cases(ARGUMENTS)
def test_arguments(sent, message):
    assert_refused(sent, message)
