"""When the position cache must be dropped, and that nothing of it is left then."""

import keras
import numpy as np
import pytest

from keras_diet.layers import cache_positions, drop_cached_positions
from tests.helpers import assert_close, gradients, to_numpy, weighted_sum
from tests.layers.cached_models import (
    BATCH,
    LENGTH,
    assert_up_to_date,
    compile_model,
    is_cached,
    make_cached_model,
    make_data,
    make_model,
    position_biases,
    position_weights,
    predict,
)

ENCODINGS = [
    {"position_encoding": "diet_abs", "sharing": "layer-wise"},
    {"position_encoding": "diet_rel", "sharing": "none"},
]
encodings = pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda kw: "-".join(kw.values()))


def assert_not_shadowed(model):
    """Assert that `assign` of every position weight is the method of its class again."""
    for weight in position_weights(model):
        assert "assign" not in vars(weight)
        assert weight.assign.__func__ is type(weight).assign


def train(model, x, y):
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)


def train_on_batch(model, x, y):
    model.train_on_batch(x, y)


def set_weights(model, x, y):
    model.set_weights([weight + 0.5 for weight in model.get_weights()])


def set_encoder_weights(model, x, y):
    encoder = model.get_layer("encoder")
    encoder.set_weights([weight * 2.0 for weight in encoder.get_weights()])


def assign(model, x, y):
    for weight in position_weights(model):
        weight.assign(to_numpy(weight) + 0.5)


def assign_add(model, x, y):
    for weight in position_weights(model):
        weight.assign_add(np.full(weight.shape, 0.5))


CHANGES = [
    train,
    train_on_batch,
    set_weights,
    set_encoder_weights,
    assign,
    assign_add,
]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_drop_the_cache(rng, change):
    model = make_cached_model(rng)
    x, y = make_data(rng)
    before = predict(model, x)
    change(model, x, y)
    assert not is_cached(model)
    assert_not_shadowed(model)
    assert np.abs(predict(model, x) - before).max() > 1e-3
    assert_up_to_date(model, x)


@encodings
def test_training_after_caching_equals_training_without(rng, encoding):
    cached = make_model(rng, **encoding)
    plain = keras.Model.from_config(cached.get_config())
    compile_model(plain)
    plain.set_weights(cached.get_weights())
    x, y = make_data(rng)
    cache_positions(cached)
    for model in (cached, plain):
        model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    for weight, expected in zip(cached.get_weights(), plain.get_weights(), strict=True):
        assert_close(weight, expected)


def test_loaded_weights_drop_the_cache(rng, tmp_path):
    model, other = make_cached_model(rng), make_model(rng)
    other.save_weights(tmp_path / "other.weights.h5")
    x, _ = make_data(rng)
    predict(model, x)
    model.load_weights(tmp_path / "other.weights.h5")
    assert not is_cached(model)
    assert_close(model(x), other(x), 1e-6)
    assert_up_to_date(model, x)


def test_a_call_in_training_drops_the_cache(rng):
    model = make_cached_model(rng)
    x, _ = make_data(rng)
    random = rng.normal(size=(len(x), LENGTH, 2)).astype("float32")
    found = gradients(
        lambda: weighted_sum(model(x, training=True), random), position_weights(model)
    )
    assert not is_cached(model)
    assert all(np.abs(gradient).max() > 1e-3 for gradient in found)
    assert_up_to_date(model, x)


def test_cache_train_cache_train(rng):
    """Every function that Keras compiled is compiled anew, with the cache and without."""
    model = make_model(rng)
    x, y = make_data(rng)
    train(model, x, y)
    cache_positions(model)
    assert_up_to_date(model, x)
    train(model, x, y)
    assert not is_cached(model)
    cache_positions(model)
    train(model, x, y)
    assert not is_cached(model)
    assert_up_to_date(model, x)


def test_validation_while_training(rng):
    model = make_cached_model(rng)
    x, y = make_data(rng)
    history = model.fit(x, y, BATCH, epochs=2, verbose=0, validation_data=(x, y), shuffle=False)
    expected = model.evaluate(x, y, BATCH, verbose=0)
    assert history.history["val_loss"][-1] == pytest.approx(expected, rel=1e-5)


def test_dropping_restores(rng):
    model = make_cached_model(rng)
    x, _ = make_data(rng)
    predict(model, x)
    drop_cached_positions(model)
    assert not is_cached(model)
    assert_not_shadowed(model)
    assert_up_to_date(model, x)
    # Without a cache, nothing happens.
    drop_cached_positions(model)
    assert not is_cached(model)


def test_caching_twice_is_caching_once(rng):
    model = make_cached_model(rng)
    cache_positions(model)
    assert is_cached(model)
    assert_up_to_date(model, make_data(rng)[0])
    drop_cached_positions(model)
    assert_not_shadowed(model)


def test_all_biases_of_a_model_share_a_fate(rng):
    """A weight of one bias changes: the others may stay, but what is cached must be right."""
    model = make_cached_model(rng, num_layers=2, sharing="none")
    first, second = position_biases(model)
    first.key_embedding.assign(to_numpy(first.key_embedding) + 0.5)
    assert not first.has_cached_scores
    assert second.has_cached_scores
    assert_up_to_date(model, make_data(rng)[0])


def test_models_around_a_cached_layer_compile_anew(rng):
    """Only the encoder was given to `cache_positions`, and the model had compiled everything."""
    model = make_model(rng)
    x, y = make_data(rng)
    train(model, x, y)
    predict(model, x)
    cache_positions(model.get_layer("encoder"))
    assert_up_to_date(model, x)
    train(model, x, y)
    assert not is_cached(model)
    assert_up_to_date(model, x)


def test_models_that_share_a_cached_layer_compile_anew(rng):
    model = make_model(rng)
    x, y = make_data(rng)
    other = keras.Model(model.inputs, model.get_layer("encoder").output)
    compile_model(other)
    cache_positions(model)
    before = predict(other, x)
    train(model, x, y)
    assert np.abs(predict(other, x) - before).max() > 1e-3
    assert_up_to_date(other, x)
