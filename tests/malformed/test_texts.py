"""Malformed vocabularies and texts, and arguments of tokenizers and preprocessors."""

import functools

import keras_hub
import numpy as np
import pytest

from keras_diet import models as M
from tests.malformed.refusals import assert_refused, cases
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import (
    SPECIAL_TOKENS,
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
hub = functools.cache(
    lambda: keras_hub.models.BertBackbone(31, 1, 3, 15, 23, max_sequence_length=13)
)


TOKENIZERS = {
    "from_bert None": (
        lambda: M.DietBertTokenizer.from_bert(None),
        "`bert` must be a `keras_hub.models.BertTokenizer`, the ... Received: bert=None",
    ),
    "from_bert backbone": (
        lambda: M.DietBertTokenizer.from_bert(hub()),
        "`bert` must be a ... Received: bert=<BertBackbone",
    ),
    "no special": (lambda: T(["a", "b"]), 'Cannot find `oov_token="[UNK]"` in the vocabulary.'),
    "duplicate": (
        lambda: T([*VOCABULARY, "fox"]),
        "`vocabulary` must be the path of a file, or a ... Received: 'fox' in row 31",
    ),
    "empty list": (lambda: T([]), 'Cannot find `oov_token="[UNK]"` in the vocabulary.'),
    "dict": (
        lambda: T({t: i for i, t in enumerate(VOCABULARY)}),
        "`vocabulary` must be the path of a file, or a list of ... Received: dict",
    ),
    "ints": (
        lambda: T([*SPECIAL_TOKENS, 5, 6]),
        "`vocabulary` must be the path of a file, or a list of ... Received: 5 in row 5",
    ),
    "None in vocab": (
        lambda: T([*VOCABULARY, None]),
        "`vocabulary` must be the path of a file, or a list ... Received: None in row 31",
    ),
    "empty token": (
        lambda: T([*VOCABULARY, ""]),
        "`vocabulary` must be the path of a file, or a list ... Received: '' in row 31",
    ),
    "call list None": (
        lambda: T(VOCABULARY)(["the", None]),
        "If a list, tuple or array is provided as input, all ... Received: ['the', None]",
    ),
    "call nan": (
        lambda: T(VOCABULARY)(["the", float("nan")]),
        "If a list, tuple or array is provided as input, all ... Received: ['the', nan]",
    ),
    "call no vocabulary": (
        lambda: T()("the"),
        "No vocabulary has been set for WordPieceTokenizer. Make sure to pass a",
    ),
    "seqlen 0": (
        lambda: T(VOCABULARY, sequence_length=0)(["the"]),
        "`sequence_length` must be a positive integer. ... Received: sequence_length=0",
    ),
    "seqlen -1": (
        lambda: T(VOCABULARY, sequence_length=-1)(["the fox"]),
        "`sequence_length` must be a positive integer. ... Received: sequence_length=-1",
    ),
    "dtype float": (
        lambda: T(VOCABULARY, dtype="float32"),
        "Output dtype must be an integer type or a string. ... Received: dtype=float32",
    ),
    "oov missing": (
        lambda: T(VOCABULARY, oov_token="<unk>"),
        'Cannot find `oov_token="<unk>"` in the vocabulary.',
    ),
    "lowercase str": (
        lambda: T(VOCABULARY, lowercase="yes"),
        "`lowercase` must be one of False, True. ... Received: lowercase='yes'",
    ),
    "id_to_token range": (
        lambda: T(VOCABULARY).id_to_token(31),
        "`id` must be in range [0, 30]. ... Received: 31",
    ),
    "id_to_token negative": (
        lambda: T(VOCABULARY).id_to_token(-1),
        "`id` must be in range [0, 30]. ... Received: -1",
    ),
    "detok range": (
        lambda: T(VOCABULARY).detokenize([[31, 5]]),
        "`id` must be in range [0, 30]. ... Received: 31",
    ),
    "detok negative": (
        lambda: T(VOCABULARY).detokenize([-1, 5]),
        "`id` must be in range [0, 30]. ... Received: -1",
    ),
}


@cases(TOKENIZERS)
def test_tokenizers(sent, message):
    assert_refused(sent, message)


PREPROCESSORS = {
    "no tokenizer": (
        lambda: M.DietBertTextClassifierPreprocessor(None),
        "`tokenizer` must be a tokenizer of keras_diet or ... Received: NoneType",
    ),
    "tokenizer str": (
        lambda: M.DietBertTextClassifierPreprocessor("bert"),
        "`tokenizer` must be a tokenizer of keras_diet or KerasHub. ... Received: str",
    ),
    "tokenizer class": (
        lambda: M.DietBertTextClassifierPreprocessor(T),
        "`tokenizer` must be a tokenizer of ... Received: the class DietBertTokenizer",
    ),
    "tokenizer list": (
        lambda: M.DietBertTextClassifierPreprocessor(VOCABULARY),
        "`tokenizer` must be a tokenizer of keras_diet or ... Received: TrackedList",
    ),
    "tokenizer no vocab": (
        lambda: M.DietBertTextClassifierPreprocessor(T())(TEXTS),
        "No vocabulary has been set for WordPieceTokenizer. Make sure to pass a",
    ),
    "seqlen None": (
        lambda: pre("classifier", sequence_length=None)(TEXTS),
        "`sequence_length` must be a positive integer. ... Received: sequence_length=None",
    ),
    "seqlen float": (
        lambda: pre("classifier", sequence_length=13.5)(TEXTS),
        "`sequence_length` must be a positive integer. ... Received: sequence_length=13.5",
    ),
    "seqlen str": (
        lambda: pre("classifier", sequence_length="13")(TEXTS),
        "`sequence_length` must be a positive integer. ... Received: sequence_length='13'",
    ),
    "buckets int": (
        lambda: pre("classifier", length_buckets=8)(TEXTS),
        "`length_buckets` must be a tuple of lengths, or ... Received: length_buckets=8",
    ),
    "buckets decreasing": (
        lambda: pre("classifier", length_buckets=(9, 5))(TEXTS),
        "`length_buckets` must be integers that increase ... Received: length_buckets=(9, 5)",
    ),
    "buckets twice": (
        lambda: pre("classifier", length_buckets=(5, 5))(TEXTS),
        "`length_buckets` must be integers that increase ... Received: length_buckets=(5, 5)",
    ),
    "buckets too long": (
        lambda: pre("classifier", length_buckets=(5, 20))(TEXTS),
        "`length_buckets` must be lengths from ... Received: length_buckets=(5, 20)",
    ),
    "buckets too short": (
        lambda: pre("classifier", length_buckets=(2, 5))(TEXTS),
        "`length_buckets` must be lengths from ... Received: length_buckets=(2, 5)",
    ),
    "buckets float": (
        lambda: pre("classifier", length_buckets=(5.0,))(TEXTS),
        "`length_buckets` must be a positive integer. ... Received: length_buckets=5.0",
    ),
    "buckets strings": (
        lambda: pre("classifier", length_buckets="58")(TEXTS),
        "`length_buckets` must be a tuple of lengths, ... Received: length_buckets='58'",
    ),
    "buckets True": (
        lambda: pre("classifier", length_buckets=True)(TEXTS),
        "`length_buckets` must be a tuple of lengths, ... Received: length_buckets=True",
    ),
    "buckets zero int": (
        lambda: pre("classifier", length_buckets=0)(TEXTS),
        "`length_buckets` must be a tuple of lengths, or ... Received: length_buckets=0",
    ),
    "selection length 0": (
        lambda: pre("masked_lm", mask_selection_length=0)(TEXTS),
        "`mask_selection_length` must be a ... Received: mask_selection_length=0",
    ),
    "selection length -1": (
        lambda: pre("masked_lm", mask_selection_length=-1)(TEXTS),
        "`mask_selection_length` must be a ... Received: mask_selection_length=-1",
    ),
    "selection length float": (
        lambda: pre("masked_lm", mask_selection_length=2.5)(TEXTS),
        "`mask_selection_length` must be a ... Received: mask_selection_length=2.5",
    ),
    "selection length None": (
        lambda: pre("masked_lm", mask_selection_length=None)(TEXTS),
        "`mask_selection_length` must be a ... Received: mask_selection_length=None",
    ),
    "selection rate nan": (
        lambda: pre("masked_lm", mask_selection_rate=float("nan"))(TEXTS),
        "`mask_selection_rate` must be a number in ... Received: mask_selection_rate=nan",
    ),
    "rate str": (
        lambda: pre("masked_lm", mask_token_rate="0.8")(TEXTS),
        "`mask_token_rate` must be a number in [0, ... Received: mask_token_rate='0.8'",
    ),
    "rate percent": (
        lambda: pre("masked_lm", mask_selection_rate=15)(TEXTS),
        "`mask_selection_rate` must be a number in ... Received: mask_selection_rate=15",
    ),
    "mlm y": (
        lambda: pre("masked_lm")(TEXTS, LABELS),
        "`y` and `sample_weight` must be ... Received: labels or weights beside the text",
    ),
    "mlm weight": (
        lambda: pre("masked_lm")(TEXTS, sample_weight=np.ones(5)),
        "`y` and `sample_weight` must be ... Received: labels or weights beside the text",
    ),
    "y text": (lambda: pre("classifier")(TEXTS, TEXTS), "`y` must be numbers. ... Received: text"),
    "bytes not utf8": (
        lambda: pre("classifier")([b"\xff\xfe", b"fox"]),
        "`x` must hold text in UTF-8. ... Received: b'\\xff\\xfe' in row 0",
    ),
    "bytes not utf8 in a segment": (
        lambda: pre("classifier")((["a", "the", b"\xff\xfe"], ["a", "cat", "dog"])),
        "`x[0]` must hold text in UTF-8. ... Received: b'\\xff\\xfe' in row 2",
    ),
    "bytes not utf8 in an array": (
        lambda: pre("classifier")(np.array([b"the", b"fox", b"\xff\xfe"])),
        "`x` must hold text in UTF-8. ... Received: b'\\xff\\xfe' in row 2. Decode it with",
    ),
    "masked": (
        lambda: pre("classifier")(np.ma.array(["the", "fox", "cat"], mask=[0, 1, 0])),
        "`x` must hold strings. ... Received: None in row 1. Remove missing rows",
    ),
    "masked objects in a segment": (
        lambda: pre("classifier")(
            (["a", "the"], np.ma.array(["fox", "cat"], mask=[1, 0], dtype=object))
        ),
        "`x[1]` must hold strings. ... Received: None in row 0. Remove missing rows",
    ),
    "y wrong length": (
        lambda: pre("classifier")(TEXTS, LABELS[:2]),
        "`x` and `y` must have the same number of ... Received: 5 in `x`, 2 in `y`",
    ),
    "generator": (
        lambda: pre("classifier")(t for t in TEXTS),
        "`x` must hold strings. ... Received: <generator object",
    ),
    "bool": (lambda: pre("classifier")(True), "`x` must hold strings. ... Received: True in row 0"),
    "list of dicts": (
        lambda: pre("classifier")([{"text": t} for t in TEXTS]),
        "`x` must hold strings. ... Received: {'text': 'the quick brown fox jumped over",
    ),
    "datetime array": (
        lambda: pre("classifier")(np.array(["2020-01-01"], "datetime64[D]")),
        "`x` must be a string, a list of ... Received: an array of dtype datetime64[D]",
    ),
    "structured array": (
        lambda: pre("classifier")(np.array([("a", 1)], dtype=[("t", "U3"), ("n", "i4")])),
        "`x` must be a string, a list of ... Received: an array of dtype [('t', '<U3'),",
    ),
    "empty tuple": (
        lambda: pre("classifier")(()),
        "Data is expected to be in format `x`, `(x,)`, `(x, y)`, or `(x, y,",
    ),
    "x dict of lists": (
        lambda: pre("classifier")({"a": TEXTS, "b": TEXTS}),
        "`x` must be a string, a list of ... Received: a dict with the keys 'a', 'b'. Pass one",
    ),
}


@cases(PREPROCESSORS)
def test_preprocessors(sent, message):
    assert_refused(sent, message)
