"""Batches that are padded to a bucket."""

import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier
from tests.helpers import once, to_numpy
from tests.models.tasks import TASKS, tiny_preprocessor, tiny_task

# In batches of 2: lengths 4, 4, 7, 13 with [CLS] and [SEP], where the longest length is 13.
TEXTS = ["the fox", "the", "a", "the fox", "the red fox sleep .", "a", "the fox and " * 4]
SIZES = [5, 5, 8, 13]
BUCKETS = (5, 8)


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
