"""Batches that are padded to a bucket."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier
from tests.helpers import once, to_numpy
from tests.models.tasks import TASKS, tiny_preprocessor, tiny_task
from tests.models.tiny import randomize_weights

# In batches of 2: lengths 4, 4, 7, 13 with [CLS] and [SEP], where the longest length is 13.
TEXTS = ["the fox", "the", "a", "the fox", "the red fox sleep .", "a", "the fox and " * 4]
SIZES = [5, 5, 8, 13]
BUCKETS = (5, 8)


class Unsized:
    """A re-iterable object without a length."""

    def __init__(self, elements):
        self.elements = elements

    def __iter__(self):
        return iter(self.elements)


def bucketed(task, **arguments):
    return tiny_preprocessor(task, length_buckets=BUCKETS, **arguments)


@pytest.mark.parametrize("task", TASKS)
def test_lengths(task):
    preprocessor, fixed = bucketed(task), tiny_preprocessor(task)
    for start, size in zip(range(0, 7, 2), SIZES, strict=True):
        texts = TEXTS[start : start + 2]
        inputs, full = preprocessor(texts), fixed(texts)
        if task == "masked_lm":
            inputs, full = inputs[0], full[0]
            assert inputs["mask_positions"].shape == (len(texts), 5)
        for name in ("token_ids", "segment_ids", "padding_mask"):
            assert inputs[name].shape == (len(texts), size)
        np.testing.assert_array_equal(inputs["padding_mask"], full["padding_mask"][:, :size])
        if task != "masked_lm":
            np.testing.assert_array_equal(inputs["token_ids"], full["token_ids"][:, :size])


@pytest.mark.any_backend
def test_a_bucket_may_be_full():
    # Three words, [CLS] and [SEP] fill the first bucket.
    assert bucketed("classifier")(["the red fox"])["token_ids"].shape == (1, 5)
    assert bucketed("classifier")(["the red fox ."])["token_ids"].shape == (1, 8)
    assert bucketed("classifier")("the red fox .")["token_ids"].shape == (8,)
    seconds = bucketed("classifier")((["the fox"], ["the red"]))["segment_ids"]
    assert to_numpy(seconds).tolist() == [[0, 0, 0, 0, 1, 1, 1, 0]]


def test_outputs_do_not_change():
    model = tiny_task("classifier")
    expected = model.predict(TEXTS, batch_size=2, verbose=0)
    model.preprocessor = bucketed("classifier")
    np.testing.assert_allclose(model.predict(TEXTS, batch_size=2, verbose=0), expected, 1e-5, 1e-6)


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("task", ["masked_lm", *once("classifier")])
def test_compiled_training(task):
    model = tiny_task(task)
    model.preprocessor = bucketed(task)
    labels = {"y": np.arange(7) % 7} if task == "classifier" else {}
    history = model.fit(TEXTS, **labels, batch_size=2, epochs=2, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert history.params["steps"] == 4


class InOrder(keras.utils.PyDataset):
    """The texts in batches of 2."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.starts = [0, 2, 4, 6]
        self.read, self.ended = [], 0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        start = self.starts[index]
        self.read.append(start)
        return TEXTS[start : start + 2], np.arange(7)[start : start + 2]


class Reversed(InOrder):
    """Batches in the reverse order after each epoch."""

    def on_epoch_end(self):
        self.starts = self.starts[::-1]
        self.ended += 1


def elements():
    """Batches in which the first two have the same length, and the next ones other lengths."""
    return [(TEXTS[i : i + 2], np.arange(7)[i : i + 2]) for i in range(0, 7, 2)]


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("make", [InOrder, lambda: iter(elements()), lambda: Unsized(elements())])
def test_datasets(make):
    model = randomize_weights(tiny_task("classifier"))
    expected = model.predict(TEXTS, batch_size=2, verbose=0)
    model.preprocessor = bucketed("classifier")
    np.testing.assert_allclose(model.predict(make(), verbose=0), expected, 1e-3, 1e-3)
    assert np.isfinite(model.fit(make(), verbose=0).history["loss"]).all()


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize("workers", [1, 3])
def test_a_py_dataset_keeps_its_settings(workers, recwarn):
    keras.utils.set_random_seed(2)
    model = tiny_task("classifier")
    model.preprocessor = bucketed("classifier")
    dataset = Reversed(workers=workers)
    model.fit(dataset, epochs=3, verbose=0)
    assert not [warning for warning in recwarn if "shuffle" in str(warning.message)]
    # Keras may end an epoch before the first one.
    assert dataset.ended in (3, 4)
    if workers == 1:
        epochs = [dataset.read[i : i + 4] for i in range(len(dataset.read) - 12, 12, 4)]
        assert all(sorted(epoch) == [0, 2, 4, 6] for epoch in epochs)
        assert not all(epoch in ([0, 2, 4, 6], [6, 4, 2, 0]) for epoch in epochs)


def test_labels_keep_their_shape():
    # One-hot labels of as many classes as a batch has tokens.
    model = tiny_task("classifier")
    model.preprocessor = bucketed("classifier")
    model.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    one_hot = np.eye(7, dtype="float32")[[3, 0, 6, 1, 2, 4, 5]]
    results = model.evaluate(TEXTS, one_hot, batch_size=2, verbose=0, return_dict=True)
    model.preprocessor = tiny_preprocessor("classifier")
    expected = model.evaluate(TEXTS, one_hot, batch_size=2, verbose=0, return_dict=True)
    assert results == pytest.approx(expected, rel=1e-5)


def test_tf_data():
    tf = pytest.importorskip("tensorflow")
    preprocessor = bucketed("classifier")
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(2).map(preprocessor)
    assert [batch["token_ids"].shape[1] for batch in dataset] == SIZES
    full = tf.data.Dataset.from_tensors(["the red fox"]).map(preprocessor)
    assert [batch["token_ids"].shape[1] for batch in full] == [5]


@pytest.mark.any_backend
def test_config():
    preprocessor = bucketed("embedder")
    restored = type(preprocessor).from_config(preprocessor.get_config())
    assert restored.length_buckets == BUCKETS
    assert tiny_preprocessor("embedder").get_config()["length_buckets"] is None


@pytest.mark.any_backend
def test_presets(tmp_path):
    model = tiny_task("classifier")
    model.preprocessor = bucketed("classifier")
    model.save_to_preset(tmp_path / "preset")
    loaded = DietBertTextClassifier.from_preset(tmp_path / "preset")
    assert loaded.preprocessor.length_buckets == BUCKETS
    assert loaded.preprocessor(TEXTS[:1])["token_ids"].shape == (1, 5)


@pytest.mark.any_backend
@pytest.mark.parametrize("buckets", [(8, 5), (5, 5), (2, 8), (5, 14), (0, 5), (5.5, 8), (-3,)])
def test_buckets_are_checked(buckets):
    with pytest.raises(ValueError, match="length_buckets"):
        tiny_preprocessor("classifier", length_buckets=buckets)(TEXTS)
