import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import SegmentBias
from tests import reference
from tests.helpers import assert_close, check_layer, gradients, randomize, to_numpy, weighted_sum

NUM_HEADS = 5


def make(rng, num_segments=2, **kwargs):
    bias = SegmentBias(NUM_HEADS, num_segments, **kwargs)
    bias.build()
    return randomize(bias, rng)


def random_ids(rng, shape, num_segments):
    return rng.integers(num_segments, size=shape).astype("int32")


def expected_bias(bias, *segment_ids):
    embedding = to_numpy(bias.segment_embedding)
    return reference.segment_bias(embedding, *segment_ids, num_heads=NUM_HEADS)


@pytest.mark.parametrize("num_segments", [1, 2, 3])
@pytest.mark.parametrize("share_heads", [False, True])
def test_equals_reference(rng, share_heads, num_segments):
    bias = make(rng, num_segments, share_heads=share_heads)
    ids = random_ids(rng, (3, 7), num_segments)
    assert_close(bias(ids), expected_bias(bias, ids))


@pytest.mark.parametrize("num_segments", [2, 3])
@pytest.mark.parametrize("share_heads", [False, True])
def test_keys_may_have_other_segments_than_queries(rng, share_heads, num_segments):
    bias = make(rng, num_segments, share_heads=share_heads)
    query_ids = random_ids(rng, (3, 2), num_segments)
    key_ids = random_ids(rng, (3, 7), num_segments)
    assert_close(bias(query_ids, key_ids), expected_bias(bias, query_ids, key_ids))


def test_query_segment_is_the_row(rng):
    bias = make(rng)
    bias.segment_embedding.assign(np.tile([[0.0, 1.0], [2.0, 3.0]], (NUM_HEADS, 1, 1)))
    ids = np.array([[0, 1]])
    assert_close(bias(ids)[0, 3], np.array([[0.0, 1.0], [2.0, 3.0]]))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_dtypes_of_ids(rng, dtype):
    bias = make(rng)
    ids = random_ids(rng, (2, 3), 2)
    assert_close(bias(ids.astype(dtype)), expected_bias(bias, ids))


@pytest.mark.parametrize("num_segments", [2, 3])
@pytest.mark.parametrize("share_heads, heads", [(False, NUM_HEADS), (True, 1)])
def test_weights(rng, share_heads, heads, num_segments):
    bias = make(rng, num_segments, share_heads=share_heads)
    assert [(weight.name, weight.shape) for weight in bias.weights] == [
        ("segment_embedding", (heads, num_segments, num_segments)),
    ]


@pytest.mark.parametrize("share_heads", [False, True])
def test_gradients_equal_finite_differences(rng, share_heads):
    bias = make(rng, 3, share_heads=share_heads)
    query_ids, key_ids = random_ids(rng, (2, 5), 3), random_ids(rng, (2, 7), 3)
    random = rng.normal(size=(2, NUM_HEADS, 5, 7)).astype("float32")
    (gradient,) = gradients(lambda: weighted_sum(bias(query_ids, key_ids), random), bias.weights)
    embedding = to_numpy(bias.segment_embedding)

    def loss(embedding):
        scores = reference.segment_bias(embedding, query_ids, key_ids, num_heads=NUM_HEADS)
        return np.sum(scores * random)

    expected = np.zeros(embedding.shape)
    for index in np.ndindex(embedding.shape):
        expected[index] = reference.finite_difference(loss, embedding, index)
    assert_close(gradient, expected, 1e-4)


def test_shared_heads_are_one_variable_with_the_summed_gradient(rng):
    shared, own = make(rng, share_heads=True), make(rng)
    own.set_weights([np.repeat(to_numpy(weight), NUM_HEADS, axis=0) for weight in shared.weights])
    ids = random_ids(rng, (3, 7), 2)
    random = rng.normal(size=(3, NUM_HEADS, 7, 7)).astype("float32")

    def gradient(bias):
        return gradients(lambda: weighted_sum(bias(ids), random), bias.weights)[0]

    assert_close(shared(ids), own(ids))
    assert_close(gradient(shared), gradient(own).sum(axis=0, keepdims=True))


@pytest.mark.parametrize("num_segments", [2, 3])
@pytest.mark.parametrize("share_heads, heads", [(False, NUM_HEADS), (True, 1)])
def test_inner_products_of_features_are_the_bias(rng, share_heads, heads, num_segments):
    bias = make(rng, num_segments, share_heads=share_heads)
    query_ids = random_ids(rng, (3, 2), num_segments)
    key_ids = random_ids(rng, (3, 7), num_segments)
    query_features, key_features = map(to_numpy, bias.features(query_ids, key_ids))
    assert query_features.shape == (3, 2, 1, num_segments)
    assert key_features.shape == (3, 7, heads, num_segments)
    query_features = np.broadcast_to(query_features, (3, 2, heads, num_segments))
    products = np.einsum("bthr,bshr->bhts", query_features, key_features)
    products = np.broadcast_to(products, (3, NUM_HEADS, 2, 7))
    assert_close(products, bias(query_ids, key_ids), 1e-6)


def test_features_build_the_layer_and_keys_default_to_queries(rng):
    ids = random_ids(rng, (2, 5), 2)
    query_features, key_features = SegmentBias(NUM_HEADS).features(ids)
    assert_close(query_features, np.eye(2)[ids][:, :, None])
    assert key_features.shape == (2, 5, NUM_HEADS, 2)


@pytest.mark.parametrize("share_heads", [False, True])
def test_functional_model_of_any_length(rng, share_heads):
    bias = make(rng, 3, share_heads=share_heads)
    inputs = keras.Input((None,), dtype="int32")
    outputs = bias(inputs)
    assert outputs.shape == (None, NUM_HEADS, None, None)
    model = keras.Model(inputs, ops.sum(outputs, axis=(2, 3)))
    for length in (3, 7):
        ids = random_ids(rng, (2, length), 3)
        expected = expected_bias(bias, ids).sum((2, 3))
        assert_close(model(ids), expected)
        assert_close(model.predict(ids, verbose=0), expected)


@pytest.mark.any_backend
@pytest.mark.parametrize("argument, value", [("num_heads", "2"), ("num_segments", None)])
def test_sizes_must_be_positive_integers(argument, value):
    arguments = {"num_heads": NUM_HEADS, "num_segments": 2, argument: value}
    with pytest.raises(ValueError, match=f"`{argument}` must be a positive integer.*{value!r}"):
        SegmentBias(**arguments)


@pytest.mark.parametrize("method", ["__call__", "features"])
@pytest.mark.parametrize("bad_id", [-1, 3])
@pytest.mark.parametrize("side", ["query", "key"])
def test_ids_out_of_range_are_refused(rng, method, side, bad_id):
    bias = make(rng, 3)
    good, bad = random_ids(rng, (2, 5), 3), random_ids(rng, (2, 5), 3)
    bad[1, 3] = bad_id
    ids = (bad, good) if side == "query" else (good, bad)
    with pytest.raises(ValueError, match=r"`segment_ids`.*num_segments.*3\).*"):
        getattr(bias, method)(*map(ops.convert_to_tensor, ids))


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch compiles nothing here")
def test_ids_out_of_range_add_nothing_in_a_compiled_function(rng):
    """Their values are not known when the function is compiled, so they are not refused."""
    bias = make(rng, 3)
    query_ids, key_ids = random_ids(rng, (2, 5), 3), random_ids(rng, (2, 7), 3)
    expected = to_numpy(bias(query_ids, key_ids)).copy()
    query_ids[0, 3], key_ids[1, 2] = -1, 3
    expected[0, :, 3], expected[1, :, :, 2] = 0, 0
    if keras.backend.backend() == "jax":
        import jax

        scores = jax.jit(bias)(query_ids, key_ids)
    else:
        import tensorflow as tf

        scores = tf.function(bias)(tf.constant(query_ids), tf.constant(key_ids))
    assert_close(scores, expected, 1e-6)


def test_as_a_layer(rng):
    bias = SegmentBias(
        NUM_HEADS,
        3,
        share_heads=True,
        initializer=keras.initializers.RandomNormal(stddev=0.5, seed=3),
        name="segments",
    )
    # A pair of segments that does not occur would have no gradient.
    ids = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]], "int32")
    check_layer(bias, ids, random_ids(rng, (2, 7), 3))


@pytest.mark.parametrize("num_segments", [2, 3])
def test_features_up_to_softmax_leave_out_the_scores_of_the_first_segment(rng, num_segments):
    bias = make(rng, num_segments)
    query_ids = random_ids(rng, (3, 2), num_segments)
    key_ids = random_ids(rng, (3, 7), num_segments)
    features = bias.features(query_ids, key_ids, up_to_softmax=True)
    query_features, key_features = map(to_numpy, features)
    assert query_features.shape[-1] == num_segments - 1
    products = np.einsum("bthr,bsr->bhts", query_features, key_features[:, :, 0])
    first = to_numpy(bias(query_ids, np.zeros((3, 1), "int32")))
    assert_close(products, to_numpy(bias(query_ids, key_ids)) - first)
