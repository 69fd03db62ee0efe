"""Malformed arguments of tasks, and of the methods that predict."""

import functools

import numpy as np
import pytest

from keras_diet import models as M
from tests.malformed.refusals import assert_refused, cases
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import (
    TEXTS,
    VOCABULARY,
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


def fm(*args, **kwargs):
    return lambda: task("masked_lm").fill_mask(*args, **kwargs)


def cf(*args, **kwargs):
    return lambda: task("classifier").classify(*args, **kwargs)


def en(*args, **kwargs):
    return lambda: task("embedder").encode_text(*args, verbose=0, **kwargs)


def make(**arguments):
    arguments = {"backbone": bb(), "num_classes": 3, **arguments}
    return M.DietBertTextClassifier(**arguments)


@functools.cache
def reg():
    return M.DietBertTextClassifier(bb(), num_classes=1, preprocessor=pre("classifier"))


@functools.cache
def mlm0():
    return tiny_task("masked_lm", with_preprocessor=False)


E = np.random.default_rng(2).normal(size=(3, 15)).astype("float32")


ARGUMENTS = {
    "num_classes 0": (
        {"num_classes": 0},
        "`num_classes` must be a positive integer. ... Received: num_classes=0",
    ),
    "num_classes None": (
        {"num_classes": None},
        "`num_classes` or `class_names` must be given. ... Received: None for both",
    ),
    "num_classes float": (
        {"num_classes": 3.0},
        "`num_classes` must be a positive integer. ... Received: num_classes=3.0",
    ),
    "num_classes True": (
        {"num_classes": True},
        "`num_classes` must be a positive integer. ... Received: num_classes=True",
    ),
    "num_classes list": (
        {"num_classes": ["a", "b"]},
        "`num_classes` must be a positive integer. ... Received: num_classes=['a', 'b']",
    ),
    "names string": (
        {"num_classes": None, "class_names": "positive"},
        "`class_names` must be a list of at least ... Received: class_names='positive'",
    ),
    "names one": (
        {"num_classes": None, "class_names": ["a"]},
        "`class_names` must be a list of at least two ... Received: class_names=['a']",
    ),
    "names twice": (
        {"num_classes": None, "class_names": ["a", "a"]},
        "`class_names` must be a list of at least ... Received: class_names=['a', 'a']",
    ),
    "names empty": (
        {"num_classes": None, "class_names": ["a", ""]},
        "`class_names` must be a list of at ... Received: '' in class_names=['a', '']",
    ),
    "names int": (
        {"num_classes": None, "class_names": ["a", 1]},
        "`class_names` must be a list of at ... Received: 1 in class_names=['a', 1]",
    ),
    "names dict": (
        {"num_classes": None, "class_names": {0: "a", 1: "b"}},
        "`class_names` must be a list of at ... Received: class_names={0: 'a', 1: 'b'}",
    ),
    "names count": (
        {"num_classes": 3, "class_names": ["a", "b"]},
        "`class_names` must hold one name ... Received: num_classes=3 and 2 names ('a',",
    ),
    "names []": (
        {"num_classes": None, "class_names": []},
        "`class_names` must be a list of at least two ... Received: class_names=[]",
    ),
    "names None in": (
        {"num_classes": None, "class_names": ["a", None]},
        "`class_names` must be a list of ... Received: None in class_names=['a', None]",
    ),
    "names False": (
        {"class_names": False},
        "`class_names` must be a list of at least two ... Received: class_names=False",
    ),
    "names bytes": (
        {"num_classes": None, "class_names": [b"a", b"b"]},
        "`class_names` must be a list of ... Received: b'a' in class_names=[b'a', b'b']",
    ),
    "names 2D": (
        {"num_classes": None, "class_names": np.array([["a", "b"]])},
        "`class_names` must be a list of ... Received: array(['a', 'b'], dtype='<U1') in",
    ),
    "multi str": (
        {"multi_label": "yes"},
        "`multi_label` must be one of False, True. ... Received: multi_label='yes'",
    ),
    "multi None": (
        {"multi_label": None},
        "`multi_label` must be one of False, True. ... Received: multi_label=None",
    ),
    "multi one class": (
        {"num_classes": 1, "multi_label": True},
        "`multi_label=True` needs at least two ... Received: num_classes=1, which means",
    ),
    "multi softmax": (
        {"multi_label": True, "activation": "softmax"},
        "`multi_label=True` needs activation=None or ... Received: activation='softmax'",
    ),
    "activation softmax 1 class": (
        {"num_classes": 1, "activation": "softmax"},
        "`activation` must not be 'softmax' with a single ... Received: num_classes=1",
    ),
    "dropout 2": ({"dropout": 2}, "`dropout` must be a number in [0, 1]. ... Received: dropout=2"),
    "dropout str": (
        {"dropout": "x"},
        "`dropout` must be a number in [0, 1]. ... Received: dropout='x'",
    ),
    "backbone class": (
        {"backbone": M.DietBertBackbone},
        "`backbone` must be a `DietBertBackbone`. ... Received: type",
    ),
    "backbone None": (
        {"backbone": None},
        "`backbone` must be a `DietBertBackbone`. ... Received: NoneType",
    ),
    "backbone task": (
        {"backbone": task("classifier")},
        "`backbone` must be a `DietBertBackbone`. ... Received: DietBertTextClassifier",
    ),
    "str": ({"preprocessor": "bert"}, "`preprocessor` must be a ... Received: str"),
    "int": ({"preprocessor": 0}, "`preprocessor` must be a ... Received: int"),
    "longer": (
        {"preprocessor": pre("classifier", sequence_length=14)},
        "The preprocessor makes longer ... Received: preprocessor.sequence_length=14,",
    ),
    "more tokens": (
        {
            "preprocessor": M.DietBertTextClassifierPreprocessor(
                T([*VOCABULARY, "wolf"]), sequence_length=13
            )
        },
        "The preprocessor has tokens ... Received: backbone.vocabulary_size=31 and a",
    ),
}


@cases(ARGUMENTS)
def test_arguments(sent, message):
    assert_refused(lambda: make(**sent), message)


PREDICTIONS = {
    "embedder: pooling": (
        lambda: M.DietBertTextEmbedder(bb(), pooling_mode="average"),
        "`pooling_mode` must be one of 'mean', ... Received: pooling_mode='average'",
    ),
    "embedder: pooling None": (
        lambda: M.DietBertTextEmbedder(bb(), pooling_mode=None),
        "`pooling_mode` must be one of 'mean', 'cls', ... Received: pooling_mode=None",
    ),
    "embedder: normalize str": (
        lambda: M.DietBertTextEmbedder(bb(), normalize="l2"),
        "`normalize` must be one of False, True. ... Received: normalize='l2'",
    ),
    "fill_mask: no mask": (
        fm("the fox"),
        "Each text must contain `[MASK]`. ... Received: 'the fox' in row 0",
    ),
    "fill_mask: lower": (
        fm("the [mask] fox"),
        "Each text must contain `[MASK]`. ... Received: 'the [mask] fox' in row 0",
    ),
    "fill_mask: roberta": (
        fm("the <mask> fox"),
        "Each text must contain `[MASK]`. ... Received: 'the <mask> fox' in row 0",
    ),
    "fill_mask: top_k 0": (
        fm("the [MASK]", top_k=0),
        "`top_k` must be a positive integer. ... Received: top_k=0",
    ),
    "fill_mask: top_k 100": (
        fm("the [MASK]", top_k=100),
        "`top_k` must be at most the number of tokens, 31. ... Received: top_k=100",
    ),
    "fill_mask: top_k str": (
        fm("the [MASK]", top_k="5"),
        "`top_k` must be a positive integer. ... Received: top_k='5'",
    ),
    "fill_mask: top_k None": (
        fm("the [MASK]", top_k=None),
        "`top_k` must be a positive integer. ... Received: top_k=None",
    ),
    "fill_mask: None": (
        fm(None),
        "`texts` must be a string or a list of strings. ... Received: NoneType",
    ),
    "fill_mask: number": (fm(3), "`texts` must be a string or a list of strings. ... int"),
    "fill_mask: array of numbers": (
        fm(np.arange(2)),
        "`texts` must be a string, a list of strings, ... Received: an array of dtype int64",
    ),
    "fill_mask: empty": (fm(""), "Each text must contain `[MASK]`. ... Received: '' in row 0"),
    "fill_mask: empty list": (
        fm([]),
        "`texts` must hold at least one example. ... Received: an empty batch",
    ),
    "fill_mask: list with none": (
        fm(["the [MASK]", None]),
        "`texts` must hold strings. ... Received: None in row 1",
    ),
    "fill_mask: tuple": (
        fm(("the [MASK]", "a")),
        "`texts` must be a string or a list of strings. ... Received: tuple",
    ),
    "fill_mask: long": (
        fm("the [MASK] " + "fox " * 20),
        "A text must have at most sequence_length=13 ... Received: 24 tokens in row 0",
    ),
    "fill_mask: nested": (
        fm([["the [MASK]"]]),
        "`texts` must be a string, a list of ... Received: texts in lists of lists, or in an",
    ),
    "fill_mask: dict": (
        fm({"text": "the [MASK]"}),
        "`texts` must be a string or a list of strings. ... Received: dict",
    ),
    "fill_mask: bytes": (
        fm(b"the [MASK]"),
        "`texts` must be a string or a list of strings. ... Received: bytes",
    ),
    "fill_mask: generator": (
        fm(t for t in ["the [MASK]"]),
        "`texts` must be a string or a list of strings. ... Received: generator",
    ),
    "fill_mask: second no mask": (
        fm(["the [MASK]", "fox"]),
        "Each text must contain `[MASK]`. ... Received: 'fox' in row 1",
    ),
    "fill_mask: no preprocessor": (
        lambda: mlm0().fill_mask("the [MASK]"),
        "`fill_mask` needs a preprocessor. ... Received: preprocessor=None",
    ),
    "classify: top_k 0": (
        cf("the fox", top_k=0),
        "`top_k` must be a positive integer. ... Received: top_k=0",
    ),
    "classify: top_k 8": (
        cf("the fox", top_k=8),
        "`top_k` must be at most the number of classes, 7. ... Received: top_k=8",
    ),
    "classify: top_k negative": (
        cf("the fox", top_k=-1),
        "`top_k` must be a positive integer. ... Received: top_k=-1",
    ),
    "classify: top_k float": (
        cf("the fox", top_k=1.0),
        "`top_k` must be a positive integer. ... Received: top_k=1.0",
    ),
    "classify: threshold 2": (
        cf("the fox", threshold=2),
        "`threshold` must be a number in [0, 1]. ... Received: threshold=2",
    ),
    "classify: threshold str": (
        cf("the fox", threshold="0.5"),
        "`threshold` must be a number in [0, 1]. ... Received: threshold='0.5'",
    ),
    "classify: threshold nan": (
        cf("the fox", threshold=float("nan")),
        "`threshold` must be a number in [0, 1]. ... Received: threshold=nan",
    ),
    "classify: None": (
        cf(None),
        "`x` must be an array, a list, a dataset, or a generator ... Received: NoneType",
    ),
    "classify: number": (
        cf(3),
        "`x` must be an array, a list, a dataset, or a generator of ... Received: int",
    ),
    "classify: empty list": (
        cf([]),
        "`x` must hold at least one example. ... Received: an empty batch",
    ),
    "classify: nan": (cf(["a", float("nan")]), "`x` must hold strings. ... Received: nan in row 1"),
    "classify: batch_size 0": (
        cf(["a"], batch_size=0),
        "`batch_size` must be a positive integer. ... Received: batch_size=0",
    ),
    "classify: dict": (
        cf({"text": "a"}),
        "`x` must be a string, a list of ... Received: a dict with the keys 'text'",
    ),
    "classify: regression": (
        lambda: reg().classify("a"),
        "`classify` needs at least two classes. ... Received: num_classes=1, a regression",
    ),
    "classify: generator of texts": (
        cf(t for t in TEXTS),
        "`x` must hold several texts. ... Received: one text",
    ),
    "encode_text: None": (
        en(None),
        "`x` must be an array, a list, a dataset, or a generator ... Received: NoneType",
    ),
    "encode_text: number": (
        en(3),
        "`x` must be an array, a list, a dataset, or a generator of ... Received: int",
    ),
    "encode_text: list None": (
        en(["a", None]),
        "`x` must hold strings. ... Received: None in row 1",
    ),
    "encode_text: empty": (
        en([]),
        "`x` must hold at least one example. ... Received: an empty batch",
    ),
    "encode_text: dict": (
        en({"t": "a"}),
        "`x` must be a string, a list of strings, ... Received: a dict with the keys 't'",
    ),
    "encode_text: batch_size": (
        en("a", batch_size=0),
        "`batch_size` must be a positive integer. ... Received: batch_size=0",
    ),
    "encode_text: nested": (
        en([["a"]]),
        "`x` must be a string, a list of ... Received: texts in lists of lists, or in an",
    ),
    "encode_text: no pre": (
        lambda: tiny_task("embedder", with_preprocessor=False).encode_text("the fox"),
        "`x` must be a dictionary with the keys 'token_ids', ... Received: text",
    ),
    "predict: masked array": (
        lambda: task("classifier").predict(np.ma.array(TEXTS, mask=[0, 0, 0, 1, 0]), verbose=0),
        "`x` must hold strings. ... Received: None in row 3 ... Remove missing rows",
    ),
    "predict: bytes not utf8 in an array": (
        lambda: task("classifier").predict(np.array([b"fox", b"\xff\xfe", b"cat"]), verbose=0),
        "`x` must hold text in UTF-8. ... Received: b'\\xff\\xfe' in row 1. Decode it with",
    ),
    "preset_dir None": (
        lambda: task("classifier").save_to_preset(None),
        "`preset_dir` must be a folder. ... Received: preset_dir=None",
    ),
    "preset_dir number": (
        lambda: task("embedder").save_to_preset(3),
        "`preset_dir` must be a folder. ... Received: preset_dir=3",
    ),
    "preset_dir empty": (
        lambda: bb().save_to_preset(""),
        "`preset_dir` must be a folder. ... Received: preset_dir=''",
    ),
    "similarity: sizes": (
        lambda: task("embedder").similarity(E, E[:, :7]),
        "`document_embeddings` must have the shape (number, ... Received: shape=(3, 7)",
    ),
    "similarity: texts": (
        lambda: task("embedder").similarity("a", "b"),
        "`query_embeddings` must have the shape (number, hidden_dim) = ... Received: str",
    ),
    "similarity: 3D": (
        lambda: task("embedder").similarity(E[None], E[None]),
        "`query_embeddings` must have the shape (number, ... Received: shape=(1, 3, 15)",
    ),
}


@cases(PREDICTIONS)
def test_predictions(sent, message):
    assert_refused(sent, message)
