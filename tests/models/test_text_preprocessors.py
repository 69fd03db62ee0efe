"""Preprocessors of texts and pairs beside KerasHub's, masks, and what they refuse."""

import json

import grain
import keras
import keras_hub
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLMPreprocessor,
    DietBertQuestionAnswererPreprocessor,
    DietBertSentencePieceTokenizer,
    DietBertTextClassifierPreprocessor,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import to_numpy
from tests.models import tasks
from tests.models.multilingual import proto
from tests.models.tiny import TEXTS, VOCABULARY

pytestmark = pytest.mark.any_backend
A, B = TEXTS[:3], TEXTS[2:]
# Everything is masked, so that nothing is random.
MASKING = {
    "mask_selection_rate": 1.0,
    "mask_selection_length": 17,
    "mask_token_rate": 1.0,
    "random_token_rate": 0.0,
}
CLASSES = {
    DietBertTextClassifierPreprocessor: keras_hub.models.BertTextClassifierPreprocessor,
    DietBertTextEmbedderPreprocessor: keras_hub.models.BertTextEmbedderPreprocessor,
    DietBertMaskedLMPreprocessor: keras_hub.models.BertMaskedLMPreprocessor,
}
OF_LABELLED_TEXTS = (DietBertTextClassifierPreprocessor, DietBertTextEmbedderPreprocessor)
every_class = pytest.mark.parametrize("cls", CLASSES)


def arguments_of(cls, arguments):
    masking = MASKING if cls is DietBertMaskedLMPreprocessor else {}
    return {"sequence_length": 17, **masking, **arguments}


def ours(cls, vocabulary=VOCABULARY, **arguments):
    return cls(DietBertTokenizer(vocabulary), **arguments_of(cls, arguments))


def theirs(cls, **arguments):
    tokenizer = keras_hub.models.BertTokenizer(VOCABULARY)
    return CLASSES[cls](tokenizer, **arguments_of(cls, arguments))


def inputs(outputs):
    """The model's inputs in what a preprocessor returned, as arrays."""
    x, _, _ = keras.utils.unpack_x_y_sample_weight(outputs)
    return {name: np.asarray(to_numpy(value)) for name, value in x.items()}


def assert_same(actual, expected):
    actual = keras.tree.map_structure(np.asarray, actual)
    expected = keras.tree.map_structure(lambda value: np.asarray(to_numpy(value)), expected)
    keras.tree.assert_same_structure(actual, expected)
    for one, other in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@every_class
@pytest.mark.parametrize(
    "x", [TEXTS[0], TEXTS, (A, B), (A, B, A)], ids=["text", "texts", "pairs", "three"]
)
def test_output_is_that_of_berts_preprocessor(cls, x):
    """At the length 14, the longest texts are cut."""
    found = ours(cls, sequence_length=14)(x)
    assert_same(found, theirs(cls, sequence_length=14)(x=x))
    # Arrays, so that Grain and PyTorch can send them between processes.
    assert all(type(leaf) in (np.ndarray, np.generic) for leaf in keras.tree.flatten(found))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=5),
    length=st.integers(5, 12),
    truncate=st.sampled_from(["round_robin", "waterfall"]),
)
def test_texts_of_all_sizes_are_cut_as_by_berts_preprocessor(sizes, length, truncate):
    words = (TEXTS[0].split(), TEXTS[4].split(), TEXTS[4].split())
    texts = tuple([" ".join(words[i][: row[i]]) for row in sizes] for i in range(3))
    arguments = {"sequence_length": length, "truncate": truncate}
    cls = DietBertTextClassifierPreprocessor
    for segments in (texts[0], texts[:2], texts):
        assert_same(ours(cls, **arguments)(segments), theirs(cls, **arguments)(x=segments))


@every_class
def test_padding_may_have_any_id(cls):
    """All real tokens but the one with id 0 would be lost if padding were 0 everywhere."""
    order = [*VOCABULARY[5:], *VOCABULARY[:5]]
    masking = {"mask_token_rate": 0.0} if cls is DietBertMaskedLMPreprocessor else {}
    x = inputs(ours(cls, order, sequence_length=9, **masking)(["the fox ."]))
    tokens = ["[CLS]", "the", "fox", ".", "[SEP]", *["[PAD]"] * 4]
    assert order.index("the") == 0
    assert x["token_ids"].tolist() == [[order.index(token) for token in tokens]]
    assert x["padding_mask"].astype(int).tolist() == [[1] * 5 + [0] * 4]


PADDED_TEXT = ["[CLS]", "the", "[PAD]", "[PAD]", "fox", "[PAD]", "[SEP]", "[PAD]", "[PAD]"]
IN_A_GRAPH = pytest.mark.any_backend("tensorflow")


PADDED = ["packed", "pairs", "questions", pytest.param("graph", marks=IN_A_GRAPH)]


@pytest.mark.parametrize("kind", [*tasks.CLASSES, *PADDED])
def test_padding_tokens_inside_of_a_text_are_tokens(kind):
    """Only what follows the text is masked, and the id of a token does not tell."""
    text = "the [PAD] [PAD] fox [PAD]"
    tokenizer = DietBertTokenizer(VOCABULARY, special_tokens_in_strings=True)
    expected = PADDED_TEXT
    if kind in tasks.CLASSES:
        arguments = {"mask_selection_length": 2, "mask_token_rate": 0.0, "random_token_rate": 0.0}
        arguments = arguments if kind == "masked_lm" else {}
        preprocessor = tasks.CLASSES[kind][1](tokenizer, sequence_length=9, **arguments)
        x = [text.split()] if kind == "token_classifier" else [text]
    elif kind in ("packed", "graph"):
        preprocessor = DietBertTextEmbedderPreprocessor(
            tokenizer, sequence_length=9, packed=kind == "packed"
        )
        x = [text]
    else:
        cls = {
            "pairs": DietBertTextClassifierPreprocessor,
            "questions": DietBertQuestionAnswererPreprocessor,
        }[kind]
        preprocessor, x = cls(tokenizer, sequence_length=12), (["fox [PAD]"], [text])
        expected = ["[CLS]", "fox", "[PAD]", "[SEP]", *PADDED_TEXT[1:]]
    if kind == "graph":
        tf = pytest.importorskip("tensorflow")
        pytest.importorskip("tensorflow_text")
        x = next(iter(tf.data.Dataset.from_tensor_slices(x).map(preprocessor).batch(1)))
    found = inputs(x if kind == "graph" else preprocessor(x))
    assert [VOCABULARY[token] for token in found["token_ids"][0]] == expected
    num_tokens = expected.index("[SEP]", 4) + 1
    mask = [1] * num_tokens + [0] * (len(expected) - num_tokens)
    assert found["padding_mask"][0].astype(int).tolist() == mask
    if kind == "packed":
        assert found["document_ids"][0].tolist() == mask


def test_probabilities_of_half_precision_are_those_of_float32(monkeypatch):
    task = tasks.tiny_task("masked_lm")
    logits = np.linspace(-3.0, 2.0, 62).reshape(1, 2, 31).astype("float16")
    monkeypatch.setattr(task, "infer", lambda inputs: logits)
    exponents = np.exp(logits[0, 0].astype("float64"))
    expected = sorted(exponents / exponents.sum(), reverse=True)
    found = [each["probability"] for each in task.fill_mask("the [MASK]", top_k=31)]
    # Half precision would round them by 5e-4.
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_mask_may_be_filled_beside_a_padding_token(monkeypatch):
    task = tasks.tiny_task("masked_lm")
    tokenizer = DietBertTokenizer(VOCABULARY, special_tokens_in_strings=True)
    task.preprocessor = DietBertMaskedLMPreprocessor(tokenizer, sequence_length=9)
    seen, infer = [], task.infer
    monkeypatch.setattr(task, "infer", lambda x: seen.append(x) or infer(x))
    task.fill_mask("the [PAD] [MASK] fox [PAD]")
    assert seen[0]["padding_mask"].astype(int).tolist() == [[1] * 7 + [0] * 2]


# === Masks ===


def test_random_masks_keep_rates_and_repeat():
    arguments = {
        "mask_selection_rate": 0.5,
        "mask_selection_length": 5,
        "mask_token_rate": 0.6,
        "random_token_rate": 0.2,
    }
    preprocessor = ours(DietBertMaskedLMPreprocessor, **arguments)
    texts = TEXTS * 200
    x, y, weights = preprocessor.make_batch((texts, None, None), np.random.default_rng(5))
    again, _, _ = preprocessor.make_batch((texts, None, None), np.random.default_rng(5))
    np.testing.assert_array_equal(x["token_ids"], again["token_ids"])
    original = inputs(ours(DietBertTextClassifierPreprocessor)(texts))["token_ids"]
    filled, positions = weights == 1, x["mask_positions"]
    labels = np.take_along_axis(original, positions, axis=1)
    np.testing.assert_array_equal(labels[filled], y[filled])
    assert not np.any(y[~filled])
    assert np.all(np.diff(positions)[filled[:, 1:]] > 0)
    # Half of the tokens without [CLS] and [SEP], but at most 5.
    sizes = (original != 0).sum(1) - 2
    np.testing.assert_array_equal(filled.sum(1), np.minimum(np.round(0.5 * sizes), 5))
    masked = np.take_along_axis(x["token_ids"], positions, axis=1)[filled]
    is_kept = masked == labels[filled]
    assert np.mean(masked == VOCABULARY.index("[MASK]")) == pytest.approx(0.6, abs=0.04)
    assert np.mean(is_kept) == pytest.approx(0.2 + 0.2 / 27, abs=0.04)
    assert np.sum(x["token_ids"] != original) == np.sum(~is_kept)
    # Special tokens are never drawn.
    assert not np.isin(masked[~is_kept], [0, 2, 3]).any()
    # Direct calls follow the seed of Keras.
    keras.utils.set_random_seed(3)
    first = preprocessor(texts)[0]["token_ids"]
    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(preprocessor(texts)[0]["token_ids"], first)


# === Elements of datasets ===


@every_class
def test_elements_of_datasets(cls):
    """Examples, perhaps with labels and weights, one by one on Grain and in batches."""
    preprocessor = ours(cls)
    expected = inputs(preprocessor((A, B)))
    pairs = list(zip(A, B, strict=True))
    labelled, sources = [], [pairs, [(pair,) for pair in pairs]]
    y, weights = [2, 0, 1], [0.5, 1.0, 2.0]
    if cls in OF_LABELLED_TEXTS:
        labelled = [preprocessor((A, B), y, weights), preprocessor(((A, B), y, weights))]
        sources.append(list(zip(pairs, y, weights, strict=True)))
    batches = []
    for source in sources:
        mapped = list(grain.MapDataset.source(source).map(preprocessor))
        assert all(type(leaf) is np.ndarray for leaf in keras.tree.flatten(inputs(mapped[0])))
        batches += list(grain.MapDataset.source(mapped).batch(3))
    for outputs in (preprocessor(((A, B),)), *batches, *labelled):
        assert_same(inputs(outputs), expected)
    for outputs in (*labelled, *batches[2:]):
        np.testing.assert_array_equal(outputs[1], y)
        np.testing.assert_array_equal(outputs[2], weights)


@pytest.mark.parametrize("cls", OF_LABELLED_TEXTS)
def test_one_text_or_texts_with_labels(cls):
    x, labels = ours(cls)((A, [2, 0, 1]))
    assert_same(x, ours(cls)(A))
    np.testing.assert_array_equal(labels, [2, 0, 1])
    x, label = ours(cls)(A[1], 2)
    assert (x["token_ids"].shape, label) == ((17,), 2)
    words = DietBertTokenizer(VOCABULARY, split=False)
    lists = cls(words, sequence_length=7)([["the", "fox"], ["a", "cat"]])
    assert inputs(lists)["padding_mask"].sum() == 8


@pytest.mark.any_backend("tensorflow")
@every_class
def test_in_a_graph_it_is_kerashubs(cls):
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    preprocessor = ours(cls)
    for x in ((TEXTS,), ((A, B),)):
        dataset = tf.data.Dataset.from_tensor_slices(x).batch(len(TEXTS)).map(preprocessor)
        found = inputs(keras.tree.map_structure(lambda t: t.numpy(), next(iter(dataset))))
        for name, value in inputs(theirs(cls)(x=x[0])).items():
            np.testing.assert_array_equal(found[name], value)


def test_buckets_above_a_length_that_was_reduced_are_not_used():
    preprocessor = ours(DietBertTextClassifierPreprocessor, length_buckets=(5, 9, 12))
    preprocessor.sequence_length = 10
    assert preprocessor.lengths == (5, 9, 10)
    copy = type(preprocessor).from_config(preprocessor.get_config())
    assert copy.lengths == (5, 9, 10)


# === Refusals ===

# Texts are refused in `test_data.py`.
ARGUMENTS = {
    "falling buckets": ({"length_buckets": (8, 5)}, "`length_buckets` must be integers that incr"),
    "padding tokenizer": (
        {"tokenizer": DietBertTokenizer(VOCABULARY, sequence_length=5)},
        "must not add special tokens or padding.*sequence_length=5",
    ),
    "start token": (
        {"tokenizer": DietBertSentencePieceTokenizer(proto(), add_bos=True)},
        "tokenizer.add_bos=True",
    ),
}


@pytest.mark.parametrize("arguments, message", ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_refused_arguments(arguments, message):
    arguments = {"tokenizer": DietBertTokenizer(VOCABULARY), "sequence_length": 17, **arguments}
    with pytest.raises(ValueError, match=message):
        DietBertMaskedLMPreprocessor(**arguments)


@pytest.mark.parametrize(
    "kind, x, shortest",
    [("classifier", A, 3), ("classifier", (A, B), 4), ("token_classifier", [["fox"]] * 3, 3)],
    ids=["texts", "pairs", "words"],
)
def test_lengths_have_room_for_a_token(kind, x, shortest):
    message = f"`sequence_length` must be at least {shortest}.*={shortest - 1}"
    with pytest.raises(ValueError, match=message):
        tasks.tiny_preprocessor(kind, sequence_length=shortest - 1)(x)
    inputs = tasks.tiny_preprocessor(kind, sequence_length=shortest)(x)
    assert inputs["token_ids"].shape == (3, shortest)


@every_class
def test_every_argument_survives_the_configuration(cls):
    not_default = {"sequence_length": 19, "truncate": "waterfall", "length_buckets": (5, 9)}
    if cls is DietBertMaskedLMPreprocessor:
        rates = ("mask_selection_rate", "mask_token_rate", "random_token_rate")
        not_default.update(zip(rates, (0.3, 0.5, 0.2), strict=True))
        not_default["mask_selection_length"] = 7
    preprocessor = ours(cls, **not_default, name="words")
    copy = cls.from_config(json.loads(json.dumps(preprocessor.get_config())))
    assert copy.name == "words"
    for name, value in not_default.items():
        assert getattr(copy, name) == getattr(preprocessor, name) == value
    assert copy.tokenizer.get_config() == preprocessor.tokenizer.get_config()
    assert (copy.backbone_cls, copy.tokenizer_cls) == (DietBertBackbone, DietBertTokenizer)
