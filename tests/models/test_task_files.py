"""`.keras` files and configurations of tasks: the optimizer, and what is frozen, are in them."""

import json

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy
from tests.models.tasks import CLASSES, TASKS, random_data, tiny_preprocessor, tiny_task
from tests.models.tiny import randomize_weights

every_task = pytest.mark.parametrize("task", TASKS)


@pytest.mark.parametrize(
    "task",
    ["masked_lm", *(pytest.param(task, marks=pytest.mark.any_backend) for task in TASKS[1:])],
)
def test_training_goes_on_from_keras_files(rng, tmp_path, task):
    cls, _, head = CLASSES[task]
    without_dropout = {"dropout": 0.0} if task == "classifier" else {}
    backbone, preprocessor = tiny_task(task).backbone, tiny_preprocessor(task)
    model = cls(backbone, preprocessor=preprocessor, **head, **without_dropout)
    randomize_weights(model)
    loss = {"loss": "mse"} if task == "embedder" else {}
    model.compile(keras.optimizers.AdamW(0.01), **loss)
    model.preprocessor = None
    inputs, labels, weights = random_data(task, rng)
    model.fit(inputs, labels, sample_weight=weights, verbose=0)
    model.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")

    assert type(loaded.optimizer) is type(model.optimizer)
    assert type(loaded.loss) is type(model.loss)
    assert len(loaded.optimizer.variables) == len(model.optimizer.variables)
    for one, other in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    for each in (model, loaded):
        each.fit(inputs, labels, sample_weight=weights, shuffle=False, verbose=0)
        assert int(each.optimizer.iterations) == 2
    for one, other in zip(loaded.weights, model.weights, strict=True):
        assert_close(one, other, 1e-6)


@pytest.mark.any_backend
@every_task
def test_frozen_tasks_stay_frozen(tmp_path, task):
    cls, _, head = CLASSES[task]
    frozen = cls(tiny_task(task).backbone, trainable=False, **head)
    assert cls.from_config(json.loads(json.dumps(frozen.get_config()))).trainable_weights == []
    frozen.save(tmp_path / "task.keras")
    assert keras.saving.load_model(tmp_path / "task.keras").trainable_weights == []


@pytest.mark.any_backend
@every_task
def test_frozen_backbones_stay_frozen_in_trained_tasks(task):
    model = tiny_task(task)
    model.backbone.trainable = False
    copy = CLASSES[task][0].from_config(model.get_config())
    assert copy.backbone.trainable_weights == []
    assert len(copy.trainable_weights) == len(model.trainable_weights)


@pytest.mark.any_backend
@pytest.mark.parametrize("optimizer", ["adam", keras.optimizers.SGD(0.3)])
def test_compiled_tasks_can_be_cloned(optimizer):
    """Keras gives the copy, a functional model, the compile configuration of the task."""
    task = tiny_task("classifier", with_preprocessor=False)
    task.compile(optimizer, loss="mse")
    copy = keras.models.clone_model(task)
    assert type(copy.optimizer) is type(task.optimizer)
    assert float(copy.optimizer.learning_rate) == float(task.optimizer.learning_rate)
    assert copy.output_shape == task.output_shape
