"""`cache_positions`: the copy returns the same outputs and shares nothing with the model."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    BucketedRelativePositionBias,
    CachedPositionBias,
    DietEncoder,
    RelativePositionBias,
    UntiedPositionBias,
    cache_positions,
)
from tests.helpers import assert_close, check_config, once, randomize, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    MAX_LENGTH,
    NUM_HEADS,
    PROJECTED,
    VALID,
    Distances,
    expected_output,
    expected_scores,
    make_encoder,
    make_inputs,
    make_model,
    name_of,
)

# Every encoding with a position bias, every way of sharing, and what else changes the scores.
ENCODERS = [
    {"position_encoding": "diet_abs", "rank": 5, "sharing": "layer-wise"},
    {"position_encoding": "diet_abs", "sharing": "head-wise", "normalize_first": True},
    {"position_encoding": "diet_rel", "sharing": "none"},
    {"position_encoding": "t5", "sharing": "head-wise"},
    {"position_encoding": "tupe_abs", "sharing": "none"},
    {"position_encoding": "tupe_rel", "sharing": "layer-wise"},
    {"position_encoding": "diet_abs_input", "segment_encoding": "input"},
    {"projection_dim": PROJECTED, "sharing": "none", "segment_encoding": "input"},
]


@pytest.mark.parametrize("arguments", [*ENCODERS[:2], *once(*ENCODERS[2:])], ids=name_of)
def test_encoder_equals_reference(rng, arguments):
    encoder = make_encoder(rng, **arguments)
    cached = cache_positions(encoder)
    assert type(cached) is DietEncoder
    for bias, cached_bias in zip(encoder.position_biases, cached.position_biases, strict=True):
        assert type(cached_bias) is CachedPositionBias
        expected = expected_scores(bias, MAX_LENGTH, encoder.projection_dim)
        assert_close(cached_bias.scores, expected[0, : cached_bias.num_score_heads])
    x, segment_ids = make_inputs(rng)
    output = cached(x, segment_ids=segment_ids, padding_mask=VALID)
    assert_close(output, expected_output(encoder, x, segment_ids, VALID[:, None, None]))
    x, segment_ids = make_inputs(rng, MAX_LENGTH)
    output = cached(x, segment_ids=segment_ids)
    assert_close(output, expected_output(encoder, x, segment_ids))


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


BIASES = {
    "absolute": lambda **kwargs: AbsolutePositionBias(3, 7, 2, key_length=11, **kwargs),
    "relative": lambda **kwargs: RelativePositionBias(3, 11, **kwargs),
    "t5": lambda **kwargs: BucketedRelativePositionBias(3, 6, 5, max_length=11, **kwargs),
    "tupe": lambda **kwargs: UntiedPositionBias(3, 2, 11, 5, relative=True, **kwargs),
}


@pytest.mark.parametrize("kind", BIASES)
@pytest.mark.parametrize("share_heads", [False, True])
def test_bias_at_other_positions(rng, kind, share_heads):
    bias = BIASES[kind](share_heads=share_heads)
    bias.build()
    cached = cache_positions(randomize(bias, rng))
    for start_index, queries, keys in ((0, 7, 11), (2, 5, 7), (np.int64(6), 1, 7)):
        query, key = np.zeros((2, queries, 3), "float32"), np.zeros((2, keys, 3), "float32")
        expected = bias(query, key, start_index=start_index)
        assert_close(cached(query, key, start_index=start_index), expected, 1e-6)


def test_lengths_are_checked(rng):
    bias = BIASES["absolute"]()
    bias.build()
    cached = cache_positions(bias)
    with pytest.raises(ValueError, match="query is longer than `max_length`"):
        cached(np.zeros((2, 8, 3), "float32"), np.zeros((2, 3, 3), "float32"))
    with pytest.raises(ValueError, match="`start_index` must not be negative"):
        cached(np.zeros((2, 3, 3), "float32"), start_index=-1)


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


def test_configuration(rng):
    bias = CachedPositionBias(3, 7, key_length=5, share_heads=True, name="bias")
    check_config(bias)
    cached = cache_positions(make_encoder(rng, rank=5, sharing="none", name="encoder"))
    check_config(cached)
    again = DietEncoder.from_config(cached.get_config())
    again.build((BATCH, LENGTH, HIDDEN))
    again.set_weights(cached.get_weights())
    x, _ = make_inputs(rng)
    assert_close(again(x), cached(x), 1e-6)


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
