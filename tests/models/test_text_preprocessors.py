"""Preprocessors of texts and pairs beside KerasHub's, masks, and what they refuse."""

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
    DietBertTokenClassifierPreprocessor,
    DietBertTokenizer,
)
from keras_diet.pretraining import mask_tokens
from tests.helpers import assert_all_close, check_config, to_numpy
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


@every_class
@pytest.mark.parametrize(
    "x", [TEXTS[0], TEXTS, (A, B), (A, B, A)], ids=["text", "texts", "pairs", "three"]
)
def test_output_is_that_of_berts_preprocessor(cls, x):
    """At the length 14, the longest texts are cut."""
    found = ours(cls, sequence_length=14)(x)
    assert_all_close(found, theirs(cls, sequence_length=14)(x=x), 0)
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
        assert_all_close(ours(cls, **arguments)(segments), theirs(cls, **arguments)(x=segments), 0)


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


TEXT = "the [PAD] [PAD] fox [PAD]"
UNCHANGED = {"mask_selection_length": 2, "mask_token_rate": 0.0, "random_token_rate": 0.0}
PAIR = (["fox [PAD]"], [TEXT])
# The preprocessor, its arguments, and a batch of one text or of one pair.
PADDED = {
    "masked_lm": (DietBertMaskedLMPreprocessor, UNCHANGED, [TEXT]),
    "texts": (DietBertTextEmbedderPreprocessor, {}, [TEXT]),
    "packed": (DietBertTextEmbedderPreprocessor, {"packed": True}, [TEXT]),
    "words": (DietBertTokenClassifierPreprocessor, {}, [TEXT.split()]),
    "pairs": (DietBertTextClassifierPreprocessor, {}, PAIR),
    "questions": (DietBertQuestionAnswererPreprocessor, {}, PAIR),
}
IN_A_GRAPH = pytest.param("graph", marks=pytest.mark.any_backend("tensorflow"))


@pytest.mark.parametrize("kind", [*PADDED, IN_A_GRAPH])
def test_padding_tokens_inside_of_a_text_are_tokens(kind):
    """Only what follows the text is masked, and the id of a token does not tell."""
    tokenizer = DietBertTokenizer(VOCABULARY, special_tokens_in_strings=True)
    cls, arguments, x = PADDED["texts" if kind == "graph" else kind]
    preprocessor = cls(tokenizer, sequence_length=13, **arguments)
    if kind == "graph":
        tf = pytest.importorskip("tensorflow")
        pytest.importorskip("tensorflow_text")
        found = next(iter(tf.data.Dataset.from_tensor_slices(x).map(preprocessor).batch(1)))
    else:
        found = preprocessor(x)
    first = ["fox", "[PAD]", "[SEP]"] if x is PAIR else []
    tokens = ["[CLS]", *first, *TEXT.split(), "[SEP]"]
    num_padding = 13 - len(tokens)
    found = inputs(found)
    found_tokens = [VOCABULARY[token] for token in found["token_ids"][0]]
    assert found_tokens == [*tokens, *["[PAD]"] * num_padding]
    mask = [1] * len(tokens) + [0] * num_padding
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


def test_masks_are_those_of_the_function():
    """`tests/pretraining/test_masking.py` has the function."""
    rates = {"mask_selection_rate": 0.5, "mask_token_rate": 0.6, "random_token_rate": 0.2}
    rates["mask_selection_length"] = 5
    preprocessor = ours(DietBertMaskedLMPreprocessor, VOCABULARY[::-1], **rates)
    x, *targets = preprocessor.make_batch((TEXTS, None, None), np.random.default_rng(5))
    tokens = ours(DietBertTextClassifierPreprocessor, VOCABULARY[::-1])(TEXTS)["token_ids"]
    options = {"vocabulary_size": 31, "mask_token_id": 26, "pad_token_id": 30}
    special = preprocessor.tokenizer.special_token_ids
    features, *expected = mask_tokens(
        tokens, np.random.default_rng(5), unselectable_token_ids=special, **options, **rates
    )
    del features["segment_ids"]
    assert_all_close({name: x[name] for name in features}, features, 0)
    assert_all_close(targets, expected, 0)
    # Direct calls follow the seed of Keras.
    keras.utils.set_random_seed(3)
    first = preprocessor(TEXTS)[0]["token_ids"]
    keras.utils.set_random_seed(3)
    np.testing.assert_array_equal(preprocessor(TEXTS)[0]["token_ids"], first)


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
        assert_all_close(inputs(outputs), expected, 0)
    for outputs in (*labelled, *batches[2:]):
        np.testing.assert_array_equal(outputs[1], y)
        np.testing.assert_array_equal(outputs[2], weights)


@pytest.mark.parametrize("cls", OF_LABELLED_TEXTS)
def test_one_text_or_texts_with_labels(cls):
    x, labels = ours(cls)((A, [2, 0, 1]))
    assert_all_close(x, ours(cls)(A), 0)
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
        assert_all_close(found, inputs(theirs(cls)(x=x[0])), 0)


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
        "must not pad, truncate or add special tokens.*sequence_length=5",
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
    check_config(preprocessor)
    assert {name: getattr(preprocessor, name) for name in not_default} == not_default
    assert (cls.backbone_cls, cls.tokenizer_cls) == (DietBertBackbone, DietBertTokenizer)
