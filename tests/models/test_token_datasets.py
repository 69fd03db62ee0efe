"""Datasets of token ids: those of backbones, and of tasks without a preprocessor."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertTextClassifier
from tests.helpers import to_numpy
from tests.models.tasks import tiny_task
from tests.models.tiny import random_inputs, tiny_backbone

INPUTS = random_inputs(np.random.default_rng(3), batch_size=5, length=7)
LABELS = np.array([6, 2, 0, 3, 1])


class Batches(keras.utils.PyDataset):
    """Batches of 2 examples."""

    def __init__(self, data):
        super().__init__()
        self.data = data

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(2 * index, 2 * index + 2)
        return keras.tree.map_structure(lambda values: values[rows], self.data)


class Unsized:
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(Batches(self.data))


def tf_data(data):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(data).batch(2)


KINDS = pytest.mark.parametrize("make", [Batches, Unsized, tf_data])


def with_id(name, value):
    return {**INPUTS, name: np.where(np.arange(7) == 4, value, INPUTS[name])}


# Inputs, and part of the message.
WRONG = {
    "id": (with_id("token_ids", 99), r"token_ids.*must hold integers in \[0, vocabulary_size\)"),
    "negative": (with_id("segment_ids", -1), r"integers in \[0, num_segments\) = \[0, 2\)"),
    "fraction": (with_id("token_ids", 4.5), "token_ids.*must hold integers"),
    "mask": (with_id("padding_mask", 2), "1 for tokens and 0 for padding"),
    "key": ({**INPUTS, "position_ids": INPUTS["token_ids"]}, "unknown: 'position_ids'"),
}
CASES = pytest.mark.parametrize("inputs, message", WRONG.values(), ids=list(WRONG))


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone(num_layers=1)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@KINDS
def test_backbone(backbone, make):
    expected = to_numpy(backbone(INPUTS)["sequence_output"])
    for data in (make(INPUTS), make((INPUTS, np.full(5, np.nan)))):
        outputs = backbone.predict(data, verbose=0)["sequence_output"]
        np.testing.assert_allclose(outputs, expected, 1e-4, 1e-5)


@KINDS
@CASES
def test_wrong_batches_of_a_backbone(backbone, make, inputs, message):
    before = to_numpy(backbone(INPUTS)["pooled_output"])
    with pytest.raises(Exception, match=message):
        backbone.predict(make(inputs), verbose=0)
    np.testing.assert_array_equal(to_numpy(backbone(INPUTS)["pooled_output"]), before)


@KINDS
@CASES
def test_wrong_batches_of_a_task(make, inputs, message):
    task = tiny_task("classifier", with_preprocessor=False)
    for call, data in ((task.predict, (inputs,)), (task.fit, (inputs, LABELS))):
        with pytest.raises(Exception, match=message):
            call(make(data), verbose=0)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@KINDS
def test_right_batches_of_a_task(make):
    task = tiny_task("classifier", with_preprocessor=False)
    expected = task.evaluate(INPUTS, LABELS, verbose=0)
    for kind in ("int64", "float32", "uint8", "bool"):
        changed = {name: array.astype("int64") for name, array in INPUTS.items()}
        changed["padding_mask"] = changed["padding_mask"].astype(kind)
        results = task.evaluate(make((changed, LABELS)), verbose=0)
        assert results == pytest.approx(expected, rel=1e-4)


@pytest.mark.any_backend
def test_fit_of_a_backbone():
    model = tiny_backbone(num_layers=1)
    model.compile("sgd", loss={"sequence_output": None, "pooled_output": "mse"})
    y = {"pooled_output": np.zeros((5, 15), "float32")}
    history = model.fit(
        INPUTS, y, batch_size=2, epochs=2, validation_data=Batches((INPUTS, y)), verbose=0
    )
    assert np.isfinite(history.history["val_loss"]).all()
    assert history.params["steps"] == 3
    with pytest.raises(ValueError, match=r"5 in `x`, 3 in `y`"):
        model.fit(INPUTS, {"pooled_output": np.zeros((3, 15))})
    with pytest.raises(ValueError, match=r"'sequence_output', 'pooled_output'.*the keys 'pooled'"):
        model.train_on_batch(INPUTS, {"pooled": np.zeros((5, 15))})
    before = model.test_on_batch(INPUTS, y)
    model.train_on_batch(INPUTS, y)
    assert model.test_on_batch(INPUTS, y) != before
    assert model.predict_on_batch(INPUTS)["pooled_output"].shape == (5, 15)


@pytest.mark.any_backend
def test_functions_as_preprocessors(tmp_path):
    def first_rows(x, y=None, sample_weight=None):
        return keras.utils.pack_x_y_sample_weight(
            {name: array[np.asarray(x)] for name, array in INPUTS.items()}, y, sample_weight
        )

    plain = tiny_task("classifier", with_preprocessor=False)
    task = DietBertTextClassifier(plain.backbone, 7)
    task.set_weights(plain.get_weights())
    task.preprocessor = first_rows
    expected = plain.predict(INPUTS, verbose=0)
    np.testing.assert_allclose(task.predict(np.arange(5), verbose=0), expected, 1e-5)
    task.fit([0, 3], [1, 2], verbose=0)
    message = "must be a preprocessor or `None` to save or rebuild a task. Received: function"
    with pytest.raises(ValueError, match=message):
        task.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset").exists()
    with pytest.raises(ValueError, match=message):
        task.with_cached_positions()


@pytest.mark.any_backend
def test_multi_label_is_a_bool(backbone):
    model = DietBertTextClassifier(backbone, 3, multi_label=1)
    assert model.get_config()["multi_label"] is True
