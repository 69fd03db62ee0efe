"""What `fit`, `evaluate` and `predict` of a task do with their arguments and compiled steps."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close
from tests.models.hub.toy import ToyBackbone, ToyTask, toy_inputs, toy_labels
from tests.models.tiny import randomize_weights

pytestmark = pytest.mark.any_backend


@pytest.fixture
def task():
    return randomize_weights(ToyTask(ToyBackbone()))


@pytest.mark.any_backend("tensorflow")
@pytest.mark.parametrize("backbone", [None, "backbone"])
def test_other_backbones_are_refused(backbone):
    with pytest.raises(ValueError, match="`backbone` must be a `ToyBackbone`"):
        ToyTask(backbone)


def test_sizes_of_batches(rng, task):
    inputs, labels = toy_inputs(rng), toy_labels(rng)
    batches = []
    counter = keras.callbacks.LambdaCallback()
    for name in ("on_train_batch_end", "on_test_batch_end", "on_predict_batch_end"):
        setattr(counter, name, lambda batch, logs=None: batches.append(batch))
    arguments = {"batch_size": 2, "verbose": 0, "callbacks": [counter]}
    for call in (
        lambda: task.fit(inputs, labels, **arguments),
        lambda: task.evaluate(inputs, labels, **arguments),
        lambda: task.predict(inputs, **arguments),
    ):
        batches.clear()
        call()
        assert batches == [0, 1, 2]


def test_weights_of_validation_data(rng, task):
    inputs, labels = toy_inputs(rng), toy_labels(rng)
    weights = dict.fromkeys(labels, np.array([0.0, 3.0, 0.5, 0.0, 1.0]))
    data = (inputs, labels, weights)
    # Nothing is learned in the step, so that validation is like evaluation.
    task.compile(keras.optimizers.SGD(0.0))
    history = task.fit(inputs, labels, validation_data=data, verbose=0).history
    expected = task.evaluate(inputs, labels, sample_weight=weights, return_dict=True, verbose=0)
    assert history["val_loss"][0] == pytest.approx(expected["loss"], rel=1e-5)
    assert history["val_loss"][0] != pytest.approx(history["loss"][0], rel=1e-2)


@pytest.mark.usefixtures("compiled_steps")
def test_all_compiled_steps_use_adapters(rng, task):
    inputs, labels = toy_inputs(rng), toy_labels(rng)
    backbone = task.backbone
    name = "encoder_sequence_output"
    before = backbone.predict(inputs, verbose=0)[name]
    loss_before = task.evaluate(inputs, labels, verbose=0)
    backbone.enable_lora(rank=2)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    after = backbone.predict(inputs, verbose=0)[name]
    loss = task.evaluate(inputs, labels, verbose=0)
    assert np.abs(after - before).max() > 1e-4
    # Eager calls compile nothing.
    assert_close(after, backbone(inputs)[name], 1e-5)
    task.compile(run_eagerly=True)
    assert loss == pytest.approx(task.evaluate(inputs, labels, verbose=0), rel=1e-5)
    assert loss != pytest.approx(loss_before, rel=1e-5)
