"""Copies of a model that train in one program do the same as trainings one after another."""

import keras
import numpy as np
import pytest

from examples.paper.copies import Copies

pytestmark = pytest.mark.any_backend("jax")
SEEDS = (3, 5, 8)
# Two sets of batches for three copies.
DATA = (1, 0, 1)


def make_model(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, "tanh")])
    model.add(keras.layers.BatchNormalization(moving_mean_initializer="random_normal"))
    model.add(keras.layers.Dense(3))
    schedule = keras.optimizers.schedules.PolynomialDecay(0.1, 9, 0.01)
    model.compile(
        keras.optimizers.AdamW(schedule, weight_decay=0.02),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def make_batches(steps, seed):
    """Inputs, labels and sample weights for two sets of batches of 5 examples."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(steps, 2, 5, 4)).astype("float32")
    labels = rng.integers(3, size=(steps, 2, 5))
    return inputs, labels, rng.uniform(0.5, 1.5, size=labels.shape).astype("float32")


def test_copies_train_like_separate_models():
    batches, held_out = make_batches(7, seed=0), make_batches(3, seed=1)
    copies = Copies(make_model(0), [each[0, 0] for each in batches])
    for seed, data in zip(SEEDS, DATA, strict=True):
        copies.add(make_model(seed), data)
    copies.start()
    # Optimizers continue between two calls, metrics do not.
    copies.fit([each[:4] for each in batches])
    copies.fit([each[4:] for each in batches])
    found = copies.evaluate(held_out)
    outputs = copies.predict(held_out[0][:, 0])
    assert outputs.shape == (3, 15, 3)
    for index, (seed, data) in enumerate(zip(SEEDS, DATA, strict=True)):
        model = make_model(seed)
        for batch in zip(*(each[:, data] for each in batches), strict=True):
            model.train_on_batch(*batch)
        got = [found[name][index] for name in ("loss", "accuracy")]
        np.testing.assert_allclose(got, evaluate(model, held_out, data), rtol=1e-4)
        flat = held_out[0][:, 0].reshape(15, 4)
        np.testing.assert_allclose(outputs[index], model.predict(flat, verbose=0), atol=1e-5)
        other = make_model(9)
        copies.assign(index, other)
        for variable, expected in zip(other.weights, model.weights, strict=True):
            np.testing.assert_allclose(variable, expected, atol=1e-5)


def evaluate(model, held_out, data):
    inputs, labels, weights = (each[:, data].reshape(15, *each.shape[3:]) for each in held_out)
    return model.evaluate(inputs, labels, sample_weight=weights, batch_size=5, verbose=0)
