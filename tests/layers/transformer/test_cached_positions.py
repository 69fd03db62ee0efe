"""`cache_positions`: the copy returns the same outputs and shares nothing with the model."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    CachedPositionBias,
    cache_positions,
)
from tests.helpers import assert_close, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    LENGTH,
    MAX_LENGTH,
    NUM_HEADS,
    VALID,
    Distances,
    make_encoder,
    make_inputs,
    make_model,
)


def test_custom_position_bias(rng):
    bias = Distances(NUM_HEADS, MAX_LENGTH, name="distances")
    encoder = make_encoder(rng, position_encoding=bias, sharing="none")
    cached = cache_positions(encoder)
    assert [type(layer) for layer in encoder.position_biases] == [Distances] * 2
    x, segment_ids = make_inputs(rng)
    assert_close(cached(x, segment_ids=segment_ids), encoder(x, segment_ids=segment_ids), 1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_scores_have_the_compute_dtype(rng, policy):
    encoder = make_encoder(rng, dtype=policy)
    cached = cache_positions(encoder)
    (bias,) = cached.position_biases
    assert bias.scores.dtype == bias.compute_dtype == encoder.compute_dtype
    x, segment_ids = make_inputs(rng)
    output = cached(x, segment_ids=segment_ids)
    assert keras.backend.standardize_dtype(output.dtype) == encoder.compute_dtype
    assert_close(output, encoder(x, segment_ids=segment_ids), 1e-2)








@pytest.mark.parametrize("sharing, reads", [("layer-wise", 1), ("head-wise", 2)])
def test_scores_are_read_and_not_computed(rng, monkeypatch, sharing, reads):
    cached = cache_positions(make_encoder(rng, sharing=sharing))
    counted = []
    compute_scores = CachedPositionBias.compute_scores

    def count(self, *args):
        counted.append(self.name)
        return compute_scores(self, *args)

    def fail(*args, **kwargs):
        pytest.fail("The scores are computed again.")

    monkeypatch.setattr(CachedPositionBias, "compute_scores", count)
    monkeypatch.setattr(AbsolutePositionBias, "compute_scores", fail)
    monkeypatch.setattr(AbsolutePositionBias, "features", fail)
    cached(make_inputs(rng)[0])
    assert len(counted) == len(set(counted)) == reads
    assert {weight.name for bias in cached.position_biases for weight in bias.weights} == {"scores"}




# === The copy shares nothing with the model ===


def weights_by_path(model):
    return {weight.path: to_numpy(weight) for weight in model.weights}


@pytest.mark.parametrize("trains_copy", [False, True], ids=["model", "copy"])
def test_training_changes_one_of_the_two(rng, trains_copy):
    """On JAX, training gives up the arrays of the trained model."""
    model = make_model(rng, position_encoding="diet_rel", dropout=0.1)
    config = model.get_config()
    cached = cache_positions(model)
    assert model.get_config() == config
    trained, other = (cached, model) if trains_copy else (model, cached)
    inputs = [make_inputs(rng)[0], VALID]
    expected, unchanged = to_numpy(other(inputs)), weights_by_path(other)
    before = weights_by_path(trained)
    trained.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=keras.backend.backend() == "jax")
    trained.fit(inputs, rng.normal(size=(BATCH, LENGTH, 2)), epochs=2, verbose=0)

    np.testing.assert_array_equal(to_numpy(other(inputs)), expected)
    for path, value in weights_by_path(other).items():
        np.testing.assert_array_equal(value, unchanged[path])
    after = weights_by_path(trained)
    same = {path.split("/")[-1] for path in after if np.array_equal(after[path], before[path])}
    # Softmax removes the bias of the keys.
    assert same - {"bias"} == ({"scores"} if trains_copy else set())
    if not trains_copy:
        assert_close(cache_positions(model)(inputs), model(inputs), 1e-6)


def test_small_changes_of_the_model_do_not_show_in_the_copy(rng):
    encoder = make_encoder(rng)
    cached = cache_positions(encoder)
    x, _ = make_inputs(rng)
    expected = to_numpy(cached(x))
    for weight in encoder.weights:
        weight.assign(to_numpy(weight) + 3e-6)
    np.testing.assert_array_equal(to_numpy(cached(x)), expected)
    (old,), (new,) = cached.position_biases, cache_positions(encoder).position_biases
    assert 1e-6 < np.abs(to_numpy(new.scores) - to_numpy(old.scores)).max() < 1e-3
