"""What the position cache must not change, and when it must be dropped."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    DietEncoder,
    RelativePositionBias,
    cache_positions,
    drop_cached_positions,
)
from tests.helpers import assert_close, gradients, randomize, to_numpy, weighted_sum
from tests.layers.cached_models import (
    BATCH,
    LENGTH,
    assert_up_to_date,
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
    {"position_encoding": "diet_abs", "sharing": "head-wise"},
    {"position_encoding": "diet_rel", "sharing": "none"},
]
encodings = pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda kw: "-".join(kw.values()))


def assert_not_shadowed(model):
    """Assert that `assign` of every position weight is the method of its class again."""
    for weight in position_weights(model):
        assert "assign" not in vars(weight)
        assert weight.assign.__func__ is type(weight).assign


@encodings
def test_outputs_are_the_same(rng, encoding):
    model = make_model(rng, **encoding)
    x, _ = make_data(rng)
    expected = predict(model, x)
    cache_positions(model)
    assert is_cached(model)
    assert_close(predict(model, x), expected, 1e-6)
    assert_close(model(x), expected, 1e-6)
    assert is_cached(model)


def test_cached_scores_are_used(rng):
    model = make_cached_model(rng)
    x, _ = make_data(rng)
    expected = predict(model, x)
    (bias,) = position_biases(model)
    bias.compute_scores = lambda *args: pytest.fail("The scores are computed again.")
    assert_close(predict(model, x), expected, 0)
    assert_close(model(x), expected, 1e-6)


def train(model, x, y):
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)


def train_on_batch(model, x, y):
    model.train_on_batch(x, y)


def train_on_batches(model, x, y):
    for start in range(0, len(x), BATCH):
        model.train_on_batch(x[start : start + BATCH], y[start : start + BATCH])


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
    train_on_batches,
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
    plain.compile(keras.optimizers.SGD(0.1), "mse")
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
    model.load_weights(tmp_path / "other.weights.h5")
    assert not is_cached(model)
    x, _ = make_data(rng)
    assert_close(predict(model, x), predict(other, x), 1e-6)


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


def test_inference_keeps_the_cache(rng):
    model = make_cached_model(rng)
    x, y = make_data(rng)
    expected = predict(model, x)
    model.evaluate(x, y, verbose=0)
    model.test_on_batch(x, y)
    model.predict_on_batch(x)
    model(x, training=False)
    assert is_cached(model)
    assert_close(predict(model, x), expected, 0)


def test_evaluate_is_the_same(rng):
    model = make_model(rng)
    x, y = make_data(rng)
    expected = model.evaluate(x, y, verbose=0)
    cache_positions(model)
    assert model.evaluate(x, y, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_cache_train_cache_train(rng):
    """Every function that Keras compiled is compiled anew, with the cache and without."""
    model = make_model(rng)
    x, y = make_data(rng)
    train(model, x, y)
    cache_positions(model)
    assert_up_to_date(model, x)
    train(model, x, y)
    assert not is_cached(model)
    assert_up_to_date(model, x)
    cache_positions(model)
    assert_up_to_date(model, x)
    train(model, x, y)
    assert not is_cached(model)
    assert_up_to_date(model, x)


def test_validation_while_training(rng):
    model = make_cached_model(rng)
    x, y = make_data(rng)
    history = model.fit(x, y, BATCH, epochs=2, verbose=0, validation_data=(x, y), shuffle=False)
    expected = model.evaluate(x, y, BATCH, verbose=0)
    assert history.history["val_loss"][-1] == pytest.approx(expected, rel=1e-5)


@encodings
def test_dropping_restores(rng, encoding):
    model = make_cached_model(rng, **encoding)
    x, _ = make_data(rng)
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
    model = make_cached_model(rng, position_encoding="diet_abs", sharing="none")
    first, second = position_biases(model)
    first.key_embedding.assign(to_numpy(first.key_embedding) + 0.5)
    assert not first.has_cached_scores
    assert second.has_cached_scores
    assert_up_to_date(model, make_data(rng)[0])


@pytest.mark.parametrize("saved", ["model.keras", "model.weights.h5"])
def test_saved_files_are_those_of_an_uncached_model(rng, tmp_path, saved):
    model = make_cached_model(rng)
    x, _ = make_data(rng)
    paths = [weight.path for weight in model.weights]
    if saved == "model.keras":
        model.save(tmp_path / saved)
        loaded = keras.saving.load_model(tmp_path / saved)
    else:
        model.save_weights(tmp_path / saved)
        loaded = randomize(keras.Model.from_config(model.get_config()), rng)
        loaded.load_weights(tmp_path / saved)
    assert is_cached(model)
    assert not is_cached(loaded)
    assert [weight.path for weight in loaded.weights] == paths
    assert_close(predict(loaded, x), predict(model, x), 1e-6)


def test_configuration_and_variables_do_not_change(rng):
    model = make_model(rng)
    config, count, weights = model.get_config(), model.count_params(), model.get_weights()
    cache_positions(model)
    assert model.get_config() == config
    assert model.count_params() == count
    for weight, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, expected)


def make_bias(kind, rng, **kwargs):
    if kind == "absolute":
        bias = AbsolutePositionBias(3, 7, 2, key_length=11, **kwargs)
    else:
        bias = RelativePositionBias(3, 11, **kwargs)
    bias.build()
    return randomize(bias, rng)


@pytest.mark.parametrize("kind", ["absolute", "relative"])
@pytest.mark.parametrize("share_heads", [False, True])
@pytest.mark.parametrize(
    "start_index, queries, keys", [(0, 7, 11), (0, 3, 5), (2, 5, 7), (6, 1, 7)]
)
def test_a_single_bias_layer(rng, kind, share_heads, start_index, queries, keys):
    bias = make_bias(kind, rng, share_heads=share_heads)
    query, key = np.zeros((2, queries, 3), "float32"), np.zeros((2, keys, 3), "float32")
    expected = to_numpy(bias(query, key, start_index=start_index))
    cache_positions(bias)
    assert_close(bias(query, key, start_index=start_index), expected, 1e-6)
    assert bias.has_cached_scores


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_lengths_are_checked_with_a_cache_too(rng, kind):
    bias = make_bias(kind, rng)
    cache_positions(bias)
    with pytest.raises(ValueError, match="query is longer than `max_length`"):
        bias(np.zeros((2, 13, 3), "float32"), np.zeros((2, 3, 3), "float32"))
    with pytest.raises(ValueError, match="`start_index` must not be negative"):
        bias(np.zeros((2, 3, 3), "float32"), start_index=-1)


def test_own_position_bias_is_cached_too(rng):
    bias = RelativePositionBias(2, 7, name="own")
    model = make_cached_model(rng, position_encoding=bias)
    assert bias.has_cached_scores
    assert_up_to_date(model, make_data(rng)[0])
    drop_cached_positions(model)
    assert_not_shadowed(model)


def test_under_mixed_precision(rng):
    model = make_model(rng, dtype="mixed_bfloat16")
    x, _ = make_data(rng)
    expected = predict(model, x)
    cache_positions(model)
    assert_close(predict(model, x), expected, 1e-6)


@pytest.mark.parametrize("position_encoding", ["input", "none"])
def test_without_position_biases_there_is_nothing_to_cache(rng, position_encoding):
    model = make_model(rng, position_encoding=position_encoding)
    with pytest.raises(ValueError, match="no positional scores to cache"):
        cache_positions(model)
    with pytest.raises(ValueError, match="no positional scores to cache"):
        cache_positions(keras.layers.Dense(2))
    drop_cached_positions(model)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: AbsolutePositionBias(3, 7, 2),
        lambda: RelativePositionBias(3, 7),
        lambda: DietEncoder(2, 3, 5),
    ],
    ids=["absolute", "relative", "encoder"],
)
def test_unbuilt_layers_are_refused(layer):
    with pytest.raises(ValueError, match=r"buil(t|d)"):
        cache_positions(layer())
