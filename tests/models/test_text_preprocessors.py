"""Preprocessors of texts and pairs: KerasHub's, but for pairs that stay pairs, and refusals."""

import json

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLMPreprocessor,
    DietBertTextClassifierPreprocessor,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenizer,
)
from tests.helpers import to_numpy
from tests.models.tiny import TEXTS, VOCABULARY

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


def ours(cls, **arguments):
    masking = MASKING if cls is DietBertMaskedLMPreprocessor else {}
    arguments = {"sequence_length": 17, **masking, **arguments}
    return cls(DietBertTokenizer(VOCABULARY), **arguments)


def theirs(cls, **arguments):
    masking = MASKING if cls is DietBertMaskedLMPreprocessor else {}
    arguments = {"sequence_length": 17, **masking, **arguments}
    return CLASSES[cls](keras_hub.models.BertTokenizer(VOCABULARY), **arguments)


def inputs(outputs):
    """The model's inputs in what a preprocessor returned, as arrays."""
    x, _, _ = keras.utils.unpack_x_y_sample_weight(outputs)
    return {name: np.asarray(to_numpy(value)) for name, value in x.items()}


def assert_same(actual, expected):
    keras.tree.assert_same_structure(actual, expected)
    for one, other in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


@every_class
@pytest.mark.parametrize("arguments", [{}, {"sequence_length": 7, "truncate": "waterfall"}])
@pytest.mark.parametrize("x", [TEXTS[0], TEXTS, (A, B)], ids=["text", "texts", "pairs"])
def test_output_is_that_of_berts_preprocessor(cls, x, arguments):
    assert_same(ours(cls, **arguments)(x=x), theirs(cls, **arguments)(x=x))


def test_one_pair_by_hand():
    x = ours(DietBertTextClassifierPreprocessor, sequence_length=9)(("the fox", "a cat ."))
    tokens = ["[CLS]", "the", "fox", "[SEP]", "a", "cat", ".", "[SEP]", "[PAD]"]
    assert to_numpy(x["token_ids"]).tolist() == [VOCABULARY.index(token) for token in tokens]
    assert to_numpy(x["segment_ids"]).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert to_numpy(x["padding_mask"]).astype(int).tolist() == [1] * 8 + [0]


@every_class
def test_padding_may_have_any_id(cls):
    """All real tokens but the one with id 0 would be lost if padding were 0 everywhere."""
    order = [*VOCABULARY[5:], *VOCABULARY[:5]]
    preprocessor = cls(
        DietBertTokenizer(order),
        sequence_length=9,
        **({"mask_selection_rate": 0.0} if cls is DietBertMaskedLMPreprocessor else {}),
    )
    x = inputs(preprocessor(["the fox ."]))
    tokens = ["[CLS]", "the", "fox", ".", "[SEP]", *["[PAD]"] * 4]
    assert order.index("the") == 0
    assert x["token_ids"].tolist() == [[order.index(token) for token in tokens]]
    assert x["padding_mask"].astype(int).tolist() == [[1] * 5 + [0] * 4]


# === Pairs ===


@every_class
@pytest.mark.parametrize("as_array", [False, True])
def test_a_tuple_of_texts_is_a_pair(cls, as_array):
    pair = (np.array(A), np.array(B)) if as_array else (A, B)
    expected = ours(cls)(x=(A, B))
    assert_same(ours(cls)(pair), expected)
    assert set(inputs(expected)["segment_ids"].ravel()) == {0, 1}


@every_class
def test_three_texts_are_three_segments(cls):
    outputs = ours(cls)((A, B, A))
    assert set(inputs(outputs)["segment_ids"].ravel()) == {0, 1, 2}


@pytest.mark.parametrize("cls", OF_LABELLED_TEXTS)
def test_labels_and_weights_are_passed_on(cls):
    y, weights = [2, 0, 1], [0.5, 1.0, 2.0]
    expected = ours(cls)((A, B))
    for outputs in (
        ours(cls)((A, B), y, weights),
        ours(cls)((A, B), y=y, sample_weight=weights),
        # An element of a Grain dataset.
        ours(cls)(((A, B), y, weights)),
    ):
        assert_same(outputs[0], expected)
        np.testing.assert_array_equal(to_numpy(outputs[1]), y)
        np.testing.assert_array_equal(to_numpy(outputs[2]), weights)
    x, labels = ours(cls)((A, y))
    assert_same(x, ours(cls)(A))
    np.testing.assert_array_equal(to_numpy(labels), y)


@every_class
def test_pairs_in_grain(cls):
    grain = pytest.importorskip("grain")
    expected = inputs(ours(cls)((A, B)))
    preprocessor = ours(cls)
    preprocessor(A)
    elements = list(grain.MapDataset.source(list(zip(A, B, strict=True))).map(preprocessor))
    for name, value in expected.items():
        np.testing.assert_array_equal([inputs(x)[name] for x in elements], value)


@pytest.mark.any_backend("tensorflow")
def test_pairs_in_tf_data():
    """KerasHub's harness reads the inputs of other preprocessors from `tf.data`."""
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    preprocessor = ours(DietBertTextClassifierPreprocessor)
    expected = inputs(preprocessor((A, B)))
    dataset = tf.data.Dataset.from_tensor_slices(((A, B),)).batch(3)
    outputs = next(iter(dataset.map(preprocessor)))
    for name, value in inputs(keras.tree.map_structure(lambda x: x.numpy(), outputs)).items():
        np.testing.assert_array_equal(value, expected[name])


@every_class
def test_elements_of_datasets_are_unpacked(cls):
    """In the forms of the documentation: `((a, b),)`, and `((a, b), y)`."""
    preprocessor = ours(cls)
    expected = inputs(preprocessor((A, B)))
    assert_same(inputs(preprocessor(((A, B),))), expected)
    assert_same(inputs(preprocessor((A,))), inputs(preprocessor(A)))

    grain = pytest.importorskip("grain")
    elements = [((a, b),) for a, b in zip(A, B, strict=True)]
    batches = grain.MapDataset.source(elements)
    for name, value in expected.items():
        mapped = [inputs(x)[name] for x in batches.map(preprocessor)]
        np.testing.assert_array_equal(mapped, value)
    if cls in OF_LABELLED_TEXTS:
        elements = [((a, b), y) for a, b, y in zip(A, B, [2, 0, 1], strict=True)]
        mapped = list(grain.MapDataset.source(elements).map(preprocessor))
        assert [int(y) for _, y in mapped] == [2, 0, 1]
        np.testing.assert_array_equal(
            [inputs(x)["token_ids"] for x in mapped], expected["token_ids"]
        )


def test_a_dataset_that_holds_texts_as_labels_is_refused():
    tf = pytest.importorskip("tensorflow")
    dataset = tf.data.Dataset.from_tensor_slices((A, B)).batch(3)
    with pytest.raises(ValueError, match=r"`y` must be numbers(.|\n)*\(\(a, b\), y\)"):
        dataset.map(ours(DietBertTextClassifierPreprocessor))


# === Refusals ===


@every_class
@pytest.mark.parametrize("x", [[], ([], []), (A, []), np.array([], dtype=str)], ids=str)
def test_empty_batches_are_refused(cls, x):
    for call in (ours(cls), lambda x: ours(cls)(x=x)):
        with pytest.raises(ValueError, match="at least one example"):
            call(x)


NESTED = {
    "two lists": [A, B],
    "pairs": list(zip(A, B, strict=True)),
    "array": np.array([A, B]).T,
    "objects": np.array([A, B], dtype=object),
    "in a tuple": ([A, B], A[:2]),
}


@every_class
@pytest.mark.parametrize("x", NESTED)
def test_texts_in_lists_of_lists_are_refused(cls, x):
    with pytest.raises(ValueError, match=r"pass a tuple \(a, b\)"):
        ours(cls)(NESTED[x])


def test_lists_of_words_are_texts_where_the_tokenizer_does_not_split():
    preprocessor = DietBertTextClassifierPreprocessor(
        DietBertTokenizer(VOCABULARY, split=False), sequence_length=7
    )
    x = preprocessor([["the", "fox"], ["a", "cat"]])
    assert to_numpy(x["padding_mask"]).sum() == 8


@every_class
def test_pairs_of_unequal_length_are_refused(cls):
    with pytest.raises(ValueError, match=r"same batch size(.|\n)*Received: batch sizes \[3, 2\]"):
        ours(cls)((A, B[:2]))


@every_class
@pytest.mark.parametrize("y", [B, np.array(B), np.array(B, dtype=object), "the fox"])
def test_texts_as_labels_are_refused(cls, y):
    with pytest.raises(ValueError, match=r"`y` must be numbers\. Received: text"):
        ours(cls)(A, y)


@pytest.mark.parametrize("arguments", [{"y": [1, 2, 3]}, {"sample_weight": [1.0, 1.0, 1.0]}])
def test_masking_makes_its_own_labels(arguments):
    with pytest.raises(ValueError, match="must be `None`"):
        ours(DietBertMaskedLMPreprocessor)(A, **arguments)


@every_class
def test_unknown_arguments_are_refused(cls):
    with pytest.raises((TypeError, ValueError), match="max_length"):
        ours(cls, max_length=7)


@every_class
def test_every_argument_survives_the_configuration(cls):
    preprocessor = ours(cls, sequence_length=19, truncate="waterfall", name="words")
    copy = cls.from_config(json.loads(json.dumps(preprocessor.get_config())))
    assert (copy.sequence_length, copy.truncate, copy.name) == (19, "waterfall", "words")
    assert type(copy.tokenizer) is DietBertTokenizer
    assert copy.backbone_cls is DietBertBackbone
    assert copy.tokenizer_cls is DietBertTokenizer
