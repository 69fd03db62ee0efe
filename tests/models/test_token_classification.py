"""Classification of words: their tokens and labels, the loss, data of all kinds, and `tag`."""

import itertools

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.models import (
    DietBertTokenClassifier,
    DietBertTokenClassifierPreprocessor,
    DietBertTokenizer,
)
from keras_diet.models.diet_bert.diet_bert_token_classifier import split_words
from tests.helpers import assert_all_close, assert_close, to_numpy
from tests.models.tasks import dataset_of, every_dataset
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend
# [PAD] is not the first token, and a word has up to four tokens.
ORDER = [*VOCABULARY[3:], *VOCABULARY[:3]]
NAMES = ["NOUN", "DET", "été", "VERB", "ADJ"]
SENTENCES = [
    ["the", "foxes", "jumped", "over", "a", "mat"],
    ["cats"],
    ["a", "sleeping-dog", "\x07", "sings", "."],
    ["birds", "sing"],
]
LABELS = [
    ["DET", "NOUN", "VERB", "été", "DET", "NOUN"],
    ["NOUN"],
    ["DET", "ADJ", "NOUN", "VERB", "été"],
    ["ADJ", "VERB"],
]
IDS = [[NAMES.index(label) for label in labels] for labels in LABELS]
# Half precision has no 2049.
WEIGHTS = [[0.5, 2.0, 2049.0, 0.25, 7.0, 1.5], [0.75], [2.5, 4.0, 0.0, 1.25, 6.0], [1.25, 6.0]]
ONES = [[1.0] * len(words) for words in SENTENCES]


def tiny_preprocessor(sequence_length=13, **arguments):
    tokenizer = DietBertTokenizer(ORDER, **arguments.pop("tokenizer", {}))
    return DietBertTokenClassifierPreprocessor(tokenizer, sequence_length, **arguments)


def tiny(**arguments):
    arguments = {"class_names": NAMES, "dropout": 0.0, **arguments}
    arguments.setdefault("preprocessor", tiny_preprocessor())
    return randomize_weights(DietBertTokenClassifier(tiny_backbone(num_layers=1), **arguments), 6)


@pytest.fixture(scope="module")
def classifier():
    return tiny()


# === Tokens and labels ===


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


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    st.lists(
        st.lists(st.sampled_from([*SENTENCES[0], *SENTENCES[2]]), min_size=1),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([3, 5, 13, 29]),
    st.data(),
)
@pytest.mark.filterwarnings("ignore:Some sentences have more")
def test_labels_belong_to_first_tokens(sentences, length, data):
    labels = [
        data.draw(st.lists(st.integers(0, 9), min_size=(n := len(w)), max_size=n))
        for w in sentences
    ]
    weights = [[label / 7 for label in of_words] for of_words in labels]
    expected = loops(sentences, labels, weights, length)
    outputs = tiny_preprocessor(length)(sentences, labels, weights)
    assert_all_close(arrays(outputs), list(expected), 1e-7)
    assert [str(to_numpy(array).dtype) for array in outputs[1:]] == ["int32", "float32"]


@pytest.mark.filterwarnings("error::UserWarning")
def test_words_that_do_not_fit_give_a_warning():
    """The last token of a word may be cut off."""
    outputs = arrays(tiny_preprocessor(4)([["the", "foxes"]], [[3, 7]]))
    assert outputs[2].tolist() == [[0, 3, 7, 0]]
    with pytest.warns(UserWarning, match="more than sequence_length=4 tokens"):
        tiny_preprocessor(4)([["foxes", "the"]], [[3, 7]])


def test_buckets_shorten_batches_with_labels(classifier):
    model = tiny(preprocessor=tiny_preprocessor(length_buckets=(5, 7)))
    outputs = model.preprocessor(SENTENCES[1:2], IDS[1:2])
    assert [array.shape for array in arrays(outputs)] == [(1, 5)] * 4
    # Keras's accuracy gives the words of short batches a larger weight.
    expected, _ = classifier.evaluate(SENTENCES, LABELS, 1, verbose=0)
    loss, _ = model.evaluate(SENTENCES, LABELS, 1, verbose=0)
    assert loss == pytest.approx(expected, rel=1e-4)
    # Predictions of several batches have one length.
    assert model.predict(SENTENCES, batch_size=1, verbose=0).shape == (4, 13, 5)
    assert_tags(model.tag(SENTENCES), SENTENCES, expected_of_words(classifier))


def test_a_tokenizer_without_split_takes_words():
    split, whole = (
        to_numpy(
            tiny_preprocessor(tokenizer={"split": s})([["sleeping-dog", "foxes"]])["token_ids"]
        )
        for s in (True, False)
    )
    assert whole[0, 1:4].tolist() == [ORDER.index("[UNK]"), *split[0, 5:7].tolist()]


@settings(deadline=None, max_examples=20, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=17), st.integers(1, 9))
def test_words_are_split_into_the_fewest_parts_in_order(sizes, room):
    words = [[i] * size for i, size in enumerate(sizes)]
    parts = split_words(words, room)
    assert list(itertools.chain.from_iterable(parts)) == words
    assert all(parts)
    totals = [sum(map(len, part)) for part in parts]
    assert all(total <= room or len(part) == 1 for total, part in zip(totals, parts, strict=True))
    assert all(total + len(part[0]) > room for total, part in zip(totals, parts[1:], strict=False))


# === Outputs and loss ===


def expected_of_words(classifier, sentences=SENTENCES):
    """The log-probabilities of each word, one sentence after the other."""
    rows = []
    for words in sentences:
        # One length, because JAX compiles for each.
        tokens, mask, first, _ = loops([words], [[1] * len(words)], [[1] * len(words)], 13)
        inputs = {"token_ids": tokens, "segment_ids": np.zeros((1, 13)), "padding_mask": mask}
        inputs = {name: array.astype("int32") for name, array in inputs.items()}
        hidden = to_numpy(classifier.backbone(inputs)["sequence_output"])[0, first[0] == 1]
        kernel, bias = map(to_numpy, classifier.output_dense.weights)
        logits = (hidden @ kernel + bias).astype("float64")
        rows.append(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))
    return rows


def loss_and_accuracy(classifier, weights):
    """The mean over words, from loops."""
    total = correct = count = 0.0
    for log_p, labels, of_words in zip(expected_of_words(classifier), IDS, weights, strict=True):
        for row, label, weight in zip(log_p, labels, of_words, strict=True):
            total -= weight * row[label]
            correct += weight * (row.argmax() == label)
            count += weight
    return [total / count, correct / count]


OF_SENTENCES = [0.5, 7.0, 3.0, 2.0]
REPEATED = [[w] * len(words) for w, words in zip(OF_SENTENCES, SENTENCES, strict=True)]


@pytest.mark.parametrize(
    ("weights", "of_words"),
    [(WEIGHTS, WEIGHTS), (None, ONES), (np.array(OF_SENTENCES), REPEATED)],
)
def test_loss_and_accuracy_are_means_over_words(classifier, weights, of_words):
    expected = loss_and_accuracy(classifier, of_words)
    assert 0 < expected[1] < 1
    actual = classifier.evaluate(SENTENCES, LABELS, 4, sample_weight=weights, verbose=0)
    assert actual == pytest.approx(expected, rel=1e-4)
    assert float(classifier.optimizer.learning_rate) == pytest.approx(5e-5)


def test_probabilities_as_outputs():
    model = tiny(activation="softmax")
    actual = model.evaluate(SENTENCES, LABELS, 4, verbose=0)
    assert actual == pytest.approx(loss_and_accuracy(model, ONES), rel=1e-4)


# === Kinds of data ===


@every_dataset
def test_datasets(classifier, kind):
    expected = classifier.evaluate(SENTENCES, IDS, 2, sample_weight=WEIGHTS, verbose=0)
    for labels in (LABELS, IDS):
        dataset = dataset_of(kind, SENTENCES, labels, WEIGHTS)
        assert classifier.evaluate(dataset, verbose=0) == pytest.approx(expected, rel=1e-5)
    outputs = classifier.predict(dataset_of(kind, SENTENCES), verbose=0)
    assert_close(outputs, classifier.predict(SENTENCES, verbose=0), 1e-5)


def test_kinds_of_columns():
    expected = loops(SENTENCES, IDS, WEIGHTS, 13)
    objects = [np.empty(4, object) for _ in range(3)]
    for array, values in zip(objects, (SENTENCES, IDS, WEIGHTS), strict=True):
        array[:] = [np.array(row) for row in values]
    in_bytes = [tuple(word.encode() for word in words) for words in SENTENCES]
    preprocessor = tiny_preprocessor()
    for columns in (objects, (in_bytes, IDS, WEIGHTS)):
        np.testing.assert_array_equal(arrays(preprocessor(*columns)), expected)
    # One sentence is an element of a dataset.
    element = preprocessor((np.array(SENTENCES[2]), IDS[2], WEIGHTS[2]))
    np.testing.assert_array_equal(arrays(element), expected[:, 2])


# === Refusals ===

# The message, sentences, labels and weights.
REFUSED = {
    r"not empty. Received: \['a', 'b.*'\] in row 1": ([["the"], ["a", "b\ud800"]], [[0], [1, 2]]),
    "a list of words.*'the fox' in row 0": (["the fox", "a cat"], [[1, 0], [1, 0]]),
    r"Received: \[\] in row 1": ([["the"], []], [[1], []]),
    r"Received: \['the', ''\] in row 1": ([["a"], ["the", ""]], [[1], [1, 2]]),
    r"`y` .*Received: \[4\] for 2 words in row 3": (SENTENCES, [*IDS[:3], [4]]),
    r"Received: \[None, 0\] .*row 3": (SENTENCES, [*IDS[:3], [None, 0]]),
    r"\[0, 5\). Received: .* from 0 to 5": (SENTENCES, [*IDS[:3], [5, 0]]),
    r"`sample_weight` .*\[1.0\] for 2": (SENTENCES, IDS, [*WEIGHTS[:3], [1.0]]),
    "nan.* for 5 words in row 2": (SENTENCES, IDS, [1.0, 2.0, np.nan, 1.0]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_would_be_silently_wrong_is_refused(classifier, message):
    x, y, *weights = REFUSED[message]
    with pytest.raises(ValueError, match=message):
        classifier.fit(x, y, sample_weight=weights[0] if weights else None, verbose=0)
    with pytest.raises(ValueError, match=message):
        classifier.evaluate(iter([(x, y, *weights)]), verbose=0)


def test_arguments_that_cannot_be_right_are_refused():
    categorical = tiny()
    categorical.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True))
    for call, message in (
        (lambda: tiny(class_names=None, num_classes=1), "at least 2.*num_classes=1"),
        (lambda: tiny().fit(SENTENCES, LABELS, class_weight={0: 2.0}), "`class_weight` must be"),
        (lambda: categorical.fit(SENTENCES, LABELS, verbose=0), "need a sparse loss"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


# === tag ===


def assert_tags(found, sentences, log_probabilities):
    assert [[word["word"] for word in words] for words in found] == sentences
    for words, of_words in zip(found, log_probabilities, strict=True):
        for word, row in zip(words, of_words, strict=True):
            assert word["label"] == NAMES[row.argmax()]
            assert word["probability"] == pytest.approx(np.exp(row.max()), rel=1e-4)
            assert sorted(word) == ["label", "probability", "word"]


def test_tags_of_words(classifier):
    found = classifier.tag(SENTENCES, batch_size=3)
    assert_tags(found, SENTENCES, expected_of_words(classifier))
    assert len({word["label"] for words in found for word in words}) > 1


@pytest.mark.filterwarnings("error::UserWarning")
def test_long_sentences_are_tagged_in_parts():
    model = tiny(preprocessor=tiny_preprocessor(sequence_length=6))
    sentence = ["the", "foxes", "sing", "sleeping-dogs", "a", "birds"]
    # Four tokens: the fox ##es sing | sleep ##ing - dog ##s | a bird ##s.
    parts = [sentence[:3], ["sleeping-dog"], sentence[4:]]
    expected = [
        *expected_of_words(model, [["cats"]]),
        np.concatenate(expected_of_words(model, parts)),
    ]
    assert_tags(model.tag([["cats"], sentence]), [["cats"], sentence], expected)
