import keras
import numpy as np
import pytest

from keras_diet.layers import RelativePositionBias
from tests import reference
from tests.helpers import assert_close, check_layer, gradients, randomize, to_numpy, weighted_sum

NUM_HEADS, MAX_LENGTH = 3, 11


def make(rng, **kwargs):
    bias = RelativePositionBias(NUM_HEADS, MAX_LENGTH, **kwargs)
    bias.build()
    return randomize(bias, rng)


def sequence(length, batch_size=2):
    return np.zeros((batch_size, length, 7), "float32")


def expected_bias(bias, query_length, key_length, start_index=0):
    embedding = to_numpy(bias.relative_embedding)
    return reference.relative_position_bias(
        embedding, query_length, key_length, start_index, num_heads=NUM_HEADS
    )


@pytest.mark.parametrize(
    "query_length, key_length, start_index",
    [(7, 7, 0), (11, 11, 0), (3, 7, 0), (7, 2, 0), (2, 11, 5), (1, 7, 10), (1, 1, 0), (1, 11, 0)],
)
@pytest.mark.parametrize("share_heads", [False, True])
def test_equals_reference(rng, share_heads, query_length, key_length, start_index):
    bias = make(rng, share_heads=share_heads)
    scores = bias(sequence(query_length), sequence(key_length), start_index=start_index)
    assert_close(scores, expected_bias(bias, query_length, key_length, start_index))


def test_row_of_a_distance(rng):
    bias = make(rng)
    embedding = np.zeros((2 * MAX_LENGTH - 1, NUM_HEADS))
    # Query 5 and key 2 are at distance 3, in the head 1.
    embedding[5 - 2 + MAX_LENGTH - 1, 1] = 1.0
    bias.relative_embedding.assign(embedding)
    scores = to_numpy(bias(sequence(7)))
    assert np.argwhere(scores).tolist() == [[0, 1, i, i - 3] for i in range(3, 7)]


@pytest.mark.parametrize("share_heads, heads", [(False, NUM_HEADS), (True, 1)])
def test_weights(rng, share_heads, heads):
    bias = make(rng, share_heads=share_heads)
    assert [(weight.name, weight.shape) for weight in bias.weights] == [
        ("relative_embedding", (2 * MAX_LENGTH - 1, heads)),
    ]


def test_initializer():
    bias = RelativePositionBias(NUM_HEADS, MAX_LENGTH, initializer="ones")
    assert_close(bias(sequence(3)), np.ones((1, NUM_HEADS, 3, 3)))


@pytest.mark.parametrize("share_heads", [False, True])
@pytest.mark.parametrize("query_length, key_length, start_index", [(5, 5, 0), (3, 7, 2)])
def test_gradients_equal_finite_differences(
    rng, share_heads, query_length, key_length, start_index
):
    bias = make(rng, share_heads=share_heads)
    random = rng.normal(size=(1, NUM_HEADS, query_length, key_length)).astype("float32")
    query, key = sequence(query_length), sequence(key_length)
    (gradient,) = gradients(
        lambda: weighted_sum(bias(query, key, start_index=start_index), random),
        [bias.relative_embedding],
    )
    embedding = to_numpy(bias.relative_embedding)

    def loss(embedding):
        scores = reference.relative_position_bias(
            embedding, query_length, key_length, start_index, num_heads=NUM_HEADS
        )
        return np.sum(scores * random)

    expected = np.zeros(embedding.shape)
    for index in np.ndindex(embedding.shape):
        expected[index] = reference.finite_difference(loss, embedding, index)
    assert_close(gradient, expected, 1e-4)


def test_shared_heads_are_one_variable_with_the_summed_gradient(rng):
    shared, own = make(rng, share_heads=True), make(rng)
    own.set_weights([np.repeat(to_numpy(weight), NUM_HEADS, axis=1) for weight in shared.weights])
    random = rng.normal(size=(1, NUM_HEADS, 5, 5)).astype("float32")

    def gradient(bias):
        return gradients(lambda: weighted_sum(bias(sequence(5)), random), bias.weights)[0]

    assert_close(shared(sequence(5)), own(sequence(5)))
    assert_close(gradient(shared), gradient(own).sum(axis=1, keepdims=True))


def test_is_translation_invariant(rng):
    scores = to_numpy(make(rng)(sequence(7)))
    assert_close(scores[:, :, 1:, 1:], scores[:, :, :-1, :-1], 1e-7)
    # Equal scores would be invariant as well. These differ between distances `d` and `-d`.
    assert np.abs(scores - scores.swapaxes(2, 3)).max() > 0.1


def test_distances_do_not_depend_on_the_lengths(rng):
    bias = make(rng)
    assert_close(bias(sequence(3), sequence(5)), to_numpy(bias(sequence(7)))[:, :, :3, :5], 1e-7)


@pytest.mark.any_backend
@pytest.mark.parametrize("argument, value", [("num_heads", 0), ("max_length", 2.0)])
def test_sizes_must_be_positive_integers(argument, value):
    arguments = {"num_heads": NUM_HEADS, "max_length": MAX_LENGTH, argument: value}
    with pytest.raises(ValueError, match=f"`{argument}` must be a positive integer.*{value!r}"):
        RelativePositionBias(**arguments)


def test_as_a_layer():
    bias = RelativePositionBias(
        NUM_HEADS,
        7,
        share_heads=True,
        initializer=keras.initializers.RandomNormal(stddev=0.5, seed=3),
        name="positions",
    )
    check_layer(bias, sequence(5), sequence(7))
