"""All position biases: lengths, `start_index`, dynamic shapes, initial weights, errors."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    AbsolutePositionBias,
    BucketedRelativePositionBias,
    PositionBias,
    RelativePositionBias,
    UntiedPositionBias,
    cache_positions,
)
from tests.helpers import (
    assert_close,
    assert_weights_start_differently,
    check_layer,
    gradients,
    randomize,
    to_numpy,
    weighted_sum,
)

NUM_HEADS, MAX_LENGTH = 3, 11
BIASES = {
    "absolute": lambda **kwargs: AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, 5, **kwargs),
    "relative": lambda **kwargs: RelativePositionBias(NUM_HEADS, MAX_LENGTH, **kwargs),
    "t5": lambda **kwargs: BucketedRelativePositionBias(
        NUM_HEADS, 6, 7, max_length=MAX_LENGTH, **kwargs
    ),
    "tupe": lambda **kwargs: UntiedPositionBias(
        NUM_HEADS, 2, MAX_LENGTH, 5, relative=True, num_buckets=6, max_distance=7, **kwargs
    ),
}
# Rows without a gradient. T5 has a bin for a key that comes after the query at distance 0, which
# no key does. TUPE gives the first position, `[CLS]`, other scores than its embedding's.
UNUSED = {"bucket_embedding": [3], "position_embedding": [0]}
on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only TensorFlow has dynamic shapes"
)


@pytest.fixture(params=BIASES)
def make(request, rng):
    def make_bias(**kwargs):
        bias = BIASES[request.param](**kwargs)
        bias.build()
        return randomize(bias, rng)

    return make_bias


def sequence(length, batch_size=2):
    return np.zeros((batch_size, length, 7), "float32")


def test_key_defaults_to_query(make):
    bias = make()
    assert_close(bias(sequence(5)), bias(sequence(5), sequence(5)), 0)


@pytest.mark.parametrize("query_shape", [(2, 5), (2, 5, 3), (1, 5, 2, 3)])
def test_reads_only_the_lengths(make, rng, query_shape):
    bias = make()
    query = rng.normal(size=query_shape).astype("float32")
    assert_close(bias(query), bias(sequence(5)), 0)


@pytest.mark.parametrize(
    "share_heads, cached, kind",
    [
        *((False, False, kind) for kind in (int, np.int64, "tensor")),
        *((False, True, kind) for kind in (int, "tensor")),
        (True, True, int),
    ],
)
def test_start_index_shifts_the_queries(make, share_heads, cached, kind):
    bias = make(share_heads=share_heads)
    start_index = ops.convert_to_tensor(4, dtype="int32") if kind == "tensor" else kind(4)
    full = to_numpy(bias(sequence(11)))
    if cached:
        bias = cache_positions(bias)
    scores = bias(sequence(3), sequence(7), start_index=start_index)
    assert_close(scores, full[:, :, 4:7, :7], 1e-6)


def test_decoding_step_by_step_equals_decoding_at_once(make):
    bias = make()
    steps = [to_numpy(bias(sequence(1), sequence(7), start_index=i)) for i in range(7)]
    assert_close(np.concatenate(steps, axis=2), bias(sequence(7)), 1e-6)


@pytest.mark.parametrize("start_index, query_length", [(0, 12), (5, 7), (11, 1)])
def test_too_long_queries_name_the_argument(make, start_index, query_length):
    message = f"query is longer than `max_length`.*length={start_index + query_length}"
    with pytest.raises(ValueError, match=message):
        make()(sequence(query_length), sequence(2), start_index=start_index)


def test_too_many_keys_name_the_argument(make):
    with pytest.raises(ValueError, match=r"key is longer than `max_length`.*length=13"):
        make()(sequence(2), sequence(13))


def test_longest_query_and_key_are_allowed(make):
    assert make()(sequence(6), sequence(11), start_index=5).shape == (1, NUM_HEADS, 6, 11)


def test_negative_start_index_is_refused(make):
    with pytest.raises(ValueError, match=r"`start_index` must not be negative.*-1"):
        make()(sequence(2), start_index=-1)


@pytest.mark.usefixtures("keras_initializers")
@pytest.mark.parametrize("name", ["absolute", "tupe"])
def test_weights_of_one_shape_start_differently(name):
    """DIET-ABS has two embeddings of one shape, and TUPE two kernels."""
    bias = BIASES[name]()
    bias.build()
    assert_weights_start_differently(bias)


@pytest.mark.usefixtures("keras_initializers")
@pytest.mark.parametrize("name", BIASES)
def test_initial_weights_are_those_of_bert(name):
    bias = BIASES[name]()
    bias.build()
    random = [weight for weight in bias.weights if np.ptp(to_numpy(weight))]
    assert len(random) == {"absolute": 2, "relative": 1, "t5": 1, "tupe": 5}[name]
    # A normal distribution of deviation 0.02, cut at two deviations.
    values = np.concatenate([to_numpy(weight).ravel() for weight in random])
    assert 0.01 < values.std() < 0.025
    assert np.abs(values).max() <= 0.04


@pytest.mark.parametrize("share_heads", [False, True])
def test_gradients_reach_every_weight(make, rng, share_heads):
    bias = make(share_heads=share_heads)
    random = rng.normal(size=(1, NUM_HEADS, 11, 11)).astype("float32")
    found = gradients(lambda: weighted_sum(bias(sequence(11)), random), bias.weights)
    for weight, gradient in zip(bias.weights, found, strict=True):
        unused = [row for row, values in enumerate(gradient) if not np.any(values)]
        assert unused == UNUSED.get(weight.name, [])
        assert np.all(np.delete(gradient, unused, axis=0) != 0)


@pytest.mark.parametrize("share_heads", [False, True])
def test_functional_model_of_any_length(make, share_heads):
    bias = make(share_heads=share_heads)
    query, key = keras.Input((None, 7)), keras.Input((None, 7))
    scores = bias(query, key)
    assert scores.shape == (1, NUM_HEADS, None, None)
    model = keras.Model([query, key], scores)
    assert_close(model([sequence(3), sequence(5)]), bias(sequence(3), sequence(5)), 0)
    assert_close(model([sequence(11), sequence(2)]), bias(sequence(11), sequence(2)), 0)


@pytest.mark.parametrize("share_heads, start_index", [(False, 2), (True, 0)])
def test_predict_with_two_lengths(make, share_heads, start_index):
    bias = make(share_heads=share_heads)
    inputs = keras.Input((None, 7))
    scores = ops.broadcast_to(bias(inputs, start_index=start_index), (1, NUM_HEADS, 5, 5))
    model = keras.Model(inputs, scores)
    assert_close(
        model.predict(sequence(5, batch_size=1), verbose=0),
        bias(sequence(5), start_index=start_index),
        1e-6,
    )


@on_tensorflow
@pytest.mark.parametrize("share_heads", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_one_graph_serves_all_lengths(make, share_heads, cached):
    import tensorflow as tf

    bias = make(share_heads=share_heads)
    expected = {(q, k): to_numpy(bias(sequence(q), sequence(k))) for q, k in [(3, 5), (11, 2)]}
    if cached:
        bias = cache_positions(bias)
    spec = tf.TensorSpec((None, None, 7))
    function = tf.function(lambda query, key: bias(query, key), input_signature=(spec, spec))
    for (query_length, key_length), scores in expected.items():
        assert_close(function(sequence(query_length), sequence(key_length)), scores, 1e-6)


@on_tensorflow
@pytest.mark.parametrize("query_length, key_length", [(12, 2), (2, 12)])
def test_too_long_sequences_are_refused_in_graphs(make, query_length, key_length):
    import tensorflow as tf

    spec = tf.TensorSpec((None, None, 7))
    function = tf.function(make().__call__, input_signature=(spec, spec))
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than `max_length` allows"):
        function(sequence(query_length), sequence(key_length))


def test_one_program_serves_all_start_indices(make):
    if keras.backend.backend() != "jax":
        pytest.skip("traces `start_index` with JAX")
    import jax

    bias = make()
    step = jax.jit(lambda index: bias(sequence(2), sequence(7), start_index=index))
    full = to_numpy(bias(sequence(11)))
    assert_close(step(3), full[:, :, 3:5, :7], 1e-6)
    assert_close(step(9), full[:, :, 9:11, :7], 1e-6)


class Distance(PositionBias):
    """A position bias without weights, as a user would write it."""

    def compute_scores(self, query_length, key_length, start_index):
        query = ops.arange(query_length) + start_index
        distance = ops.expand_dims(query, 1) - ops.expand_dims(ops.arange(key_length), 0)
        return ops.cast(
            ops.broadcast_to(distance, (1, self.num_score_heads, *distance.shape)),
            self.compute_dtype,
        )


@pytest.mark.parametrize("share_heads", [False, True])
def test_a_subclass_needs_only_compute_scores(share_heads):
    bias = Distance(2, 7, share_heads=share_heads)
    expected = np.broadcast_to(np.arange(2, 5)[:, None] - np.arange(5), (1, 2, 3, 5))
    assert_close(bias(sequence(3), sequence(5), start_index=2), expected.astype("float32"))


@pytest.mark.any_backend
@pytest.mark.parametrize("bias_class", [RelativePositionBias, BucketedRelativePositionBias])
def test_biases_by_distance_have_no_key_length(bias_class):
    with pytest.raises(TypeError, match="key_length"):
        bias_class(NUM_HEADS, max_length=7, key_length=5)


@pytest.mark.any_backend
@pytest.mark.parametrize("bias_class", [PositionBias, RelativePositionBias, Distance])
def test_max_length_is_required(bias_class):
    with pytest.raises(ValueError, match=r"`max_length` must be a positive integer.*None"):
        bias_class(NUM_HEADS, max_length=None)


def test_a_subclass_may_support_any_length():
    class AnyDistance(Distance):
        any_length = True

    bias = AnyDistance(2, None)
    assert bias(sequence(3), sequence(101), start_index=50).shape == (1, 2, 3, 101)
    with pytest.raises(ValueError, match=r"`start_index` must not be negative"):
        bias(sequence(3), start_index=-1)
    with pytest.raises(ValueError, match=r"cannot be cached.*max_length=None"):
        cache_positions(bias)


def test_the_base_class_has_no_scores():
    with pytest.raises(NotImplementedError):
        PositionBias(2, 7)(sequence(3))


def test_a_subclass_as_a_layer():
    keras.saving.register_keras_serializable("keras_diet_tests")(Distance)
    check_layer(Distance(2, 7, share_heads=True, initializer="ones"), sequence(5))
