"""Arrays of token ids: checked once in each method, and datasets that go to Keras as they are."""

import keras
import numpy as np
import pytest

from tests.models.tasks import tiny_task
from tests.models.test_data import PyDataset, tf_data
from tests.models.tiny import TEXTS, random_inputs, tiny_backbone

any_backend = pytest.mark.any_backend
INPUTS = random_inputs(np.random.default_rng(3), batch_size=3, length=11)
LABELS = np.array([6, 2, 0])


def with_value(name, value):
    """The inputs, with another first value of an input."""
    array = INPUTS[name].astype(np.asarray(value).dtype)
    array[0, 0] = value
    return {**INPUTS, name: array}


WRONG = {
    "unknown key": ({**INPUTS, "position_ids": LABELS}, "no others.*'position_ids'"),
    "missing key": ({"token_ids": INPUTS["token_ids"]}, "keys .'token_ids', 'segment_ids', 'padd"),
    "texts": (TEXTS, "Received: list. For text, build the task with a preprocessor"),
    "negative id": (with_value("token_ids", -1), r"\[0, vocabulary_size\) = \[0, 31\).*from -1"),
    "id too large": (with_value("token_ids", 31), r"\[0, 31\).*to 31"),
    "id that wraps": (with_value("token_ids", np.int64(2**32 + 5)), "int64.*to 4294967301"),
    "fractional id": (with_value("token_ids", 4.5), r"`x\['token_ids'\]` must hold integers"),
    "NaN": (with_value("token_ids", np.nan), "values from nan"),
    "segment too large": (with_value("segment_ids", 2), r"segment_ids'\].*to 2"),
    "additive mask": (with_value("padding_mask", -1e9), "1 for tokens and 0 for padding"),
    "longer mask": ({**INPUTS, "padding_mask": np.ones((3, 12))}, r"other inputs.*shape=\(3, 12\)"),
    "no batch axis": ({name: x[0] for name, x in INPUTS.items()}, r"shape=\(11,\)"),
}


@any_backend
@pytest.mark.parametrize("x, message", WRONG.values(), ids=list(WRONG))
def test_refused_arrays(x, message):
    with pytest.raises(ValueError, match=message):
        tiny_backbone(num_layers=1).predict(x, verbose=0)


@any_backend
def test_each_method_checks_arrays():
    task, (x, message) = tiny_task("classifier", with_preprocessor=False), WRONG["id too large"]
    embedder = tiny_task("embedder", with_preprocessor=False)
    for call in (
        lambda: embedder.predict(x, verbose=0),
        lambda: task.predict(x, verbose=0),
        lambda: task.fit(x, LABELS, verbose=0),
        lambda: task.fit(INPUTS, LABELS, validation_data=(x, LABELS), verbose=0),
        lambda: task.evaluate(x, LABELS, verbose=0),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@any_backend
@pytest.mark.parametrize("name", ["unknown key", "id too large", "longer mask"])
def test_a_call_of_a_backbone_is_checked(name):
    backbone, (x, message) = tiny_backbone(num_layers=1), WRONG[name]
    for call in (backbone, lambda x: backbone(inputs=x)):
        with pytest.raises(ValueError, match=message):
            call(x)


@any_backend
def test_positions_of_masks_lie_in_the_sequence():
    model = tiny_task("masked_lm", with_preprocessor=False)
    positions = np.array([[0, 10], [3, 11], [1, 2]])
    with pytest.raises(ValueError, match=r"mask_positions.*\[0, length\) = \[0, 11\).*to 11"):
        model.predict({**INPUTS, "mask_positions": positions}, verbose=0)
    inputs = {**INPUTS, "mask_positions": np.minimum(positions, 10)}
    assert model.predict(inputs, verbose=0).shape == (3, 2, 31)
    with pytest.raises(ValueError, match="needs labels"):
        model.fit(inputs)
    with pytest.raises(ValueError, match=r"\[0, vocabulary_size\) = \[0, 31\)"):
        model.fit(inputs, np.full((3, 2), 31))


@any_backend
@pytest.mark.parametrize("make", [lambda *parts: PyDataset([parts]), tf_data])
def test_datasets_go_to_keras_as_they_are(make):
    model = tiny_task("classifier", with_preprocessor=False)
    expected = model.evaluate(INPUTS, LABELS, verbose=0)
    data = make(INPUTS, LABELS)
    assert model.evaluate(data, verbose=0) == pytest.approx(expected, rel=1e-5)
    arguments = {"validation_data": data, "class_weight": {6: 2.0}, "epochs": 2, "verbose": 0}
    assert len(model.fit(data, **arguments).history["val_loss"]) == 2
    split = model.fit(INPUTS, LABELS, validation_split=0.4, batch_size=1, verbose=0)
    assert (split.params["steps"], len(split.history["val_loss"])) == (1, 1)
    for kind in ("int64", "float32", "uint8", "bool"):
        changed = {**INPUTS, "padding_mask": INPUTS["padding_mask"].astype(kind)}
        model.evaluate(make(changed, LABELS), verbose=0)


def test_fit_of_a_backbone():
    model = tiny_backbone(num_layers=1)
    model.compile("sgd", loss={"sequence_output": None, "pooled_output": "mse"})
    y = {"pooled_output": np.zeros((3, 15), "float32")}
    losses = model.fit(INPUTS, y, epochs=4, validation_data=(INPUTS, y), verbose=0).history
    assert losses["loss"][-1] < losses["loss"][0]
    with pytest.raises(ValueError, match=r"'pooled_output'.*the keys ..pooled'"):
        model.fit(INPUTS, {"pooled": np.zeros((3, 15))})


@pytest.mark.usefixtures("compiled_steps")
def test_growing_sequences_are_refused():
    backbone = tiny_backbone(num_layers=1, position_encoding="input")
    too_long = ValueError
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # The third length makes Keras trace a graph for all of them.
        too_long = (ValueError, tf.errors.InvalidArgumentError)
    for length in (5, 6, 13, 14):
        inputs = dict.fromkeys(INPUTS, np.ones((2, length), "int32"))
        if length == 14:
            with pytest.raises(too_long, match=r"max_length|max_sequence_length|Slice"):
                backbone.predict(inputs, verbose=0)
        else:
            assert backbone.predict(inputs, verbose=0)["pooled_output"].shape == (2, 15)
