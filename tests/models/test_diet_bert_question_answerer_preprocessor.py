"""From questions, contexts and answers to windows and positions."""

import json
import re

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import DietBertQuestionAnswererPreprocessor, DietBertTokenizer
from tests.helpers import to_numpy
from tests.models.question_answering import ANSWERS, CONTEXTS, QUESTIONS, tiny_preprocessor
from tests.models.tiny import VOCABULARY, tiny_backbone

pytestmark = pytest.mark.any_backend
X = (QUESTIONS, CONTEXTS)
WEIGHTS = [2.0, 3.0, 5.0]
# 2 is [CLS], 3 is [SEP].
TOKEN_IDS = [
    [2, 18, 19, 3, 5, 17, 18, 19, 20, 21, 3],
    [2, 18, 19, 3, 19, 20, 21, 22, 5, 3, 0],
    [2, 20, 21, 15, 3, 15, 16, 30, 6, 3, 0],
    [2, 27, 3, 9, 10, 11, 12, 13, 5, 14, 3],
    [2, 27, 3, 12, 13, 5, 14, 15, 30, 24, 3],
    [2, 27, 3, 14, 15, 30, 24, 16, 25, 3, 0],
]
STARTS, ENDS = [6, 0, 0, 0, 5, 0], [7, 0, 0, 0, 7, 0]


def assert_is_expected(outputs):
    x, y, sample_weight = outputs
    assert to_numpy(x["token_ids"]).tolist() == TOKEN_IDS
    assert to_numpy(x["segment_ids"]).sum(-1).tolist() == [7, 6, 5, 8, 8, 7]
    assert to_numpy(x["segment_ids"])[1].tolist() == 4 * [0] + 6 * [1] + [0]
    assert to_numpy(x["padding_mask"]).sum(-1).tolist() == [11, 10, 10, 11, 11, 10]
    assert to_numpy(y["start"]).tolist() == STARTS
    assert to_numpy(y["end"]).tolist() == ENDS
    assert to_numpy(sample_weight).tolist() == [2, 2, 3, 5, 5, 5]


def test_examples_become_windows():
    outputs = tiny_preprocessor()(X, ANSWERS, WEIGHTS)
    assert_is_expected(outputs)
    assert keras.ops.is_tensor(outputs[0]["token_ids"])
    # The elements of a dataset.
    assert_is_expected(tiny_preprocessor()((X, ANSWERS, WEIGHTS)))


def test_arrays_and_columns_are_accepted():
    x = (np.array(QUESTIONS), np.array(CONTEXTS, dtype=object))
    y = {"text": np.array(ANSWERS["text"]), "answer_start": np.array([10, -1, 18])}
    assert_is_expected(tiny_preprocessor()(x, y, np.array(WEIGHTS)))


def test_without_answers_there_are_no_positions():
    preprocessor = tiny_preprocessor(length_buckets=(9,))
    assert to_numpy(preprocessor(X)["token_ids"]).tolist() == TOKEN_IDS
    x, y = preprocessor((QUESTIONS[1:2], CONTEXTS[1:2]), {"text": [""], "answer_start": [-1]})
    assert x["token_ids"].shape == (1, 11)
    assert to_numpy(y["start"]).tolist() == to_numpy(y["end"]).tolist() == [0]


def test_batches_with_answers_get_the_shortest_length():
    preprocessor = tiny_preprocessor(length_buckets=(7, 10))
    x, _ = preprocessor((["tree"], ["a dog and a cat"]), {"text": ["dog"], "answer_start": [2]})
    assert {name: array.shape for name, array in x.items()} == dict.fromkeys(x, (1, 10))
    assert preprocessor((["tree"], ["a dog"]))["token_ids"].shape == (1, 11)


def test_one_example_has_its_windows():
    x, y, sample_weight = tiny_preprocessor()(
        (QUESTIONS[2], CONTEXTS[2]), {"text": "the lazy dog", "answer_start": 18}, 5.0
    )
    assert to_numpy(x["token_ids"]).tolist() == TOKEN_IDS[3:]
    assert to_numpy(y["start"]).tolist() == STARTS[3:]
    assert to_numpy(sample_weight).tolist() == [5, 5, 5]


def test_texts_are_tokenized_once(monkeypatch):
    seen = []
    original = DietBertTokenizer.tokenize_with_offsets
    monkeypatch.setattr(
        DietBertTokenizer,
        "tokenize_with_offsets",
        lambda self, texts: seen.extend(texts) or original(self, texts),
    )
    tiny_preprocessor()((["tree", "dog", "tree"], ["a tree", "a tree", "a dog"]))
    assert sorted(seen) == ["a dog", "a tree", "dog", "tree"]


@pytest.mark.any_backend("tensorflow")
def test_tf_data():
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices((X, ANSWERS, WEIGHTS))
    preprocessor = tiny_preprocessor()
    (outputs,) = dataset.batch(3).map(preprocessor)
    assert_is_expected(outputs)
    assert outputs[1]["start"].dtype == "int32"
    (spec, *_) = dataset.batch(3).map(preprocessor).element_spec
    assert spec["token_ids"].shape.as_list() == [None, 11]
    # Windows of single examples, one after the other.
    rows = dataset.map(preprocessor).unbatch().batch(6)
    assert_is_expected(rows.get_single_element())
    wrong = dataset.map(lambda x, y, w: (x, {**y, "answer_start": y["answer_start"] + 1}, w))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`y\\['text'\\]` must be in the"):
        list(wrong.batch(2).map(preprocessor))


def test_configuration():
    preprocessor = tiny_preprocessor(length_buckets=(7,))
    config = preprocessor.get_config()
    assert (config["sequence_length"], config["doc_stride"]) == (11, 3)
    assert config["length_buckets"] == (7,)
    copy = DietBertQuestionAnswererPreprocessor.from_config(json.loads(json.dumps(config)))
    copy.tokenizer.set_vocabulary(VOCABULARY)
    assert_is_expected(copy(X, ANSWERS, WEIGHTS))
    defaults = DietBertQuestionAnswererPreprocessor(DietBertTokenizer(VOCABULARY))
    assert (defaults.sequence_length, defaults.doc_stride) == (384, 128)


@pytest.mark.parametrize(
    ("longest", "expected"), [(13, (13, 4)), (385, (384, 128)), (96, (96, 32))]
)
def test_new_preprocessors_fit_the_backbone_of_a_preset(tmp_path, longest, expected):
    tiny_backbone(num_layers=1, max_sequence_length=longest).save_to_preset(str(tmp_path))
    DietBertTokenizer(VOCABULARY).save_to_preset(str(tmp_path))
    loaded = DietBertQuestionAnswererPreprocessor.from_preset(str(tmp_path))
    assert (loaded.sequence_length, loaded.doc_stride) == expected
    loaded = DietBertQuestionAnswererPreprocessor.from_preset(
        str(tmp_path), sequence_length=11, doc_stride=7
    )
    assert (loaded.sequence_length, loaded.doc_stride) == (11, 7)


def test_presets_keep_length_and_stride(tmp_path):
    tiny_backbone(num_layers=1).save_to_preset(str(tmp_path))
    tiny_preprocessor().save_to_preset(str(tmp_path))
    loaded = DietBertQuestionAnswererPreprocessor.from_preset(str(tmp_path))
    assert_is_expected(loaded(X, ANSWERS, WEIGHTS))


def changed(part, row, value):
    """The inputs with another text."""
    texts = [list(each) for each in X]
    texts[part][row] = value
    return tuple(texts)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (QUESTIONS, "Received: list. Put all questions and all contexts into a list each"),
        ((*X, CONTEXTS), "Received: a tuple of 3 parts (list, list, list)"),
        ((QUESTIONS, CONTEXTS[:2]), "batch sizes [3, 2]"),
        (([], []), "at least one example"),
        ((QUESTIONS, CONTEXTS[0]), "Received: a tuple of both"),
        (changed(0, 1, None), "`x[0]` must hold strings. Received: None in row 1"),
        (changed(1, 2, np.nan), "`x[1]` must hold strings. Received: nan in row 2"),
        (changed(1, 1, 7), "`x[1]` must hold strings. Received: 7 in row 1"),
        (
            changed(1, 1, " \n"),
            "`x[1]` must hold texts that are not empty. Received: ' \\n' in row 1",
        ),
        (changed(0, 2, ""), "`x[0]` must hold texts that are not empty. Received: '' in row 2"),
        (changed(1, 1, "\u200b"), "a context without tokens in row 1"),
        (changed(0, 1, "the dog and the cats sleep ."), "Received: 8 tokens in row 1"),
        (changed(0, 0, "a red cat sings the tree"), "doc_stride=3 and room for 1 tokens in row 0"),
    ],
    ids=str,
)
def test_wrong_texts_are_refused(x, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny_preprocessor()(x)


@pytest.mark.parametrize(
    ("y", "sample_weight", "message"),
    [
        (
            {**ANSWERS, "answer_start": [10, -1, 17]},
            None,
            "'the lazy dog' with the start 17 in row 2",
        ),
        ([1, 2, 3], None, "`y` must be the answers"),
        (["red cat", "", "dog"], None, "`y` must be numbers. Received: text"),
        (ANSWERS, [1.0, 2.0], "3 in `x`, 3 in `y`, 2 in `sample_weight`"),
        (ANSWERS, np.ones((3, 2)), "one weight for each example, of shape (B,)"),
    ],
)
def test_wrong_labels_are_refused(y, sample_weight, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny_preprocessor()(X, y, sample_weight)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sequence_length": 4}, "`sequence_length` must be at least 5"),
        ({"sequence_length": 8.0}, "`sequence_length` must be a positive integer"),
        ({"doc_stride": 0}, "`doc_stride` must be a positive integer. Received: doc_stride=0"),
        ({"doc_stride": 2.0}, "`doc_stride` must be a positive integer"),
        ({"length_buckets": (3,)}, "`length_buckets` must be lengths from 5"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_preprocessor(**arguments)(X)


def test_tokenizers_without_offsets_are_refused():
    tokenizer = keras_hub.models.BertTokenizer(VOCABULARY)
    with pytest.raises(ValueError, match=r"must have `tokenize_with_offsets`.*BertTokenizer"):
        tiny_preprocessor(tokenizer=tokenizer)
