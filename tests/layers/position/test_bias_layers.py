"""The contract of every bias layer. The table is in `bias_layers`."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_diet._compat import get_keras_mask
from keras_diet.layers import PositionBias, RelativePositionBias, ScoreTerms, cache_positions
from keras_diet.layers.attention.plan import AttentionPlan
from keras_diet.layers.attention.prepared_terms import prepare
from keras_diet.layers.position.position_bias import has_scores_by_distance
from tests import reference
from tests.helpers import (
    assert_close,
    check_config,
    check_layer,
    compiled,
    gradients,
    once,
    to_numpy,
    weighted_sum,
)
from tests.layers.bias_layers import (
    BIAS_LAYERS,
    MAX_LENGTH,
    NUM_HEADS,
    Distances,
    expected_scores,
    make_bias,
    sequence,
    weights_of,
)

ALL = list(BIAS_LAYERS)
SHARING = [name for name, spec in BIAS_LAYERS.items() if spec.takes("share_heads")]
# Every layer, and those that share their heads also with shared ones.
VARIANTS = [(name, False) for name in ALL] + [(name, True) for name in SHARING]
every_bias = pytest.mark.parametrize("name", ALL)
OF_POSITIONS = [name for name, spec in BIAS_LAYERS.items() if not spec.reads_content]
every_variant = pytest.mark.parametrize("name, share_heads", VARIANTS)


def variant(name, share_heads, rng, **kwargs):
    return make_bias(name, rng, **({"share_heads": True} if share_heads else {}), **kwargs)


def call(bias, query_length, key_length, start=0):
    query, key = sequence(query_length, start), sequence(key_length)
    return compiled(lambda: bias(query, key, start_index=start))()


@every_variant
def test_equals_reference(rng, name, share_heads):
    bias = variant(name, share_heads, rng)
    key_length = MAX_LENGTH if BIAS_LAYERS[name].has_query else 5
    lengths = (2, key_length, 9) if share_heads else (3, 7, 0)
    expected = expected_scores(bias, *lengths)
    assert_close(call(bias, *lengths), expected, 2e-5)
    assert np.ptp(expected, axis=1).any() != share_heads


@pytest.mark.any_backend
@every_bias
@settings(deadline=None, max_examples=8, derandomize=True)
@given(data=st.data())
def test_all_lengths(name, data):
    """Calls, rows, steps, features, scores by distance, and a copy with cached scores."""
    spec, rng = BIAS_LAYERS[name], np.random.default_rng(5)
    start = data.draw(st.integers(0, MAX_LENGTH - 1))
    query_length = data.draw(st.integers(1, MAX_LENGTH - start))
    fewest_keys = start + query_length if spec.has_query else 1
    key_length = data.draw(st.integers(fewest_keys, spec.max_keys))
    share_heads = data.draw(st.booleans()) and name in SHARING
    bias = variant(name, share_heads, rng)
    query, key = sequence(query_length, start), sequence(key_length)
    steps = [bias(query[:, i : i + 1], key, start_index=start + i) for i in range(query_length)]
    found = {
        "call": bias(query, key, start_index=start),
        "rows": bias.rows(query, key, np.int64(start)),
        "rows at a tensor": bias.rows(query, key, ops.convert_to_tensor(start, "int32")),
        "steps": ops.concatenate(steps, axis=2),
    }
    if spec.reads_content:
        with pytest.raises(ValueError, match="depend on the content cannot be computed"):
            cache_positions(bias)
    else:
        cached = bias if name == "cached" else cache_positions(bias)
        found["cached"] = cached(query, key, start_index=start)
        for each in filter(has_scores_by_distance, (bias, cached)):
            found[f"{each} by distance"] = scores_by_distance(each, query, key, start)
    if spec.features:
        products = ops.einsum("bthr,bshr->bhts", *bias.features(query, key, start))
        if name == "forgetting":
            # Features need a causal mask.
            products = ops.minimum(products, 0.0)
        shape = (products.shape[0], NUM_HEADS, query_length, key_length)
        found["features"] = ops.broadcast_to(products, shape)
    expected = expected_scores(bias, query_length, key_length, start)
    for scores in found.values():
        assert_close(scores, expected, 2e-5)


def scores_by_distance(bias, query, key, start):
    """The scores as a kernel of indices gets them: by distance, as features, or a sum of both."""
    terms = ScoreTerms(bias=bias, start_index=start)
    terms = prepare(terms, AttentionPlan("pallas", bias="distances"), query, key)
    assert terms.bias is None, "The bias must be in one form only."
    lengths = query.shape[1], key.shape[1]
    scores = sum(ops.einsum("bthr,bshr->bhts", *pair) for pair in terms.features)
    if terms.by_distance is not None:
        columns = np.arange(lengths[1]) - np.arange(lengths[0])[:, None] + lengths[0] - 1
        scores = scores + ops.take(terms.by_distance, columns, axis=1)[None]
    return ops.broadcast_to(scores, (1, NUM_HEADS, *lengths))


@pytest.mark.any_backend
@every_variant
def test_what_a_layer_can_do_is_in_the_table(rng, name, share_heads):
    spec, bias = BIAS_LAYERS[name], variant(name, share_heads, rng)
    can_do = (bias.distance_only, bias.any_length, callable(bias.features), bias.reads_content)
    expected = (spec.distance_only, spec.any_length, spec.features, spec.reads_content)
    assert can_do == expected
    by_distance = (spec.distance_only and not spec.reads_content) or name.startswith("tupe")
    assert has_scores_by_distance(bias) == by_distance
    if spec.features and not spec.reads_content:
        shapes = [each.shape for each in bias.features(sequence(5), sequence(7))]
        heads = 1 if share_heads else NUM_HEADS
        assert shapes == [(1, 5, heads, bias.rank), (1, 7, heads, bias.rank)]


@pytest.mark.any_backend
@pytest.mark.parametrize("name", OF_POSITIONS)
def test_only_the_lengths_are_read(rng, name):
    bias = make_bias(name, rng)
    expected = bias(sequence(5))
    assert_close(bias(sequence(5), sequence(5)), expected, 0)
    for shape in ((2, 5), (1, 5, 2, 3)):
        assert_close(bias(rng.normal(size=shape).astype("float32")), expected, 0)
    assert bias.compute_output_shape((2, 5, 1)) == expected.shape
    assert bias.compute_output_shape((2, 5, 1), (2, 7, 1)) == (1, NUM_HEADS, 5, 7)


@pytest.mark.any_backend
@every_bias
@pytest.mark.filterwarnings("error:.*mask")
def test_inputs_keep_their_masks_and_scores_have_none(rng, name):
    bias, embedding = make_bias(name, rng), keras.layers.Embedding(3, 5, mask_zero=True)
    for tokens in (np.array([[1, 2, 2, 0], [2, 1, 0, 0]]), keras.Input((4,), dtype="int32")):
        x = embedding(tokens)
        for scores in (bias(x), bias(x, x)):
            assert get_keras_mask(scores) is None
        assert get_keras_mask(x) is not None


@every_bias
def test_gradients_equal_finite_differences(rng, name):
    share_heads = name in SHARING and len(name) % 2 == 0
    bias = variant(name, share_heads, rng)
    lengths = (5, 7, 2)
    random = rng.normal(size=(1, NUM_HEADS, *lengths[:2])).astype("float32")
    query, key = sequence(5, 2), sequence(7)
    found = gradients(
        lambda: weighted_sum(bias(query, key, start_index=2), random), bias.trainable_weights
    )
    values = weights_of(bias)
    for weight, gradient in zip(bias.trainable_weights, found, strict=True):

        def loss(array, name=weight.name):
            return np.sum(expected_scores(bias, *lengths, {**values, name: array}) * random)

        indices = list(np.ndindex(gradient.shape))
        for index in [indices[i] for i in rng.choice(len(indices), min(4, len(indices)), False)]:
            slope = reference.finite_difference(loss, values[weight.name], index)
            np.testing.assert_allclose(gradient[index], slope, 2e-3, 2e-4, err_msg=weight.path)
    if has_scores_by_distance(bias):
        by_distance = gradients(
            lambda: weighted_sum(scores_by_distance(bias, query, key, 2), random),
            bias.trainable_weights,
        )
        for actual, gradient in zip(by_distance, found, strict=True):
            assert_close(actual, gradient, 1e-4)


@pytest.mark.parametrize("name", ["relative", *once(*(name for name in ALL if name != "relative"))])
def test_as_a_layer(rng, name):
    spec = BIAS_LAYERS[name]
    arguments = {
        "share_heads": True,
        "initializer": keras.initializers.RandomNormal(stddev=0.5, seed=3),
    }
    arguments = {key: value for key, value in arguments.items() if spec.takes(key)}
    if name == "fire":
        # Otherwise no position would be below the threshold, which has a gradient there.
        arguments["threshold"] = 40.5
    bias = spec.make(name="positions", **arguments)
    if name == "cached":
        check_config(bias)
    else:
        check_layer(bias, sequence(11), sequence(spec.max_keys))


class Scaled(Distances):
    """A layer with an own argument, which passes on the others."""

    def __init__(self, num_heads, scale, **kwargs):
        super().__init__(num_heads, MAX_LENGTH, **kwargs)
        self.scale = scale


@pytest.mark.any_backend
def test_a_subclass_may_pass_on_arguments_without_naming_them():
    config = Scaled(3, scale=0.5, share_heads=True, initializer="zeros", name="b").get_config()
    assert Scaled.from_config(config).get_config() == config
    assert (config["scale"], config["share_heads"]) == (0.5, True)
    assert "max_length" not in config
    assert "share_heads" not in Scaled(3, scale=0.5).get_config()


@pytest.mark.any_backend("tensorflow")
@every_bias
@pytest.mark.parametrize("cached", [False, True])
def test_one_graph_serves_all_lengths(rng, name, cached):
    import tensorflow as tf

    bias = make_bias(name, rng)
    most = (2, 11) if BIAS_LAYERS[name].has_query else (11, 2)
    expected = {lengths: to_numpy(bias(*map(sequence, lengths))) for lengths in [(3, 5), most]}
    # TensorFlow does not add int64 to int32.
    shifted = bias(sequence(2, 4), sequence(7), start_index=np.int64(4))
    assert_close(shifted, expected_scores(bias, 2, 7, 4), 2e-5)
    if cached and name in OF_POSITIONS and name != "cached":
        bias = cache_positions(bias)
    spec = tf.TensorSpec((None, None, 5))
    function = tf.function(lambda query, key: bias(query, key), input_signature=(spec, spec))
    for lengths, scores in expected.items():
        assert_close(function(*map(sequence, lengths)), scores, 1e-6)


@pytest.mark.any_backend("jax")
@every_bias
def test_one_program_serves_all_start_indices(rng, name):
    import jax

    bias = make_bias(name, rng)
    key = sequence(min(MAX_LENGTH, BIAS_LAYERS[name].max_keys))
    step = jax.jit(lambda index: bias(sequence(2), key, start_index=index))
    for start in (3, 9):
        expected = expected_scores(bias, 2, key.shape[1], start, states=(sequence(2), key))
        assert_close(step(start), expected, 2e-5)


class AnyLength(Distances):
    any_length = True


class OwnCall(RelativePositionBias):
    def call(self, query, key=None, start_index=0):
        return 2 * super().call(query, key, start_index)


QUERY, NEGATIVE = "query is longer than `max_length` allows.*=12", "not negative.*=-1"
REFUSED = [
    ((12, 2, 0), QUERY),
    ((7, 2, 5), QUERY),
    ((7, 2, ops.convert_to_tensor(5, "int32")), QUERY),
    ((2, 14, 0), "key is longer than `key_length`.*length=14"),
    ((2, 2, -1), NEGATIVE),
    ((2, 2, 1.5), "`start_index` must be a single integer"),
]


@pytest.mark.any_backend
@pytest.mark.parametrize("lengths, message", REFUSED)
def test_calls_that_are_refused(rng, lengths, message):
    query_length, key_length, start = lengths
    bias = make_bias("absolute_of_projected_keys", rng)
    arguments = (sequence(query_length), sequence(key_length))
    for method in (bias, bias.features):
        with pytest.raises(ValueError, match=message):
            method(*arguments, start_index=start)


@pytest.mark.any_backend
def test_the_base_class():
    with pytest.raises(NotImplementedError):
        PositionBias(2, 7)(sequence(3))
    for bias_class in (PositionBias, RelativePositionBias, Distances):
        with pytest.raises(ValueError, match=r"`max_length` must be the largest.*None.*any_length"):
            bias_class(NUM_HEADS, max_length=None)
    assert not has_scores_by_distance(OwnCall(2, 7)), "its call returns other scores"
    bias = AnyLength(2, None)
    assert bias(sequence(3), sequence(101), start_index=50).shape == (1, 2, 3, 101)
    with pytest.raises(ValueError, match=r"`start_index` must be.*not negative"):
        bias(sequence(3), start_index=-1)
    with pytest.raises(ValueError, match=r"`max_length` must be the largest.*None.*any_length"):
        cache_positions(bias)


@pytest.mark.any_backend
@every_bias
def test_sizes_must_be_positive_integers(name):
    bias = BIAS_LAYERS[name].make()
    config = bias.get_config()
    for argument in [key for key, value in config.items() if type(value) is int]:
        for value in (0, 2.5):
            with pytest.raises(ValueError, match=f"`{argument}` must be .*{value}"):
                type(bias)(**{**config, argument: value})
