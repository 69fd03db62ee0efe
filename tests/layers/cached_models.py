"""What the tests of the position cache share: a small model and an equal one without a cache."""

import keras
import numpy as np

from keras_diet.layers import DietEncoder, cache_positions
from tests.helpers import assert_close, randomize

BATCH, LENGTH, HIDDEN, NUM_LAYERS, NUM_HEADS = 3, 5, 6, 2, 2


def make_model(rng, **kwargs):
    """A compiled model around an encoder, its position parameters large enough to matter."""
    encoder = DietEncoder(
        NUM_LAYERS, NUM_HEADS, 3, **{"max_sequence_length": 7, "name": "encoder", **kwargs}
    )
    inputs = keras.Input((LENGTH, HIDDEN))
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(encoder(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return randomize(model, rng, scale=0.6)


def make_data(rng):
    """Inputs and targets, for three steps of training."""
    x = rng.normal(size=(3 * BATCH, LENGTH, HIDDEN)).astype("float32")
    return x, rng.normal(size=(3 * BATCH, LENGTH, 2)).astype("float32")


def predict(model, x):
    return model.predict(x, batch_size=BATCH, verbose=0)


def position_biases(model):
    return model.get_layer("encoder").position_biases


def is_cached(model):
    """Whether all biases of the model are cached; a model must not be cached by halves."""
    (cached,) = {bias.has_cached_scores for bias in position_biases(model)}
    return cached


def make_cached_model(rng, **kwargs):
    """A model whose `predict` was compiled before its scores were cached."""
    model = make_model(rng, **kwargs)
    predict(model, make_data(rng)[0])
    cache_positions(model)
    assert is_cached(model)
    return model


def assert_up_to_date(model, x):
    """Assert that the model predicts what an equal model predicts that was never cached."""
    twin = keras.Model.from_config(model.get_config())
    twin.set_weights(model.get_weights())
    expected = predict(twin, x)
    assert_close(predict(model, x), expected, 1e-6)
    assert_close(model(x), expected, 1e-6)


def position_weights(model):
    return [weight for bias in position_biases(model) for weight in bias.weights]


def has_changed(before, after):
    return all(np.abs(a - b).max() > 1e-4 for a, b in zip(before, after, strict=True))
