"""`DietBertMaskedLMPreprocessor`: KerasHub's BERT preprocessor, for the DietBert models."""

import inspect
import json

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import DietBertBackbone, DietBertMaskedLMPreprocessor, DietBertTokenizer
from tests.helpers import to_numpy
from tests.models.tiny import TEXTS, VOCABULARY

# Masks every token, so that nothing is random.
DETERMINISTIC = {
    "sequence_length": 17,
    "mask_selection_rate": 1.0,
    "mask_selection_length": 19,
    "mask_token_rate": 1.0,
    "random_token_rate": 0.0,
}
PAIRS = (TEXTS[:3], TEXTS[2:])


def ours(**arguments):
    return DietBertMaskedLMPreprocessor(
        DietBertTokenizer(VOCABULARY), **{**DETERMINISTIC, **arguments}
    )


def theirs(**arguments):
    tokenizer = keras_hub.models.BertTokenizer(VOCABULARY)
    return keras_hub.models.BertMaskedLMPreprocessor(tokenizer, **{**DETERMINISTIC, **arguments})


def assert_same_structure(actual, expected, values=True):
    """Assert equal names, shapes, dtypes and, with `values`, equal numbers."""
    keras.tree.assert_same_structure(actual, expected)
    for ours, theirs in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        assert type(ours) is type(theirs)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if values:
            np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))


def test_one_text_masked_by_hand():
    preprocessor = ours(sequence_length=11, mask_selection_length=7)
    x, y, sample_weight = preprocessor(["the foxes jumped ."])
    mask, cls, sep = (VOCABULARY.index(token) for token in ("[MASK]", "[CLS]", "[SEP]"))
    assert to_numpy(x["token_ids"]).tolist() == [[cls, *[mask] * 6, sep, 0, 0, 0]]
    assert to_numpy(x["padding_mask"]).astype("int").tolist() == [[1] * 8 + [0] * 3]
    assert to_numpy(x["segment_ids"]).tolist() == [[0] * 11]
    assert to_numpy(x["mask_positions"]).tolist() == [[1, 2, 3, 4, 5, 6, 0]]
    tokens = ["the", "fox", "##es", "jump", "##ed", "."]
    assert to_numpy(y).tolist() == [[*map(VOCABULARY.index, tokens), 0]]
    assert to_numpy(sample_weight).tolist() == [[1] * 6 + [0]]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"sequence_length": 7}, {"sequence_length": 13, "truncate": "waterfall"}],
    ids=lambda arguments: "-".join(map(str, arguments.values())) or "defaults",
)
@pytest.mark.parametrize("x", [TEXTS[0], TEXTS, PAIRS], ids=["text", "texts", "pairs"])
def test_output_is_that_of_berts_preprocessor(x, arguments):
    actual, expected = ours(**arguments)(x=x), theirs(**arguments)(x=x)
    assert_same_structure(actual, expected)
    segments = set(np.unique(to_numpy(actual[0]["segment_ids"])))
    assert segments == ({0, 1} if x is PAIRS else {0})


def test_random_masks_keep_structure_and_rates():
    arguments = {
        "mask_selection_rate": 0.5,
        "mask_selection_length": 5,
        "mask_token_rate": 0.6,
        "random_token_rate": 0.2,
    }
    assert_same_structure(ours(**arguments)(TEXTS), theirs(**arguments)(TEXTS), values=False)
    outputs = ours(**arguments)(TEXTS * 200)
    x, y, sample_weight = keras.tree.map_structure(to_numpy, outputs)
    full, _, _ = ours(mask_token_rate=0.0)(TEXTS * 200)
    original = to_numpy(full["token_ids"])
    filled = sample_weight == 1
    positions = x["mask_positions"]
    labels = np.take_along_axis(original, positions, axis=1)
    np.testing.assert_array_equal(labels[filled], y[filled])
    assert not np.any(y[~filled])
    assert np.all(np.diff(positions)[filled[:, 1:]] > 0)
    masked = np.take_along_axis(x["token_ids"], positions, axis=1)[filled]
    is_mask = masked == VOCABULARY.index("[MASK]")
    is_kept = masked == labels[filled]
    assert np.mean(is_mask) == pytest.approx(0.6 + 0.2 / 31, abs=0.04)
    assert np.mean(is_kept) == pytest.approx(0.2 + 0.2 / 31, abs=0.04)
    changed = np.sum(x["token_ids"] != original)
    assert changed == np.sum(masked != labels[filled])


@pytest.mark.any_backend("tensorflow")
def test_in_tf_data():
    """Single texts; pairs are in the tests of all preprocessors."""
    tf = pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_text")
    preprocessor = ours()
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(len(TEXTS)).map(preprocessor)
    actual, direct = next(iter(dataset)), preprocessor(x=TEXTS)
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_array_equal(a.numpy(), to_numpy(b)), actual, direct
    )
    # As KerasHub's: positions are int64 in tf.data, int32 elsewhere.
    assert {name: value.dtype.name for name, value in actual[0].items()} == {
        "token_ids": "int32",
        "segment_ids": "int32",
        "padding_mask": "bool",
        "mask_positions": "int64",
    }
    assert [part.dtype.name for part in actual[1:]] == ["int32", "float32"]


@pytest.mark.parametrize("pairs", [False, True])
def test_in_grain(pairs):
    grain = pytest.importorskip("grain")
    x = PAIRS if pairs else TEXTS
    elements = list(zip(*PAIRS, strict=True)) if pairs else TEXTS

    def outputs(preprocessor):
        def call(element):
            return preprocessor(x=element)

        # Built here: grain's threads would race to build it (KerasHub 0.32).
        call(elements[0])
        return list(grain.MapDataset.source(elements).map(call))

    actual, expected = outputs(ours()), outputs(theirs())
    assert len(actual) == len(elements)
    for one, other in zip(actual, expected, strict=True):
        assert_same_structure(one, other)
        assert all(type(leaf) is np.ndarray for leaf in keras.tree.flatten(one))
    for name, value in ours()(x=x)[0].items():
        np.testing.assert_array_equal(np.stack([one[0][name] for one in actual]), to_numpy(value))


def test_every_argument_survives_the_configuration():
    not_default = {
        "sequence_length": 19,
        "truncate": "waterfall",
        "mask_selection_rate": 0.3,
        "mask_selection_length": 7,
        "mask_token_rate": 0.5,
        "random_token_rate": 0.2,
    }
    known = set(inspect.signature(keras_hub.models.MaskedLMPreprocessor).parameters)
    assert set(not_default) == known - {"tokenizer", "kwargs"}
    tokenizer = DietBertTokenizer(VOCABULARY, lowercase=True, split_on_cjk=False)
    preprocessor = DietBertMaskedLMPreprocessor(tokenizer, **not_default, name="masks")
    config = json.loads(json.dumps(preprocessor.get_config()))
    copy = DietBertMaskedLMPreprocessor.from_config(config)
    assert copy.name == "masks"
    for name, value in not_default.items():
        assert getattr(copy, name) == getattr(preprocessor, name) == value
    assert type(copy.tokenizer) is DietBertTokenizer
    assert copy.tokenizer.get_config() == tokenizer.get_config()
    assert copy.backbone_cls is DietBertBackbone
    assert copy.tokenizer_cls is DietBertTokenizer
