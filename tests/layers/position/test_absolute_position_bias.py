import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import AbsolutePositionBias
from tests import reference
from tests.helpers import assert_close, check_layer, gradients, randomize, to_numpy, weighted_sum

NUM_HEADS, MAX_LENGTH, RANK = 3, 11, 5


def make(rng, **kwargs):
    bias = AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, RANK, **kwargs)
    bias.build()
    return randomize(bias, rng)


def sequence(length, batch_size=2):
    return np.zeros((batch_size, length, 7), "float32")


def expected_bias(bias, query_length, key_length, start_index=0):
    return reference.absolute_position_bias(
        to_numpy(bias.query_embedding),
        to_numpy(bias.key_embedding),
        query_length,
        key_length,
        start_index,
        num_heads=NUM_HEADS,
    )


@pytest.mark.parametrize(
    "query_length, key_length, start_index",
    [(7, 7, 0), (11, 11, 0), (3, 7, 0), (7, 2, 0), (2, 11, 5), (1, 7, 10), (1, 1, 0)],
)
@pytest.mark.parametrize("share_heads", [False, True])
def test_equals_reference(rng, share_heads, query_length, key_length, start_index):
    bias = make(rng, share_heads=share_heads)
    scores = bias(sequence(query_length), sequence(key_length), start_index=start_index)
    assert_close(scores, expected_bias(bias, query_length, key_length, start_index))


@pytest.mark.parametrize("key_length, keys", [(5, 5), (5, 3), (13, 13), (13, 2)])
@pytest.mark.parametrize("share_heads", [False, True])
def test_key_length_is_the_number_of_key_positions(rng, share_heads, key_length, keys):
    bias = make(rng, share_heads=share_heads, key_length=key_length)
    assert_close(bias(sequence(7), sequence(keys)), expected_bias(bias, 7, keys))


@pytest.mark.parametrize("key_length, key_rows", [(None, MAX_LENGTH), (13, 13)])
@pytest.mark.parametrize("share_heads, heads", [(False, NUM_HEADS), (True, 1)])
def test_weights(rng, share_heads, heads, key_length, key_rows):
    bias = make(rng, share_heads=share_heads, key_length=key_length)
    assert [(weight.name, weight.shape) for weight in bias.weights] == [
        ("query_embedding", (MAX_LENGTH, heads, RANK)),
        ("key_embedding", (key_rows, heads, RANK)),
    ]


def test_initializer():
    bias = AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, RANK, initializer="ones")
    assert_close(bias(sequence(3)), np.full((1, NUM_HEADS, 3, 3), RANK))


@pytest.mark.parametrize("share_heads", [False, True])
@pytest.mark.parametrize("name, index", [("query", 2), ("query", 4), ("key", 0), ("key", 6)])
def test_gradients_equal_finite_differences(rng, share_heads, name, index):
    bias = make(rng, share_heads=share_heads)
    weight = getattr(bias, f"{name}_embedding")
    values = {key: to_numpy(getattr(bias, f"{key}_embedding")) for key in ("query", "key")}
    random = rng.normal(size=(1, NUM_HEADS, 3, 7)).astype("float32")
    query, key = sequence(3), sequence(7)
    (gradient,) = gradients(lambda: weighted_sum(bias(query, key, start_index=2), random), [weight])

    def loss(embedding):
        embeddings = {**values, name: embedding}
        scores = reference.absolute_position_bias(
            embeddings["query"], embeddings["key"], 3, 7, 2, num_heads=NUM_HEADS
        )
        return np.sum(scores * random)

    for entry in np.ndindex(gradient.shape[1:]):
        slope = reference.finite_difference(loss, values[name], (index, *entry))
        assert_close(gradient[(index, *entry)], slope, 1e-4)


def test_gradient_of_unused_positions_is_zero(rng):
    bias = make(rng)
    query_gradient, key_gradient = gradients(
        lambda: ops.sum(bias(sequence(3), sequence(2), start_index=4)),
        [bias.query_embedding, bias.key_embedding],
    )
    assert np.flatnonzero(np.abs(query_gradient).sum((1, 2))).tolist() == [4, 5, 6]
    assert np.flatnonzero(np.abs(key_gradient).sum((1, 2))).tolist() == [0, 1]


def test_shared_heads_are_one_variable_with_the_summed_gradient(rng):
    shared, own = make(rng, share_heads=True), make(rng)
    own.set_weights([np.repeat(to_numpy(weight), NUM_HEADS, axis=1) for weight in shared.weights])
    random = rng.normal(size=(1, NUM_HEADS, 5, 5)).astype("float32")

    def weight_gradients(bias):
        return gradients(lambda: weighted_sum(bias(sequence(5)), random), bias.weights)

    assert_close(shared(sequence(5)), own(sequence(5)))
    for shared_gradient, gradient in zip(
        weight_gradients(shared), weight_gradients(own), strict=True
    ):
        assert_close(shared_gradient, gradient.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("start_index", [0, 3])
@pytest.mark.parametrize("share_heads, heads", [(False, NUM_HEADS), (True, 1)])
def test_inner_products_of_features_are_the_bias(rng, share_heads, heads, start_index):
    bias = make(rng, share_heads=share_heads)
    query, key = sequence(5), sequence(7)
    features = bias.features(query, key, start_index=start_index)
    query_features, key_features = map(to_numpy, features)
    assert query_features.shape == (1, 5, heads, RANK)
    assert key_features.shape == (1, 7, heads, RANK)
    products = np.einsum("bthr,bshr->bhts", query_features, key_features)
    products = np.broadcast_to(products, (1, NUM_HEADS, 5, 7))
    assert_close(products, bias(query, key, start_index=start_index), 1e-6)


def test_features_build_the_layer():
    bias = AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, RANK)
    query_features, key_features = bias.features(sequence(5))
    assert_close(query_features[0], to_numpy(bias.query_embedding)[:5])
    assert_close(key_features[0], to_numpy(bias.key_embedding)[:5])


def test_is_not_translation_invariant(rng):
    scores = to_numpy(make(rng)(sequence(7)))
    assert np.abs(scores[:, :, 1:, 1:] - scores[:, :, :-1, :-1]).max() > 0.1


def test_rank_is_the_rank_of_the_scores(rng):
    bias = AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, 2)
    bias.build()
    scores = to_numpy(randomize(bias, rng)(sequence(MAX_LENGTH)))
    assert np.linalg.matrix_rank(scores[0], tol=1e-4).tolist() == [2] * NUM_HEADS


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "argument, value", [("num_heads", True), ("max_length", None), ("rank", 2.0), ("key_length", 0)]
)
def test_sizes_must_be_positive_integers(argument, value):
    arguments = {"num_heads": NUM_HEADS, "max_length": MAX_LENGTH, "rank": RANK, argument: value}
    with pytest.raises(ValueError, match=f"`{argument}` must be a positive integer.*{value!r}"):
        AbsolutePositionBias(**arguments)


def test_sizes_may_be_numpy_integers(rng):
    bias = AbsolutePositionBias(np.int64(3), np.int32(11), np.int64(5))
    assert_close(bias(sequence(2)), expected_bias(bias, 2, 2))
    assert type(bias.get_config()["rank"]) is int


def test_too_many_keys_name_the_argument(rng):
    bias = make(rng, key_length=5)
    with pytest.raises(ValueError, match=r"key is longer than `key_length`.*length=7"):
        bias(sequence(11), sequence(7))
    with pytest.raises(ValueError, match=r"key is longer than `key_length`.*length=7"):
        bias.features(sequence(11), sequence(7))


def test_as_a_layer():
    bias = AbsolutePositionBias(
        NUM_HEADS,
        MAX_LENGTH,
        RANK,
        share_heads=True,
        key_length=7,
        initializer=keras.initializers.RandomNormal(stddev=0.5, seed=3),
        name="positions",
    )
    check_layer(bias, sequence(5), sequence(7))
