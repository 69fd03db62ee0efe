"""Malformed inputs of backbones, tasks and preprocessors raise errors that name a remedy."""

import functools

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention
from keras_diet.models import (
    DietBertMaskedLM,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import once
from tests.models.tasks import TASKS, tiny_preprocessor, tiny_task
from tests.models.tiny import TEXTS, VOCABULARY, random_inputs, tiny_backbone

INPUTS = random_inputs(np.random.default_rng(3), batch_size=3, length=11)
LABELS = np.array([6, 2, 0, 3, 1])
# A refused call does not change a model, so the cases share models.
shared_backbone = functools.cache(tiny_backbone)
shared_task = functools.cache(tiny_task)


def with_value(name, value):
    """The inputs, with another first value of an input."""
    array = INPUTS[name].astype(np.asarray(value).dtype)
    array[0, 0] = value
    return {**INPUTS, name: array}


def without(name):
    return {key: value for key, value in INPUTS.items() if key != name}


# What is sent instead of the inputs of a backbone, and part of the message.
TOKEN_INPUTS = {
    "unknown key": ({**INPUTS, "position_ids": INPUTS["token_ids"]}, "unknown: 'position_ids'"),
    "missing key": (without("segment_ids"), "missing: 'segment_ids'"),
    "key of Hugging Face": (
        {**without("token_ids"), "input_ids": INPUTS["token_ids"]},
        "unknown: 'input_ids'; missing: 'token_ids'",
    ),
    "text": ("the fox", "Received: text"),
    "texts": (TEXTS, "Received: text"),
    "list": ([INPUTS["token_ids"]] * 3, "Received: list"),
    "tuple": ((INPUTS["token_ids"],) * 3, "Received: tuple"),
    "array": (INPUTS["token_ids"], r"Received: ndarray of shape \(3, 11\)"),
    "negative id": (with_value("token_ids", -1), r"\[0, vocabulary_size\) = \[0, 31\).*from -1"),
    "id too large": (with_value("token_ids", 31), r"\[0, 31\).*to 31"),
    "id that wraps": (with_value("token_ids", np.int64(2**32 + 5)), "int64.*to 4294967301"),
    "fractional id": (with_value("token_ids", 4.5), r"`x\['token_ids'\]` must hold integers"),
    "NaN": (with_value("token_ids", np.nan), "values from nan"),
    "negative segment": (with_value("segment_ids", -1), r"\[0, num_segments\) = \[0, 2\)"),
    "segment too large": (with_value("segment_ids", 2), r"segment_ids'\].*to 2"),
    "additive mask": (with_value("padding_mask", -1e9), "1 for tokens and 0 for padding"),
    "fractional mask": (with_value("padding_mask", 0.25), "from 0.0 to 1.0"),
    "mask of twos": (with_value("padding_mask", 2), "padding_mask.*to 2"),
    "longer mask": (
        {**INPUTS, "padding_mask": np.ones((3, 12))},
        r"padding_mask of shape \(3, 12\)",
    ),
    "smaller batch": (
        {**INPUTS, "segment_ids": INPUTS["segment_ids"][:2]},
        r"segment_ids of shape \(2, 11\)",
    ),
    "no batch axis": (
        {name: array[0] for name, array in INPUTS.items()},
        r"shape=\(11,\).*batch axis",
    ),
    "three axes": (
        {name: array[None] for name, array in INPUTS.items()},
        r"shape=\(1, 3, 11\)",
    ),
    "one-hot ids": (
        {**INPUTS, "token_ids": np.eye(31)[INPUTS["token_ids"]]},
        r"token_ids.*shape=\(3, 11, 31\)",
    ),
    "nested lists": (
        {name: array.tolist() for name, array in INPUTS.items()},
        "Received: list. Convert lists",
    ),
    "None": ({**INPUTS, "segment_ids": None}, "segment_ids.*Received: NoneType"),
    "words": ({**INPUTS, "token_ids": np.full((3, 11), "fox")}, "token_ids.*Received: text"),
}
CASES = pytest.mark.parametrize("x, message", TOKEN_INPUTS.values(), ids=list(TOKEN_INPUTS))


@CASES
def test_call_of_a_backbone(x, message):
    backbone = shared_backbone()
    with pytest.raises(ValueError, match=message):
        backbone(x)
    with pytest.raises(ValueError, match=message):
        backbone(inputs=x)


@CASES
def test_arrays_of_a_backbone(x, message):
    backbone = shared_backbone()
    backbone.compile(loss="mse")
    for method in (backbone.predict, backbone.evaluate, backbone.fit):
        with pytest.raises(ValueError, match=message):
            method(x)
    outputs = {"sequence_output": np.zeros((3, 11, 15)), "pooled_output": np.zeros((3, 15))}
    with pytest.raises(ValueError, match=message):
        backbone.fit(INPUTS, outputs, validation_data=(x, outputs), verbose=0)


@CASES
def test_task_without_preprocessor(x, message):
    task = shared_task("classifier", with_preprocessor=False)
    with pytest.raises(ValueError, match=message):
        task.predict(x)
    with pytest.raises(ValueError, match=message):
        task.fit(x, LABELS[:3])


@CASES
def test_batches_without_preprocessor(x, message):
    task = shared_task("classifier", with_preprocessor=False)
    with pytest.raises(ValueError, match=message):
        task.predict_on_batch(x)


@pytest.mark.parametrize("position", [-1, 11])
def test_mask_positions(position):
    task = shared_task("masked_lm", with_preprocessor=False)
    positions = np.array([[0, position], [1, 2], [3, 10]])
    message = rf"mask_positions.*\[0, length\) = \[0, 11\).*{position}"
    with pytest.raises(ValueError, match=message):
        task.predict({**INPUTS, "mask_positions": positions})


def test_what_is_correct_is_accepted(rng):
    backbone = tiny_backbone()
    expected = keras.ops.convert_to_numpy(backbone(INPUTS)["pooled_output"])
    for dtype in ("int64", "uint8", "float32"):
        inputs = {name: array.astype(dtype) for name, array in INPUTS.items()}
        np.testing.assert_allclose(
            backbone.predict(inputs, verbose=0)["pooled_output"], expected, 1e-4
        )
    inputs = {**INPUTS, "padding_mask": INPUTS["padding_mask"].astype("bool")}
    np.testing.assert_allclose(backbone.predict(inputs, verbose=0)["pooled_output"], expected, 1e-4)


def test_ignored_segments_may_have_any_value():
    backbone = tiny_backbone(segment_encoding="none", position_encoding="input")
    backbone({**INPUTS, "segment_ids": INPUTS["segment_ids"] + 7})


# What is sent instead of texts, and part of the message.
NOT_TEXTS = {
    "NaN": (np.array([*TEXTS[:4], np.nan], dtype=object), "`x` must.*Received: nan in row 4"),
    "NaN in a list": ([TEXTS[0], float("nan"), *TEXTS[2:]], "nan in row 1. Remove missing rows"),
    "None": ([None, *TEXTS[1:]], "None in row 0"),
    "number": ([*TEXTS[:3], 5, TEXTS[4]], "5 in row 3"),
    "second text missing": ((TEXTS, [*TEXTS[:4], None]), r"`x\[1\]` must.*None in row 4"),
    "integers": (np.arange(5), "an array of dtype int64"),
    "token ids": (INPUTS, "a dict with the keys 'token_ids'.*preprocessor=None"),
    "column names": ({"text": TEXTS}, "a dict with the keys 'text'. Pass one of its values"),
    "rows of words": ([["the", "fox"]] * 5, "texts in lists of lists"),
    "column": (np.array(TEXTS)[:, None], "an array of several axes"),
    "no texts": ([], "an empty batch"),
    "list and text": ((TEXTS, "the fox"), "a tuple of both"),
    "pairs of different length": ((TEXTS, TEXTS[:4]), r"batch sizes \[5, 4\]"),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("x, message", NOT_TEXTS.values(), ids=list(NOT_TEXTS))
def test_texts(task, x, message):
    model = shared_task(task)
    methods = [model.predict, model.predict_on_batch, model.preprocessor]
    if task == "classifier":
        methods += [lambda x: model.fit(x, LABELS), lambda x: model.evaluate(x, LABELS)]
    for method in methods:
        with pytest.raises(ValueError, match=message):
            method(x)


def classify(**arguments):
    """`fit` of a classifier of 7 classes, with other arguments."""
    shared_task("classifier").fit(**{"x": TEXTS, "y": LABELS, "verbose": 0, **arguments})


@functools.cache
def regressor():
    backbone = tiny_backbone(num_layers=1)
    preprocessor = tiny_preprocessor("classifier")
    return DietBertTextClassifier(backbone, num_classes=1, preprocessor=preprocessor)


def regress(y):
    regressor().fit(TEXTS, y, verbose=0)


# Calls, and part of the message.
CALLS = {
    "no labels": (lambda: classify(y=None), "needs labels for its loss. Received: y=None"),
    "fewer labels": (lambda: classify(y=LABELS[:4]), "5 in `x`, 4 in `y`. Pass one label"),
    "labels of no example": (lambda: regress(np.zeros(0)), "5 in `x`, 0 in `y`"),
    "NaN weight": (
        lambda: classify(sample_weight=np.array([1.0, 1.0, 1.0, np.nan, 1.0])),
        "`sample_weight` must hold finite numbers. Received: nan in row 3",
    ),
    "one pair": (lambda: classify(x=("the fox", "a")), "Received: one text"),
    "validation batch size": (
        lambda: classify(validation_data=(TEXTS, LABELS), validation_batch_size=0),
        "positive integer",
    ),
    "class of the preprocessor": (
        lambda: DietBertTextClassifier(
            tiny_backbone(), num_classes=2, preprocessor=DietBertTextClassifierPreprocessor
        ),
        "Received: the class DietBertTextClassifierPreprocessor",
    ),
    "fewer weights": (lambda: classify(sample_weight=np.ones(3)), "3 in `sample_weight`"),
    "one text": (lambda: classify(x="the fox"), "Received: one text. Put it into a list"),
    "class too large": (lambda: classify(y=LABELS + 1), r"\[0, 7\).*1 to 7"),
    "class names": (lambda: classify(y=["a"] * 5), "`y` must be numbers. Received: text"),
    "NaN class": (lambda: classify(y=[0, 1, np.nan, 2, 3]), "must be integers"),
    "one-hot labels": (lambda: classify(y=np.eye(7)[LABELS]), r"y.shape=\(5, 7\).*one-hot"),
    "batch size 0": (lambda: classify(batch_size=0), "batch_size=0"),
    "batch size 2.5": (lambda: classify(batch_size=2.5), "batch_size=2.5"),
    "validation labels": (
        lambda: classify(validation_data=(TEXTS, LABELS + 3)),
        "Received: labels from 3 to 9",
    ),
    "validation lengths": (lambda: classify(validation_data=(TEXTS, LABELS[:2])), "2 in `y`"),
    "labels that broadcast": (lambda: regress(np.ones((5, 3))), r"one number.*y.shape=\(5, 3\)"),
    "labels of one row": (lambda: regress(np.ones((1, 5))), "5 in `x`, 1 in `y`"),
    "NaN label": (lambda: regress([0.5, 1.0, np.nan, 2.0, 3.0]), "nan in row 2"),
    "infinite label": (lambda: regress([0.5, np.inf, 1.0, 2.0, 3.0]), "inf in row 1"),
    "KerasHub's backbone": (
        lambda: DietBertTextClassifier(
            keras_hub.models.BertBackbone(31, 1, 3, 15, 23, max_sequence_length=13), num_classes=2
        ),
        "must be a `DietBertBackbone`. Received: BertBackbone",
    ),
    "name for a backbone": (
        lambda: DietBertTextClassifier("diet_bert", num_classes=2),
        "Received: str.*from_preset",
    ),
    "tokenizer": (
        lambda: DietBertMaskedLM(tiny_backbone(), DietBertTokenizer(VOCABULARY)),
        "Received: DietBertTokenizer.*DietBertMaskedLMPreprocessor",
    ),
    "preprocessor of another task": (
        lambda: DietBertMaskedLM(tiny_backbone(), tiny_preprocessor("classifier")),
        "Received: DietBertTextClassifierPreprocessor",
    ),
    "no room for a token": (
        lambda: tiny_preprocessor("classifier", sequence_length=2)(TEXTS),
        "at least 3.*sequence_length=2",
    ),
    "length 0": (
        lambda: tiny_preprocessor("embedder", sequence_length=0)(TEXTS),
        "positive integer. Received: sequence_length=0",
    ),
    "rate above 1": (
        lambda: tiny_preprocessor("masked_lm", mask_selection_rate=1.5)(TEXTS),
        r"in \[0, 1\]. Received: mask_selection_rate=1.5",
    ),
    "negative rate": (
        lambda: tiny_preprocessor("masked_lm", random_token_rate=-0.1)(TEXTS),
        "random_token_rate=-0.1",
    ),
    "rates that add up to more than 1": (
        lambda: DietBertMaskedLM(
            tiny_backbone(),
            tiny_preprocessor("masked_lm", mask_token_rate=0.9, random_token_rate=0.2),
        ),
        "mask_token_rate=0.9, random_token_rate=0.2",
    ),
    "list as a bias": (
        lambda: BiasedMultiHeadAttention(2, 3)(
            np.ones((1, 2, 5)), np.ones((1, 2, 5)), attention_bias=[[0.0, 1.0], [0.5, 0.0]]
        ),
        "`attention_bias` must be a tensor or a bias layer. Received: list",
    ),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("call, message", CALLS.values(), ids=list(CALLS))
def test_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class Column:
    """A column of pandas, which is not a dependency: an array with a dtype of missing values."""

    def __init__(self, values, kind):
        self.values, self.shape = values, (len(values),)
        self.dtype = type("dtype", (), {"kind": kind, "na_value": None})()

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=object)


@pytest.mark.any_backend
@pytest.mark.parametrize("kind", ["O", "U"])
def test_columns_of_pandas(kind):
    classifier = shared_task("classifier")
    classifier.check_inputs(Column(TEXTS, kind))
    with pytest.raises(ValueError, match="None in row 2"):
        classifier.check_inputs(Column([*TEXTS[:2], None], kind))


@pytest.mark.any_backend
def test_custom_losses_take_their_own_labels():
    preprocessor, backbone = tiny_preprocessor("classifier"), tiny_backbone(num_layers=1)
    model = DietBertTextClassifier(backbone, num_classes=1, preprocessor=preprocessor)

    def masked_error(y, outputs):
        value, weight = y[:, :1], y[:, 1:]
        return ops.where(ops.isnan(value), 0.0, weight * (outputs - value) ** 2)

    model.compile(loss=masked_error)
    y = np.array([[1.0, 2.0], [np.nan, 1.0], [0.5, 1.0], [0.0, 3.0], [1.5, 1.0]], "float32")
    history = model.fit(TEXTS, y, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.any_backend
def test_rates_may_add_up_to_1():
    preprocessor = tiny_preprocessor("masked_lm", mask_token_rate=0.75, random_token_rate=0.25)
    preprocessor(TEXTS)
    tiny_preprocessor("classifier", sequence_length=3)(TEXTS)


def test_a_preprocessor_may_be_a_function():
    backbone = tiny_backbone(num_layers=1)
    model = DietBertTextClassifier(backbone, num_classes=7, preprocessor=lambda x: x)
    assert model.predict(INPUTS, verbose=0).shape == (3, 7)


@pytest.mark.parametrize("task", ["classifier", *once("embedder")])
def test_one_text_is_a_batch_of_one(task):
    model = tiny_task(task)
    single, batch = (model.predict(x, verbose=0) for x in (TEXTS[1], [TEXTS[1]]))
    np.testing.assert_array_equal(single, batch)
    pair, pairs = (model.predict(x, verbose=0) for x in ((TEXTS[1], "a"), ([TEXTS[1]], ["a"])))
    np.testing.assert_array_equal(pair, pairs)
    assert pair.shape == batch.shape
    assert not np.array_equal(pair, batch)
