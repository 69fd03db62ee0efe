"""What the position cache must not change, and what it refuses."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    BucketedRelativePositionBias,
    DietEncoder,
    RelativePositionBias,
    UntiedPositionBias,
    cache_positions,
    drop_cached_positions,
)
from tests.helpers import assert_close, randomize, to_numpy
from tests.layers.cached_models import (
    BATCH,
    assert_up_to_date,
    is_cached,
    make_cached_model,
    make_data,
    make_model,
    position_biases,
    predict,
)

ENCODINGS = [
    {"position_encoding": "diet_abs", "sharing": "layer-wise"},
    {"position_encoding": "diet_rel", "sharing": "none"},
    {"position_encoding": "t5", "sharing": "none"},
    {"position_encoding": "tupe_rel", "sharing": "layer-wise"},
]
encodings = pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda kw: "-".join(kw.values()))


@encodings
def test_outputs_are_the_same(rng, encoding):
    model = make_model(rng, **encoding)
    x, _ = make_data(rng)
    # Compiled before the scores are cached, and again afterwards.
    expected = predict(model, x)
    cache_positions(model)
    assert is_cached(model)
    assert_close(predict(model, x), expected, 1e-6)
    assert_close(model(x), expected, 1e-6)
    assert is_cached(model)


def test_outputs_of_shared_heads_are_the_same(rng):
    model = make_model(rng, sharing="head-wise")
    x, _ = make_data(rng)
    expected = to_numpy(model(x))
    cache_positions(model)
    assert_close(model(x), expected, 1e-6)


def test_cached_scores_are_used(rng):
    model = make_cached_model(rng)
    x, _ = make_data(rng)
    expected = to_numpy(model(x))
    (bias,) = position_biases(model)
    bias.compute_scores = lambda *args: pytest.fail("The scores are computed again.")
    assert_close(model(x), expected, 1e-6)
    assert_close(predict(model, x), expected)


def test_inference_keeps_the_cache(rng):
    model = make_cached_model(rng)
    x, y = make_data(rng)
    expected = predict(model, x)
    model.evaluate(x, y, BATCH, verbose=0)
    model.test_on_batch(x[:BATCH], y[:BATCH])
    model.predict_on_batch(x[:BATCH])
    model(x, training=False)
    assert is_cached(model)
    assert_close(predict(model, x), expected, 0)


def test_evaluate_is_the_same(rng):
    model = make_model(rng)
    x, y = make_data(rng)
    expected = model.evaluate(x, y, BATCH, verbose=0)
    cache_positions(model)
    assert model.evaluate(x, y, BATCH, verbose=0) == pytest.approx(expected, rel=1e-5)


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
    assert_close(loaded(x), model(x), 1e-6)


def test_configuration_and_variables_do_not_change(rng):
    model = make_model(rng)
    config, count, weights = model.get_config(), model.count_params(), model.get_weights()
    cache_positions(model)
    assert model.get_config() == config
    assert model.count_params() == count
    for weight, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, expected)


def make_bias(kind, rng, **kwargs):
    bias = {
        "absolute": lambda: AbsolutePositionBias(3, 7, 2, key_length=11, **kwargs),
        "relative": lambda: RelativePositionBias(3, 11, **kwargs),
        "t5": lambda: BucketedRelativePositionBias(3, 6, 5, max_length=11, **kwargs),
        "tupe": lambda: UntiedPositionBias(3, 2, 11, 5, relative=True, **kwargs),
    }[kind]()
    bias.build()
    return randomize(bias, rng)


@pytest.mark.parametrize("kind", ["absolute", "relative", "t5", "tupe"])
@pytest.mark.parametrize(
    "share_heads, start_index, queries, keys", [(False, 2, 5, 7), (True, 0, 7, 11)]
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


def test_under_mixed_precision(rng):
    model = make_model(rng, dtype="mixed_bfloat16")
    x, _ = make_data(rng)
    expected = predict(model, x)
    cache_positions(model)
    (bias,) = position_biases(model)
    assert keras.backend.standardize_dtype(bias(x).dtype) == "bfloat16"
    assert_close(predict(model, x), expected, 1e-6)


def test_a_bias_inside_another_is_cached_with_it(rng):
    """TUPE-R holds a bias of T5's bins, which takes part in its scores."""
    bias = make_bias("tupe", rng)
    cache_positions(bias)
    assert bias.has_cached_scores
    assert not bias.relative_bias.has_cached_scores
    for weight in (bias.position_embedding, bias.relative_bias.bucket_embedding):
        weight.assign(to_numpy(weight))
        assert bias.has_cached_scores
        weight.assign(2 * to_numpy(weight))
        assert not bias.has_cached_scores
        cache_positions(bias)
    bias(np.zeros((1, 5, 3), "float32"), training=True)
    assert not bias.has_cached_scores


@pytest.mark.parametrize("position_encoding", ["t5", "tupe_rel"])
def test_training_goes_on_with_current_scores(rng, position_encoding):
    model = make_cached_model(rng, position_encoding=position_encoding)
    x, y = make_data(rng)
    model.fit(x, y, BATCH, verbose=0)
    assert not is_cached(model)
    assert_up_to_date(model, x)


@pytest.mark.parametrize("position_encoding", ["input", "shaw", "none"])
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


def test_a_model_is_cached_as_a_whole_or_not_at_all():
    finite, infinite = RelativePositionBias(3, 7), BucketedRelativePositionBias(3)
    model = keras.Sequential([finite, infinite])
    for bias in (finite, infinite):
        bias.build()
    with pytest.raises(ValueError, match=r"cannot be cached.*`max_length`"):
        cache_positions(model)
    assert not finite.has_cached_scores
