"""Malformed arguments of `fit`, and labels and weights of all kinds of classifiers."""

import functools

import keras
import numpy as np
import pytest

from keras_diet import models as M
from tests.malformed.refusals import assert_refused, cases
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import (
    TEXTS,
    random_inputs,
    tiny_backbone,
)

pytestmark = pytest.mark.any_backend

# A refused call does not change a model, so the cases share models.
bb = functools.cache(tiny_backbone)
task = functools.cache(tiny_task)
T = M.DietBertTokenizer
pre = tiny_preprocessor
INPUTS = random_inputs(np.random.default_rng(3), batch_size=3, length=11)
LABELS = np.array([6, 2, 0, 3, 1])
NAMES = ["no", "maybe", "yes"]


def classifier(**arguments):
    return M.DietBertTextClassifier(
        tiny_backbone(num_layers=1), preprocessor=pre("classifier"), **arguments
    )


named = functools.cache(lambda: classifier(class_names=NAMES))
multi = functools.cache(lambda: classifier(class_names=NAMES, multi_label=True))
reg = functools.cache(lambda: classifier(num_classes=1))


def fit(model, **arguments):
    return model.fit(**{"x": TEXTS, "y": LABELS, "verbose": 0, **arguments})


ARGUMENTS = {
    "y dict": (
        {"y": {"label": LABELS}},
        "`y` must be an array or a list, or a dictionary ... Received: the keys 'label'",
    ),
    "y tuple": ({"y": tuple(LABELS)}, "`y` must be an array or a list. ... Received: tuple"),
    "y set": ({"y": {0, 1, 2, 3, 4}}, "`y` must be an array or a list. ... Received: set"),
    "y number": ({"y": 3}, "`y` must be an array or a list. ... Received: int"),
    "y str numbers": ({"y": ["0", "1", "2", "3", "4"]}, "`y` must be numbers. ... Received: text"),
    "y ragged": (
        {"y": [[0], [1, 2], [2], [3], [4]]},
        "`y` must be numbers. ... Received: lists of different lengths, or Python",
    ),
    "y None in list": (
        {"y": [0, 1, None, 2, 3]},
        "`y` must be numbers. ... Received: lists of different lengths, or Python",
    ),
    "y complex": (
        {"y": LABELS + 1j},
        "`y` must be numbers. ... Received: values of dtype complex128",
    ),
    "y floats": (
        {"y": LABELS + 0.5},
        "Labels `y` of a sparse loss must be ... Received: labels of dtype float64 with",
    ),
    "y inf": (
        {"y": [0.0, 1.0, np.inf, 2.0, 3.0]},
        "Labels `y` of a sparse loss must be integers. ... Received: labels of dtype float64",
    ),
    "y negative": (
        {"y": [-1, 0, 1, 2, 3]},
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from -1 to 3. Change "
        "them. To ignore a label, compile a loss with this `ignore_class`",
    ),
    "y 2^32": (
        {"y": LABELS.astype("int64") + 2**32},
        "Labels `y` must lie in [0, num_classes) ... Received: labels from 4294967296 to",
    ),
    "y datetime": (
        {"y": np.array(["2020"] * 5, "datetime64[Y]")},
        "`y` must be numbers. ... Received: lists of different lengths, or Python",
    ),
    "y generator": (
        {"y": (i for i in range(5))},
        "`y` must be an array or a list. ... Received: generator",
    ),
    "y 3D": (
        {"y": np.zeros((5, 1, 1), int)},
        "Labels of a sparse loss must be one integer for ... Received: y.shape=(5, 1, 1)",
    ),
    "y more": (
        {"y": np.zeros(6, int)},
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 6 in `y`",
    ),
    "y empty": (
        {"y": []},
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 0 in `y`",
    ),
    "y uint8 wrap": (
        {"y": np.array([255, 0, 1, 2, 3], "uint8")},
        "Labels `y` must lie in [0, num_classes) = ... Received: labels from 0 to 255. Change "
        "them, or choose a larger `num_classes`",
    ),
    "y one text": ({"y": "positive"}, "`y` must be an array or a list. ... Received: str"),
    "y row": (
        {"y": LABELS[None]},
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 1 in `y`",
    ),
    "weights scalar": (
        {"sample_weight": 1.0},
        "`sample_weight` must be an array or a list. ... Received: float",
    ),
    "weights str": (
        {"sample_weight": ["a"] * 5},
        "`sample_weight` must be numbers. ... Received: values of dtype <U1",
    ),
    "weights inf": (
        {"sample_weight": [np.inf, 1, 1, 1, 1]},
        "`sample_weight` must hold finite numbers. ... Received: inf in row 0",
    ),
    "weights 2D": (
        {"sample_weight": np.ones((5, 3))},
        "`sample_weight` must be one weight for each example, ... Received: shape=(5, 3)",
    ),
    "weights None list": (
        {"sample_weight": [None] * 5},
        "`sample_weight` must be numbers. ... Received: lists of different lengths, or",
    ),
    "weights dict": (
        {"sample_weight": {0: 1.0, 1: 2.0}},
        "`sample_weight` must be an array or a list. ... Received: dict",
    ),
    "weights nan list": (
        {"sample_weight": [1, 1, float("nan"), 1, 1]},
        "`sample_weight` must hold finite numbers. ... Received: nan in row 2",
    ),
    "weights complex": (
        {"sample_weight": np.ones(5) * 1j},
        "`sample_weight` must be numbers. ... Received: values of dtype complex128",
    ),
    "class_weight list": (
        {"class_weight": [1.0] * 7},
        "`class_weight` must be a dictionary of finite numbers by ... Received: list",
    ),
    "class_weight names": (
        {"class_weight": {"no": 1.0}},
        "`class_weight` must be a dictionary of finite numbers ... Received: {'no': 1.0}",
    ),
    "class_weight negative": (
        {"class_weight": dict.fromkeys(range(7), -1.0)},
        "`class_weight` must be a dictionary of finite numbers ... Received: {0: -1.0}",
    ),
    "class_weight nan": (
        {"class_weight": {i: float("nan") for i in range(7)}},
        "`class_weight` must be a dictionary of finite numbers by ... Received: {0: nan}",
    ),
    "class_weight and sw": (
        {"class_weight": dict.fromkeys(range(7), 1.0), "sample_weight": np.ones(5)},
        "`class_weight` must be `None` if examples have weights. ... Received: both. Multiply",
    ),
    "epochs negative": (
        {"epochs": -1},
        "`epochs` must be an integer that is not negative. ... Received: epochs=-1",
    ),
    "epochs float": (
        {"epochs": 1.5},
        "`epochs` must be an integer that is not negative. ... Received: epochs=1.5",
    ),
    "epochs str": (
        {"epochs": "3"},
        "`epochs` must be an integer that is not negative. ... Received: epochs='3'",
    ),
    "epochs None": (
        {"epochs": None},
        "`epochs` must be an integer that is not negative. ... Received: epochs=None",
    ),
    "initial_epoch negative": (
        {"initial_epoch": -2},
        "`initial_epoch` must be an integer that is not ... Received: initial_epoch=-2",
    ),
    "verbose typo": (
        {"verbose": "silent"},
        "`verbose` must be one of 'auto', 0, 1, 2. ... Received: verbose='silent'",
    ),
    "verbose 7": (
        {"verbose": 7},
        "`verbose` must be one of 'auto', 0, 1, 2. ... Received: verbose=7",
    ),
    "steps 0": (
        {"steps_per_epoch": 0},
        "`steps_per_epoch` must be a positive integer. ... Received: steps_per_epoch=0",
    ),
    "steps negative": (
        {"steps_per_epoch": -1},
        "`steps_per_epoch` must be a positive integer. ... Received: steps_per_epoch=-1",
    ),
    "steps float": (
        {"steps_per_epoch": 1.5},
        "`steps_per_epoch` must be a positive integer. ... Received: steps_per_epoch=1.5",
    ),
    "batch_size str": (
        {"batch_size": "8"},
        "`batch_size` must be a positive integer. ... Received: batch_size='8'",
    ),
    "batch_size negative": (
        {"batch_size": -1},
        "`batch_size` must be a positive integer. ... Received: batch_size=-1",
    ),
    "batch_size True": (
        {"batch_size": True},
        "`batch_size` must be a positive integer. ... Received: batch_size=True",
    ),
    "batch positional": (
        {"validation_batch_size": "x"},
        "`validation_batch_size` must be a ... Received: validation_batch_size='x'",
    ),
    "callbacks str": (
        {"callbacks": "early"},
        "`callbacks` must be a list of `keras.callbacks.Callback` ... Received: 'early'",
    ),
    "callbacks class": (
        {"callbacks": [keras.callbacks.EarlyStopping]},
        "`callbacks` must be a list of `keras.callbacks.Callback` ... Received: <class",
    ),
    "callbacks lambda": (
        {"callbacks": [print]},
        "`callbacks` must be a list of ... Received: <built-in function print>",
    ),
    "split 1": (
        {"validation_split": 1.0},
        "`validation_split` must be a number between ... Received: validation_split=1.0",
    ),
    "split negative": (
        {"validation_split": -0.1},
        "`validation_split` must be a number between ... Received: validation_split=-0.1",
    ),
    "split str": (
        {"validation_split": "0.2"},
        "`validation_split` must be a number between ... Received: validation_split=0.2",
    ),
    "split 20": (
        {"validation_split": 20},
        "`validation_split` must be a number between 0 ... Received: validation_split=20",
    ),
    "split True": (
        {"validation_split": True},
        "`validation_split` must be a number between ... Received: validation_split=True",
    ),
    "split nan": (
        {"validation_split": float("nan")},
        "`validation_split` must be a number between ... Received: validation_split=nan",
    ),
    "split 0.9": (
        {"validation_split": 0.9},
        "`validation_split` leaves no ... Received: 5 examples, validation_split=0.9",
    ),
    "validation texts": (
        {"validation_data": TEXTS},
        "`validation_data` must be a tuple (x, y) or (x, y, ... Received: list",
    ),
    "validation one tuple": (
        {"validation_data": (TEXTS,)},
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "validation 4 tuple": (
        {"validation_data": (TEXTS, LABELS, None, 3)},
        "`validation_data` must be a tuple (x, y) or (x, y, ... Received: tuple",
    ),
    "validation empty": (
        {"validation_data": ([], [])},
        "`x` must hold at least one example. ... Received: an empty batch",
    ),
    "validation None y": (
        {"validation_data": (TEXTS, None)},
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "validation str": (
        {"validation_data": "val"},
        "`validation_data` must be a tuple (x, y) or (x, y, ... Received: str",
    ),
    "validation float": (
        {"validation_data": 0.2},
        "`validation_data` must be an array, a list, a dataset, or a ... Received: float",
    ),
    "validation dict": (
        {"validation_data": {"x": TEXTS}},
        "`validation_data` must be a tuple (x, y) or (x, y, ... Received: dict",
    ),
    "validation swapped": (
        {"validation_data": (LABELS, TEXTS)},
        "`x` must be a string, a list of strings, ... Received: an array of dtype int64",
    ),
    "validation freq 0": (
        {"validation_data": (TEXTS, LABELS), "validation_freq": 0},
        "`validation_freq` must be a positive integer. ... Received: validation_freq=0",
    ),
    "validation empty tuple": (
        {"validation_data": ()},
        "`validation_data` must be a tuple (x, y) or (x, y, ... Received: tuple",
    ),
    "validation steps 0": (
        {"validation_data": (TEXTS, LABELS), "validation_steps": 0},
        "`validation_steps` must be a positive integer. ... Received: validation_steps=0",
    ),
    "validation freq str": (
        {"validation_data": (TEXTS, LABELS), "validation_freq": "x"},
        "Expected `validation_freq` to be a ... Received: validation_freq=x of the type",
    ),
    "shuffle batch": (
        {"shuffle": "batch"},
        "`shuffle` must be one of False, True. ... Received: shuffle='batch'",
    ),
    "shuffle None": (
        {"shuffle": None},
        "`shuffle` must be one of False, True. ... Received: shuffle=None",
    ),
    "shuffle str": (
        {"shuffle": "no"},
        "`shuffle` must be one of False, True. ... Received: shuffle='no'",
    ),
    "x None": (
        {"x": None},
        "`x` must be an array, a list, a dataset, or a generator ... Received: NoneType",
    ),
    "x None y None": (
        {"x": None, "y": None},
        "`x` must be an array, a list, a dataset, or a generator ... Received: NoneType",
    ),
    "x number": (
        {"x": 5},
        "`x` must be an array, a list, a dataset, or a generator of ... Received: int",
    ),
    "x swapped": (
        {"x": LABELS, "y": TEXTS},
        "`x` must be a string, a list of strings, ... Received: an array of dtype int64",
    ),
    "x list of pairs": (
        {"x": [(a, b) for a, b in zip(TEXTS, TEXTS, strict=False)]},
        "`x` must be a string, a list of ... Received: texts in lists of lists, or in an",
    ),
    "x list of two lists": (
        {"x": [TEXTS, TEXTS]},
        "`x` must be a string, a list of ... Received: texts in lists of lists, or in an",
    ),
    "x three segments": (
        {"x": (TEXTS, TEXTS, TEXTS)},
        "`x` must be a tuple of at most ... Received: 3 texts, backbone.num_segments=2",
    ),
    "x class": (
        {"x": list},
        "`x` must be an array, a list, a dataset, or a generator of ... Received: type",
    ),
    "x function": (
        {"x": lambda: TEXTS},
        "`x` must be an array, a list, a dataset, or a generator ... Received: function",
    ),
    "x dict": (
        {"x": {"text": TEXTS}},
        "`x` must be a string, a list of ... Received: a dict with the keys 'text'",
    ),
    "x bytes not utf8": (
        {"x": [b"\xff\xfe", b"a", b"b", b"c", b"d"]},
        "`x` must hold text in UTF-8. ... Received: b'\\xff\\xfe' in row 0",
    ),
    "x list in tuple and labels": (
        {"x": (TEXTS, LABELS), "y": None},
        "`x[1]` must be a string, a list of ... Received: an array of dtype int64",
    ),
    "x tuple text labels pairs": (
        {"x": list(zip(TEXTS, LABELS, strict=False)), "y": None},
        "`x` must be a string, a list of ... Received: texts in lists of lists, or in an",
    ),
    "x list with list": (
        {"x": [*TEXTS[:4], ["the fox"]]},
        "`x` must hold strings. ... Received: ['the fox'] in row 4",
    ),
    "x list with tuple": (
        {"x": [*TEXTS[:4], ("a", "b")]},
        "`x` must hold strings. ... Received: ('a', 'b') in row 4",
    ),
    "x bool row": ({"x": [*TEXTS[:4], True]}, "`x` must hold strings. ... Received: True in row 4"),
    "x float array": (
        {"x": np.ones(5)},
        "`x` must be a string, a list of ... Received: an array of dtype float64",
    ),
    "x nat": (
        {"x": [*TEXTS[:4], np.datetime64("NaT")]},
        "`x` must hold strings. ... Received: np.datetime64('NaT','generic') in row 4",
    ),
}


@cases(ARGUMENTS)
def test_arguments(sent, message):
    assert_refused(lambda: fit(task("classifier"), **sent), message)


NAMED = {
    "unknown": (
        ["yes", "no", "maybe", "YES", "no"],
        "`y` must hold names of classes. ... Received: 'YES' in row 3",
    ),
    "None": (
        ["yes", "no", None, "no", "no"],
        "`y` must hold names of classes. ... Received: None in row 2",
    ),
    "nan": (
        ["yes", "no", float("nan"), "no", "no"],
        "`y` must hold names of classes. ... Received: nan in row 2",
    ),
    "mixed int": (
        ["yes", "no", 2, "no", "no"],
        "`y` must hold names of classes. ... Received: 2 in row 2",
    ),
    "space": (
        ["yes ", "no", "no", "no", "no"],
        "`y` must hold names of classes. ... Received: 'yes ' in row 0",
    ),
    "int out": (
        [0, 1, 2, 3, 0],
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from 0 to 3",
    ),
    "list of lists": (
        [["yes"], ["no"], ["no"], ["no"], ["no", "yes"]],
        "`y` must hold names of classes. ... Received: ['yes'] in row 0",
    ),
    "bytes unknown": (
        [b"Yes", b"no", b"no", b"no", b"no"],
        "`y` must hold names of classes. ... Received: 'Yes' in row 0",
    ),
    "one-hot": (
        np.eye(3)[[0, 1, 2, 0, 1]],
        "Labels of a sparse loss must be one integer for ... Received: y.shape=(5, 3)",
    ),
    "2D names": (
        np.array([["yes", "no"]] * 5),
        "Labels of a sparse loss must be one integer for ... Received: y.shape=(5, 2)",
    ),
    "set": ({"yes", "no"}, "`y` must be an array or a list. ... Received: set"),
    "empty strings": (
        ["", "no", "no", "no", "no"],
        "`y` must hold names of classes. ... Received: '' in row 0",
    ),
    "fewer": (
        ["yes", "no"],
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 2 in `y`",
    ),
    "tuple": (
        ("yes", "no", "no", "no", "no"),
        "`y` must be an array or a list. ... Received: tuple",
    ),
}


@cases(NAMED)
def test_labels_with_class_names(sent, message):
    assert_refused(lambda: fit(named(), y=sent), message)


MULTI = {
    "flat": (
        ["yes", "no", "no", "no", "no"],
        "`y` must hold a list of names for each text in ... Received: 'yes' in row 0",
    ),
    "unknown": (
        [["yes", "si"], [], [], [], []],
        "`y` must hold names of classes. ... Received: 'si' in row 0",
    ),
    "ids": (
        [0, 1, 2, 0, 1],
        "Labels `y` of a multi-label classifier must be 0 or ... Received: y.shape=(5,)",
    ),
    "id lists": (
        [[0, 1], [2], [], [1], [0]],
        "`y` must be numbers. ... Received: lists of different lengths, or Python",
    ),
    "2.0": (
        np.full((5, 3), 2.0),
        "Labels `y` of a multi-label classifier ... Received: 2.0 in row 0 for class 0",
    ),
    "negative": (
        np.full((5, 3), -1),
        "Labels `y` of a multi-label classifier ... Received: -1 in row 0 for class 0",
    ),
    "nan": (
        np.full((5, 3), np.nan),
        "Labels `y` of a multi-label classifier ... Received: nan in row 0 for class 0",
    ),
    "shape": (
        np.zeros((5, 2)),
        "Labels `y` of a multi-label classifier must be 0 ... Received: y.shape=(5, 2)",
    ),
    "comma": (
        ["yes,no", "no", "no", "no", "no"],
        "`y` must hold a list of names for each text in ... Received: 'yes,no' in row 0",
    ),
    "fewer": (
        [["yes"]],
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 1 in `y`",
    ),
    "None row": (
        [["yes"], None, [], [], []],
        "`y` must hold a list of names for each text in ... Received: None in row 1",
    ),
    "dict rows": (
        [{"yes": 1}, {}, {}, {}, {}],
        "`y` must be numbers. ... Received: lists of different lengths, or Python",
    ),
    "None in row": (
        [["yes", None], [], [], [], []],
        "`y` must hold names of classes. ... Received: None in row 0",
    ),
    "string array": (
        np.array(["yes"] * 5),
        "`y` must hold a list of names for each text in ... Received: 'yes' in row 0",
    ),
    "3D": (
        np.zeros((5, 3, 1)),
        "Labels `y` of a multi-label classifier must be ... Received: y.shape=(5, 3, 1)",
    ),
    "text floats": (
        [["1", "0", "1"]] * 5,
        "`y` must hold names of classes. ... Received: '1' in row 0",
    ),
    "all empty fewer": (
        [[], []],
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 2 in `y`",
    ),
}


@cases(MULTI)
def test_labels_of_several_classes(sent, message):
    assert_refused(lambda: fit(multi(), y=sent), message)


REGRESSION = {
    "ints text": (["3.5"] * 5, "`y` must be numbers. ... Received: text"),
    "None": (
        [1.0, None, 2.0, 3.0, 4.0],
        "`y` must be numbers. ... Received: lists of different lengths, or Python",
    ),
    "column2": (
        np.ones((5, 2)),
        "Labels of a regression must be one number for each ... Received: y.shape=(5, 2)",
    ),
    "ragged": (
        [[1.0], [2.0, 3.0], [1.0], [1.0], [1.0]],
        "`y` must be numbers. ... Received: lists of different lengths, or Python",
    ),
    "complex": (np.ones(5) * 1j, "`y` must be numbers. ... Received: values of dtype complex128"),
    "3D": (
        np.ones((5, 1, 1)),
        "Labels of a regression must be one number for ... Received: y.shape=(5, 1, 1)",
    ),
    "scalar": (2.5, "`y` must be an array or a list. ... Received: float"),
    "negative inf": (
        [-np.inf, 1, 1, 1, 1],
        "`y` must hold finite numbers. ... Received: -inf in row 0",
    ),
}


@cases(REGRESSION)
def test_labels_of_a_regression(sent, message):
    assert_refused(lambda: fit(reg(), y=sent), message)


BATCHES = {
    "train_on_batch: no y": (
        lambda: task("classifier").train_on_batch(TEXTS),
        "`DietBertTextClassifier` needs labels for its loss. ... Received: y=None",
    ),
    "train_on_batch: short y": (
        lambda: task("classifier").train_on_batch(TEXTS, LABELS[:2]),
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 2 in `y`",
    ),
    "train_on_batch: out of range y": (
        lambda: task("classifier").train_on_batch(TEXTS, LABELS + 5),
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from 5 to 11",
    ),
    "train_on_batch: sw": (
        lambda: task("classifier").train_on_batch(TEXTS, LABELS, sample_weight=np.ones(3)),
        "`x` and `y` and `sample_weight` must ... Received: 5 in `x`, 5 in `y`, 3 in",
    ),
    "train_on_batch: class_weight list": (
        lambda: task("classifier").train_on_batch(TEXTS, LABELS, class_weight=[1.0] * 7),
        "`class_weight` must be a dictionary of finite numbers by ... Received: list",
    ),
    "train_on_batch: class_weight name": (
        lambda: task("classifier").train_on_batch(TEXTS, LABELS, class_weight={"no": 1.0}),
        "`class_weight` must be a dictionary of ... Received: {'no': 1.0}. Use indices in [0, 7)",
    ),
    "fit: segments as arguments": (
        lambda: task("classifier").fit(TEXTS, TEXTS[::-1], LABELS),
        "`batch_size`, the third argument, must be ... ndarray ... one tuple (first, second)",
    ),
    "evaluate: segments as arguments": (
        lambda: task("classifier").evaluate(TEXTS, TEXTS[::-1], list(LABELS)),
        "`batch_size`, the third argument, must be ... list ... one tuple (first, second)",
    ),
    "fit: dict of columns": (
        lambda: task("classifier").fit({"a": TEXTS, "b": TEXTS}, LABELS),
        "`x` must be a string, a list of ... keys 'a', 'b' ... pass a tuple (first, second)",
    ),
    "train_on_batch: dataset": (
        lambda: task("classifier").train_on_batch(iter([(TEXTS, LABELS)])),
        "`x` must hold strings. ... Received: <list_iterator object",
    ),
    "train_on_batch: tuple": (
        lambda: task("classifier").train_on_batch((TEXTS, LABELS)),
        "`x[1]` must be a string, a list of ... Received: an array of dtype int64",
    ),
    "train_on_batch: None": (
        lambda: task("classifier").train_on_batch(None, LABELS),
        "`x` must hold strings. ... Received: None in row 0",
    ),
    "train_on_batch: one text": (
        lambda: task("classifier").train_on_batch("the fox", 3),
        "`x` must be a list of texts. ... Received: one text",
    ),
    "test_on_batch: out of range": (
        lambda: task("classifier").test_on_batch(TEXTS, LABELS - 1),
        "Labels `y` must lie in [0, num_classes) = [0, ... Received: labels from -1 to 5",
    ),
    "predict_on_batch: empty": (
        lambda: task("classifier").predict_on_batch([]),
        "`x` must hold at least one example. ... Received: an empty batch",
    ),
    "predict_on_batch: dataset": (
        lambda: task("classifier").predict_on_batch(iter([(TEXTS,)])),
        "`x` must hold strings. ... Received: <list_iterator object",
    ),
    "masked LM: y": (
        lambda: task("masked_lm").fit(TEXTS, LABELS, verbose=0),
        "`y` and `sample_weight` must be ... Received: labels or weights beside the text",
    ),
    "masked LM: sw": (
        lambda: task("masked_lm").fit(TEXTS, sample_weight=np.ones(5), verbose=0),
        "`y` and `sample_weight` must be ... Received: labels or weights beside the text",
    ),
    "masked LM: dataset with labels": (
        lambda: task("masked_lm").fit(iter([(TEXTS, LABELS)]), verbose=0),
        "`y` and `sample_weight` must be ... Received: labels or weights beside the text",
    ),
}


@cases(BATCHES)
def test_batches(sent, message):
    assert_refused(sent, message)
