"""The steps of optimizers for rows of tables that a batch has several times.

Keras on TensorFlow lists a row as often as it occurs, and optimizers square the parts of its sum.
The first step of Adam has the size of the learning rate, whatever the gradient is.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import layers
from keras_diet.models import DietBertTextClassifier
from tests.helpers import assert_close, gradients, to_numpy
from tests.models.tiny import random_inputs, tiny_backbone

pytestmark = pytest.mark.any_backend("tensorflow")
RATE = 0.1
SIZES = {"num_layers": 1, "num_heads": 2, "intermediate_dim": 6, "max_sequence_length": 13}
LAYERS = {
    "shaw": {"position_encoding": "shaw", "max_distance": 2, "segment_encoding": "none"},
    # Positions of documents, of which several are 0.
    "input": {"position_encoding": "input", "segment_encoding": "input"},
}


def assert_tables_move_by_the_rate(model, inputs, loss, train, number):
    """Assert that a step of Adam moves each number of `number` tables that has a gradient."""
    weights = model.trainable_weights
    before = list(map(to_numpy, weights))
    slopes = gradients(lambda: loss(model(inputs)), weights)
    train()
    found = 0
    for weight, old, slope in zip(weights, before, slopes, strict=True):
        if "embedding" in weight.path and "norm" not in weight.path:
            has_slope = np.abs(slope) > 1e-3
            assert has_slope.sum() > 3, weight.path
            moved = np.abs(to_numpy(weight) - old)[has_slope]
            np.testing.assert_allclose(moved, RATE, rtol=2e-3, err_msg=weight.path)
            found += 1
    assert found == number


@pytest.mark.parametrize("name", LAYERS)
def test_tables_of_layers_in_a_model_of_a_user(rng, name):
    inputs = {"x": keras.Input((13, 4), name="x")}
    data = {"x": rng.normal(size=(3, 13, 4)).astype("float32")}
    if name == "input":
        ids = {"segment_ids": [0, 1, 1, 1, 0, 0, 1] + [0] * 6}
        ids["document_ids"] = [1] * 6 + [2] * 3 + [3] * 4
        inputs |= {key: keras.Input((13,), dtype="int32", name=key) for key in ids}
        data |= {key: np.array([values] * 3) for key, values in ids.items()}
    encoder = layers.DietEncoder(**SIZES, **LAYERS[name], dropout=0.0)
    others = {key: tensor for key, tensor in inputs.items() if key != "x"}
    model = keras.Model(inputs, encoder(inputs["x"], **others))
    for weight in model.weights:
        weight.assign(rng.normal(scale=0.5, size=weight.shape))
    factors = ops.convert_to_tensor(rng.normal(size=(3, 13, 4)).astype("float32"))

    def loss(outputs):
        return ops.sum(outputs * factors)

    optimizer = keras.optimizers.Adam(RATE, epsilon=1e-12)
    model.compile(optimizer, lambda _, outputs: loss(outputs), run_eagerly=True)
    assert_tables_move_by_the_rate(
        model,
        {key: ops.convert_to_tensor(array) for key, array in data.items()},
        loss,
        lambda: model.train_on_batch(data, np.zeros((3, 1))),
        number=2,
    )


def make_task():
    backbone = tiny_backbone(num_layers=1, position_encoding="input", segment_encoding="input")
    return DietBertTextClassifier(backbone, num_classes=3, dropout=0.0)


def make_data(rng):
    """A few tokens, which come again and again, and labels."""
    inputs = random_inputs(rng, batch_size=4, length=9)
    inputs["token_ids"] %= 5
    return inputs, np.array([0, 2, 1, 2])


def test_tokens_positions_and_segments_of_a_task(rng):
    """For a table of ones and the sum of its rows 1, 1 and 2, Keras's Adam(0.1) finds 0.8586."""
    task = make_task()
    for weight in task.weights:
        weight.assign(rng.normal(scale=0.5, size=weight.shape))
    of_labels = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    task.compile(keras.optimizers.Adam(RATE, epsilon=1e-12), of_labels, run_eagerly=True)
    inputs, labels = make_data(rng)
    assert_tables_move_by_the_rate(
        task,
        inputs,
        lambda logits: of_labels(labels, logits),
        lambda: task.train_on_batch(inputs, labels),
        number=3,
    )


OPTIMIZERS = {
    "accumulated": lambda: keras.optimizers.Adam(RATE, gradient_accumulation_steps=2),
    "clipped by norm": lambda: keras.optimizers.Adam(RATE, clipnorm=0.01, epsilon=0.1),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(RATE)),
    "adagrad": lambda: keras.optimizers.Adagrad(RATE),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_gets_the_sum_of_a_row(rng, name):
    """As Keras's optimizer alone, which gets whole gradients."""
    task, other = make_task(), make_task()
    other.set_weights(task.get_weights())
    task.compile(OPTIMIZERS[name](), run_eagerly=True)
    optimizer, weights = OPTIMIZERS[name](), other.trainable_weights
    optimizer.build(weights)
    inputs, labels = make_data(rng)
    for _ in range(4):
        task.train_on_batch(inputs, labels)
        slopes = gradients(
            lambda: optimizer.scale_loss(other.compute_loss(inputs, labels, other(inputs))),
            weights,
        )
        optimizer.apply(list(map(ops.convert_to_tensor, slopes)), weights)
    for weight, expected in zip(task.weights, other.weights, strict=True):
        assert_close(weight, expected, 1e-4)
