"""What the tests of the position cache share: a small model and an equal one without a cache."""

import keras

from keras_diet.layers import DietEncoder, cache_positions
from tests.helpers import assert_close, randomize

BATCH, LENGTH, HIDDEN, NUM_HEADS = 3, 5, 6, 2


def make_model(rng, num_layers=1, **kwargs):
    """A compiled model around an encoder, its position parameters large enough to matter."""
    encoder = DietEncoder(
        num_layers, NUM_HEADS, 3, **{"max_sequence_length": 7, "name": "encoder", **kwargs}
    )
    inputs = keras.Input((LENGTH, HIDDEN))
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(encoder(inputs)))
    compile_model(model)
    return randomize(model, rng, scale=0.6)


def compile_model(model):
    """TensorFlow's XLA, which `test_diet_encoder_behaviour.py` tests, takes long to compile."""
    jit_compile = keras.backend.backend() == "jax"
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)


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
    """A model whose scores are cached."""
    model = make_model(rng, **kwargs)
    cache_positions(model)
    assert is_cached(model)
    return model


def assert_up_to_date(model, x):
    """Assert that the model returns what an equal model returns that was never cached."""
    twin = keras.Model.from_config(model.get_config())
    twin.set_weights(model.get_weights())
    expected = twin(x)
    assert_close(model(x), expected, 1e-6)
    # A compiled program rounds differently.
    assert_close(predict(model, x), expected, 1e-5)


def position_weights(model):
    return [weight for bias in position_biases(model) for weight in bias.weights]
