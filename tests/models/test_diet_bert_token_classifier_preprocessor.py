"""Tokens, labels and weights of words, and how words are split into parts."""

import numpy as np
import pytest

from keras_diet.models import DietBertTokenClassifierPreprocessor, DietBertTokenizer
from keras_diet.models.hub.pack_words import split_words
from tests.helpers import to_numpy
from tests.models.tiny import VOCABULARY

# [PAD] is not the first token, and a word has up to three tokens.
ORDER = [*VOCABULARY[3:], *VOCABULARY[:3]]
SENTENCES = [
    ["the", "foxes", "jumped", "over", "a", "mat"],
    ["cats"],
    ["a", "sleeping-dog", "\x07", "sings", "."],
]
LABELS = [[3, 1, 4, 1, 5, 9], [2], [6, 5, 3, 5, 8]]
# Half precision has no 2049.
WEIGHTS = [[0.5, 2.0, 2049.0, 0.25, 7.0, 1.5], [0.75], [2.5, 4.0, 0.0, 1.25, 6.0]]
any_backend = pytest.mark.any_backend


def preprocessor(sequence_length=13, **arguments):
    tokenizer = DietBertTokenizer(ORDER, **arguments.pop("tokenizer", {}))
    return DietBertTokenClassifierPreprocessor(tokenizer, sequence_length, **arguments)


def loops(sentences, labels, weights, length):
    """Tokens, mask, labels and weights from loops over words and their tokens."""
    tokenizer = DietBertTokenizer(ORDER)
    rows = []
    for words, of_words, weights_of_words in zip(sentences, labels, weights, strict=True):
        row = [(tokenizer.cls_token_id, 1, 0, 0.0)]
        for word, label, weight in zip(words, of_words, weights_of_words, strict=True):
            tokens = [int(token) for token in tokenizer(word)] or [ORDER.index("[UNK]")]
            for place, token in enumerate(tokens):
                row.append((token, 1, *((label, weight) if place == 0 else (0, 0.0))))
        row = [*row[: length - 1], (tokenizer.sep_token_id, 1, 0, 0.0)]
        row += [(tokenizer.pad_token_id, 0, 0, 0.0)] * (length - len(row))
        rows.append(row)
    return np.moveaxis(np.array(rows), -1, 0)


def arrays(outputs):
    inputs, labels, weights = outputs
    assert not to_numpy(inputs["segment_ids"]).any()
    return [to_numpy(a) for a in (inputs["token_ids"], inputs["padding_mask"], labels, weights)]


def test_labels_belong_to_first_tokens():
    expected = loops(SENTENCES, LABELS, WEIGHTS, 13)
    assert expected[0, 2].tolist().count(ORDER.index("[UNK]")) == 2
    outputs = preprocessor()(SENTENCES, LABELS, WEIGHTS)
    for actual, array in zip(arrays(outputs), expected, strict=True):
        np.testing.assert_array_equal(actual, array)
    assert [str(to_numpy(array).dtype) for array in outputs[1:]] == ["int32", "float32"]


@any_backend
def test_without_labels_there_are_no_targets():
    inputs = preprocessor()(SENTENCES)
    assert sorted(inputs) == ["padding_mask", "segment_ids", "token_ids"]


@any_backend
def test_weights_of_sentences_are_the_weights_of_their_words():
    per_sentence = [0.5, 3.0, 7.0]
    per_word = [
        [weight] * len(words) for weight, words in zip(per_sentence, SENTENCES, strict=True)
    ]
    for weights in (per_sentence, np.array(per_sentence)):
        outputs = preprocessor()(SENTENCES, LABELS, weights)
        np.testing.assert_array_equal(arrays(outputs), loops(SENTENCES, LABELS, per_word, 13))
    ones = [[1.0] * len(words) for words in SENTENCES]
    np.testing.assert_array_equal(
        arrays(preprocessor()(SENTENCES, LABELS)), loops(SENTENCES, LABELS, ones, 13)
    )


@any_backend
@pytest.mark.parametrize("length", [3, 5, 7])
def test_words_that_do_not_fit_are_cut_off_with_a_warning(length):
    with pytest.warns(UserWarning, match=f"more than sequence_length={length} tokens"):
        outputs = preprocessor(length)(SENTENCES, LABELS, WEIGHTS)
    np.testing.assert_array_equal(arrays(outputs), loops(SENTENCES, LABELS, WEIGHTS, length))


@any_backend
@pytest.mark.filterwarnings("error::UserWarning")
def test_the_last_token_of_a_word_may_be_cut_off():
    sentences, labels = [["the", "foxes"]], [[3, 7]]
    outputs = arrays(preprocessor(4)(sentences, labels))
    np.testing.assert_array_equal(outputs, loops(sentences, labels, [[1.0, 1.0]], 4))
    assert outputs[2].tolist() == [[0, 3, 7, 0]]


@any_backend
def test_buckets_shorten_labels_too():
    outputs = preprocessor(length_buckets=(5, 7))(SENTENCES[1:2], LABELS[1:2])
    assert [array.shape for array in arrays(outputs)] == [(1, 5)] * 4
    assert outputs[1].tolist() == [[0, 2, 0, 0, 0]]


@any_backend
def test_a_tokenizer_without_split_takes_words():
    split, whole = (
        preprocessor(tokenizer={"split": split})([["sleeping-dog", "foxes"]])["token_ids"]
        for split in (True, False)
    )
    unknown = ORDER.index("[UNK]")
    tokens = to_numpy(split)[0, 1:].tolist()
    assert to_numpy(whole)[0, 1:4].tolist() == [unknown, *tokens[4:6]]


@any_backend
def test_configuration():
    config = preprocessor(11, length_buckets=(5,)).get_config()
    assert (config["sequence_length"], config["length_buckets"]) == (11, (5,))
    copy = DietBertTokenClassifierPreprocessor.from_config({**config})
    assert isinstance(copy.tokenizer, DietBertTokenizer)
    assert (copy.sequence_length, copy.length_buckets) == (11, (5,))


@any_backend
def test_padding_tokenizers_are_refused():
    with pytest.raises(
        ValueError, match=r"must not add .* or padding.*tokenizer.sequence_length=7"
    ):
        preprocessor(tokenizer={"sequence_length": 7})(SENTENCES)


# === Kinds of data ===


@any_backend
def test_one_sentence_is_an_element_of_a_dataset():
    expected = arrays(preprocessor()(SENTENCES[2:], LABELS[2:], WEIGHTS[2:]))
    for x, y, weights in (
        (SENTENCES[2], LABELS[2], WEIGHTS[2]),
        (np.array(SENTENCES[2]), np.array(LABELS[2]), np.array(WEIGHTS[2])),
    ):
        outputs = arrays(preprocessor()((x, y, weights)))
        for actual, array in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(actual, array[0])
    inputs = preprocessor()(SENTENCES[2])
    assert inputs["token_ids"].shape == (13,)


class Column:
    """A column of a table, such as of pandas."""

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values


@any_backend
def test_kinds_of_sequences():
    expected = loops(SENTENCES, LABELS, WEIGHTS, 13)
    objects = [np.empty(3, object) for _ in range(3)]
    for array, values in zip(objects, (SENTENCES, LABELS, WEIGHTS), strict=True):
        array[:] = [np.array(row) for row in values]
    kinds = [
        objects,
        [tuple(map(tuple, values)) for values in (SENTENCES, LABELS, WEIGHTS)],
        [Column(values) for values in (SENTENCES, LABELS, WEIGHTS)],
        [[[word.encode() for word in words] for words in SENTENCES], LABELS, WEIGHTS],
    ]
    for kind in kinds:
        np.testing.assert_array_equal(arrays(preprocessor()(*kind)), expected)


@any_backend("tensorflow")
@pytest.mark.parametrize("batched", [True, False])
def test_in_tf_data(batched):
    tf = pytest.importorskip("tensorflow")
    data = tuple(map(tf.ragged.constant, (SENTENCES, LABELS, WEIGHTS)))
    layer = preprocessor(length_buckets=(11,) if batched else None)
    dataset = tf.data.Dataset.from_tensor_slices(data)
    dataset = dataset.batch(3).map(layer) if batched else dataset.map(layer).batch(3)
    outputs = dataset.get_single_element()
    length = 11 if batched else 13
    np.testing.assert_array_equal(arrays(outputs), loops(SENTENCES, LABELS, WEIGHTS, length))
    assert dataset.element_spec[1].shape.as_list() == [None, None if batched else 13]
    np.testing.assert_array_equal(arrays(layer(*data)), arrays(outputs))


@any_backend
def test_in_grain():
    grain = pytest.importorskip("grain")
    source = grain.MapDataset.source(list(zip(SENTENCES, LABELS, WEIGHTS, strict=True)))
    (outputs,) = list(source.map(preprocessor()).batch(3))
    assert isinstance(outputs[1], np.ndarray)
    np.testing.assert_array_equal(arrays(outputs), loops(SENTENCES, LABELS, WEIGHTS, 13))


# === Parts of sentences ===


@any_backend
def test_words_are_split_into_the_fewest_parts_in_order():
    words = [[1], [2, 3], [4], [5, 6, 7, 8], [9], [10, 11, 12], [13]]
    assert split_words(words, 3) == [
        [[1], [2, 3]],
        [[4]],
        [[5, 6, 7, 8]],
        [[9]],
        [[10, 11, 12]],
        [[13]],
    ]
    assert split_words(words, 7) == [words[:3], words[3:5], words[5:]]
    assert split_words(words, 13) == [words]


# === Errors ===

BAD = {
    "a text": (("the fox", None), "list of sentences. Received: 'the fox' of type str"),
    "empty batch": (([], None), "at least one example"),
    "empty sentence": (([["a"], []], None), "at least one word.*empty list in row 1"),
    "a missing sentence": (([["a"], None], None), "NoneType, None, in row 1"),
    "texts and sentences": (([["a"], "the fox"], None), "a string, 'the fox', in row 1"),
    "no string": (([["a", 3]], None), "nonempty strings. Received: 3 in row 0, word 1"),
    "empty word": (([["a"], ["the", ""]], None), "Received: '' in row 1, word 1"),
    "a dictionary": (({"words": [["a"]]}, None), "list of sentences.*dict"),
    "fewer labels": ((SENTENCES, [LABELS[0], LABELS[1], [1, 2]]), "2 values for 5 words in row 2"),
    "more labels": ((SENTENCES[:2], [LABELS[0], [1, 2]]), "2 values for 1 words in row 1"),
    "a label of a sentence": ((SENTENCES, [LABELS[0], 4, LABELS[2]]), "Received: 4 in row 1"),
    "fewer rows": ((SENTENCES, LABELS[:2]), "3 in `x`, 2 in `y`"),
    "text as labels": (([["a"]], [["DET"]]), "`y` must be numbers"),
    "weights": ((SENTENCES, LABELS, [1.0, [1.0], [1.0]]), "Received: 1.0 in row 0"),
    "fewer weights": (
        (SENTENCES, LABELS, [*WEIGHTS[:2], [1.0]]),
        "`sample_weight` .*1 values for 5 words in row 2",
    ),
    "nan": ((SENTENCES, LABELS, [1.0, 2.0, np.nan]), "finite numbers.*nan in row 2"),
}


@any_backend
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_right_is_refused(case):
    data, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        preprocessor()(*data)


@any_backend("tensorflow")
def test_errors_in_tf_data_name_the_row():
    tf = pytest.importorskip("tensorflow")
    data = (tf.ragged.constant(SENTENCES), tf.ragged.constant([LABELS[0], [2], [1, 2]]))
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(3).map(preprocessor())
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 values for 5 words in row 2"):
        dataset.get_single_element()
    texts = tf.data.Dataset.from_tensor_slices(([1, 2],)).batch(2)
    with pytest.raises(ValueError, match="batch of sentences"):
        texts.map(lambda x: preprocessor()(tf.strings.as_string(x)[None, None]))
