"""What the gate makes of lists, columns, arrays and tensors."""

import collections

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier
from keras_diet.models.hub.gate import checked_data, checked_element
from keras_diet.models.hub.host_data import as_arrays
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import TEXTS, random_inputs, tiny_backbone

LABELS = [6, 2, 0, 3, 1]


class Column(collections.abc.Sequence):
    """A column of a dataset of Hugging Face: neither a list nor an array."""

    def __init__(self, values):
        self.values = values

    def __getitem__(self, index):
        return self.values[index]

    def __len__(self):
        return len(self.values)


class PyDataset(keras.utils.PyDataset):
    def __init__(self, *batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


@pytest.fixture(scope="module")
def classifier():
    return tiny_task("classifier")


@pytest.mark.any_backend
def test_bytes_are_utf_8(classifier):
    texts = ["très bon", "a fox", "日本"]
    encoded = [text.encode() for text in texts]
    for x in (encoded, np.array(encoded), np.array(encoded, dtype=object), Column(encoded)):
        assert checked_data(classifier, x, needs_labels=False)[0] == texts
        assert checked_element(classifier, (x,), needs_labels=False)[0] == texts


@pytest.mark.any_backend
def test_large_integers_keep_their_values(classifier):
    regression = DietBertTextClassifier(
        tiny_backbone(num_layers=1), 1, preprocessor=classifier.preprocessor
    )
    _, y, _ = checked_data(regression, TEXTS[:2], [3_000_000_000, 5])
    assert y.tolist() == [3_000_000_000, 5]
    _, y, weights = checked_data(regression, TEXTS[:2], [7, 5], [0.5, 2.0])
    assert (y.dtype, weights.dtype) == ("int32", "float32")


@pytest.mark.any_backend
def test_only_numbers_of_python_get_the_default_precision():
    data = {
        "floats": [0.1, 2.5],
        "integers": [7, 5],
        "precise": np.array([0.1, 2.5]),
        "long": np.array([7, 5], "int64"),
    }
    dtypes = {name: str(array.dtype) for name, array in as_arrays(data).items()}
    assert dtypes == {
        "floats": "float32",
        "integers": "int32",
        "precise": "float64",
        "long": "int64",
    }


@pytest.mark.parametrize("kind", [list, Column, collections.deque])
def test_lists_and_columns_in_datasets(classifier, kind):
    expected = classifier.evaluate(TEXTS, np.array(LABELS), verbose=0)
    for x in (kind(TEXTS), np.array(TEXTS)):
        for data in (PyDataset((x, kind(LABELS))), iter([(x, kind(LABELS))])):
            assert classifier.evaluate(data, verbose=0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", [Column, collections.deque])
def test_columns(classifier, kind):
    outputs = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(classifier.predict(kind(TEXTS), verbose=0), outputs, 1e-5)
    pairs = classifier.predict((TEXTS, TEXTS[::-1]), verbose=0)
    columns = (kind(TEXTS), kind(TEXTS[::-1]))
    np.testing.assert_allclose(classifier.predict(columns, verbose=0), pairs, 1e-5)
    expected = classifier.evaluate(TEXTS, LABELS, sample_weight=[1, 2, 3, 4, 5], verbose=0)
    results = classifier.evaluate(
        kind(TEXTS), kind(LABELS), sample_weight=kind([1, 2, 3, 4, 5]), verbose=0
    )
    assert results == pytest.approx(expected, rel=1e-5)
    ids = classifier.preprocessor(kind(TEXTS))["token_ids"]
    np.testing.assert_array_equal(ids, classifier.preprocessor(TEXTS)["token_ids"])


@pytest.mark.any_backend
def test_columns_are_checked(classifier):
    with pytest.raises(ValueError, match="None in row 1"):
        classifier.predict(Column([TEXTS[0], None]))
    with pytest.raises(ValueError, match="labels from 0 to 7"):
        classifier.fit(Column(TEXTS), Column([0, 1, 2, 7, 3]))
    with pytest.raises(ValueError, match="5 in `x`, 4 in `y`"):
        classifier.fit(Column(TEXTS), Column([0, 1, 2, 3]))


@pytest.mark.any_backend
def test_columns_of_names():
    names = ["bad", "good", "so so"]
    model = DietBertTextClassifier(
        tiny_backbone(num_layers=1),
        class_names=names,
        preprocessor=tiny_preprocessor("classifier"),
    )
    labels = ["good", "so so", "bad", "bad", "good"]
    _, y, _ = checked_data(model, Column(TEXTS), Column(labels))
    assert y.tolist() == [1, 2, 0, 0, 1]


def test_tensors_become_arrays():
    model = tiny_task("classifier", with_preprocessor=False)
    inputs = random_inputs(np.random.default_rng(3), batch_size=5)
    tensors = {name: keras.ops.convert_to_tensor(value) for name, value in inputs.items()}
    x, y, _ = checked_data(model, tensors, keras.ops.convert_to_tensor(LABELS))
    assert all(type(value) is np.ndarray for value in (*x.values(), y))
    np.testing.assert_array_equal(x["token_ids"], inputs["token_ids"])
    assert y.tolist() == LABELS


def test_predict_does_not_read_labels(classifier):
    expected = classifier.predict(TEXTS, verbose=0)
    for y in (np.full(5, -1), ["no class"] * 5, np.full(5, np.nan), [0]):
        data = PyDataset((TEXTS, y))
        np.testing.assert_allclose(classifier.predict(data, verbose=0), expected, 1e-5)


@pytest.mark.any_backend("tensorflow")
def test_predict_does_not_read_labels_of_tf_data(classifier):
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.from_tensor_slices((TEXTS, np.full(5, -1))).batch(5)
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(classifier.predict(data, verbose=0), expected, 1e-5)


@pytest.mark.any_backend
def test_ids_of_several_classes_have_a_remedy():
    model = DietBertTextClassifier(
        tiny_backbone(num_layers=1),
        4,
        multi_label=True,
        preprocessor=tiny_preprocessor("classifier"),
    )
    for y in ([[0], [1, 2], [], [3], []], [[0], [1], [2], [3], [0]]):
        with pytest.raises(ValueError, match=r"Pass one row of 0 and 1 for each text"):
            model.fit(TEXTS, y)


@pytest.mark.any_backend
def test_one_text(classifier):
    with pytest.raises(ValueError, match=r"`x` must be a list of texts\. .*Put it into a list\.$"):
        classifier.fit("the fox", [1])
    with pytest.raises(ValueError, match=r"several texts\. .* call `batch` on the dataset"):
        classifier.predict(iter(TEXTS))


@pytest.mark.any_backend
def test_validation_texts():
    with pytest.raises(ValueError, match=r"`validation_data`.*into `\(x,\)`"):
        tiny_task("masked_lm").fit(TEXTS, validation_data=TEXTS)
