import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import SegmentBias
from tests import reference
from tests.helpers import assert_close, check_layer, gradients, randomize, to_numpy, weighted_sum

NUM_HEADS = 5
variants = pytest.mark.parametrize(
    "num_segments, share_heads", [(1, False), (2, True), (2, False), (3, True), (3, False)]
)


def make(rng, num_segments=2, **kwargs):
    bias = SegmentBias(NUM_HEADS, num_segments, **kwargs)
    bias.build()
    return randomize(bias, rng)


def random_ids(rng, shape, num_segments):
    return rng.integers(num_segments, size=shape).astype("int32")


def expected_bias(bias, *segment_ids, embedding=None):
    embedding = to_numpy(bias.segment_embedding) if embedding is None else embedding
    return reference.segment_bias(embedding, *segment_ids, num_heads=NUM_HEADS)


@variants
def test_scores_and_features(rng, num_segments, share_heads):
    bias = make(rng, num_segments, share_heads=share_heads)
    heads = 1 if share_heads else NUM_HEADS
    (weight,) = bias.weights
    assert weight.name == "segment_embedding"
    assert weight.shape == (heads, num_segments, num_segments)
    ids = random_ids(rng, (3, 2), num_segments), random_ids(rng, (3, 7), num_segments)
    expected = expected_bias(bias, *ids)
    assert_close(bias(*ids), expected)
    assert_close(bias(ids[0]), expected_bias(bias, ids[0]))
    assert bias.compute_output_shape((3, 2), (3, 7)) == expected.shape
    query, key = map(to_numpy, bias.features(*ids))
    assert query.shape == (3, 2, 1, num_segments)
    assert key.shape == (3, 7, heads, num_segments)
    products = np.einsum("btr,bshr->bhts", query[:, :, 0], key)
    assert_close(np.broadcast_to(products, expected.shape), expected, 1e-6)
    # Up to softmax, the scores of the first segment are left out, and a feature less is needed.
    query, key = map(to_numpy, bias.features(*ids, up_to_softmax=True))
    if num_segments > 1:
        assert query.shape[-1] == num_segments - 1
        products = np.einsum("bthr,bsr->bhts", query, key[:, :, 0])
        first = expected_bias(bias, ids[0], np.zeros((3, 1), "int32"))
        assert_close(np.broadcast_to(products, expected.shape), expected - first)


@pytest.mark.any_backend
def test_query_segment_is_the_row(rng):
    bias = make(rng)
    bias.segment_embedding.assign(np.tile([[0.0, 1.0], [2.0, 3.0]], (NUM_HEADS, 1, 1)))
    for dtype in ("int32", "int64", "uint8"):
        scores = bias(np.array([[0, 1]], dtype))
        assert_close(scores[0, 3], np.array([[0.0, 1.0], [2.0, 3.0]]))
    query, key = SegmentBias(NUM_HEADS).features(np.array([[0, 1, 1]]))
    assert_close(query, np.eye(2)[[[0, 1, 1]]][:, :, None])
    assert key.shape == (1, 3, NUM_HEADS, 2)


@pytest.mark.parametrize("share_heads", [False, True])
def test_gradients_equal_finite_differences(rng, share_heads):
    bias = make(rng, 3, share_heads=share_heads)
    query_ids, key_ids = random_ids(rng, (2, 5), 3), random_ids(rng, (2, 7), 3)
    random = rng.normal(size=(2, NUM_HEADS, 5, 7)).astype("float32")
    (gradient,) = gradients(lambda: weighted_sum(bias(query_ids, key_ids), random), bias.weights)
    values = to_numpy(bias.segment_embedding)

    def loss(embedding):
        return np.sum(expected_bias(bias, query_ids, key_ids, embedding=embedding) * random)

    expected = np.zeros(values.shape)
    for index in np.ndindex(values.shape):
        expected[index] = reference.finite_difference(loss, values, index)
    assert_close(gradient, expected, 1e-4)


def test_as_a_layer_and_in_a_functional_model(rng):
    initializer = keras.initializers.RandomNormal(stddev=0.5, seed=3)
    bias = SegmentBias(NUM_HEADS, 3, share_heads=True, initializer=initializer, name="segments")
    # A pair of segments that does not occur would have no gradient.
    ids = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]], "int32")
    check_layer(bias, ids, random_ids(rng, (2, 7), 3))
    inputs = keras.Input((None,), dtype="int32")
    outputs = bias(inputs)
    assert outputs.shape == (None, NUM_HEADS, None, None)
    model = keras.Model(inputs, ops.sum(outputs, axis=(2, 3)))
    for length in (3, 7):
        ids = random_ids(rng, (2, length), 3)
        assert_close(model.predict(ids, verbose=0), expected_bias(bias, ids).sum((2, 3)))


@pytest.mark.any_backend
@pytest.mark.parametrize("method", ["__call__", "features"])
@pytest.mark.parametrize("bad_id", [-1, 3, 0.5, np.nan])
@pytest.mark.parametrize("side", ["query", "key"])
def test_ids_out_of_range_are_refused(rng, method, side, bad_id):
    good = random_ids(rng, (2, 5), 3)
    bad = good.astype("float32" if bad_id not in (-1, 3) else "int32")
    bad[1, 3] = bad_id
    ids = (bad, good) if side == "query" else (good, bad)
    with pytest.raises(ValueError, match=r"`segment_ids` must be integers in .*num_segments.*3\)"):
        getattr(make(rng, 3), method)(*map(ops.convert_to_tensor, ids))


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


@pytest.mark.any_backend
@pytest.mark.parametrize("argument", ["num_heads", "num_segments"])
def test_sizes_must_be_positive_integers(argument):
    with pytest.raises(ValueError, match=f"`{argument}` must be a positive integer.*'2'"):
        SegmentBias(**{"num_heads": NUM_HEADS, argument: "2"})
