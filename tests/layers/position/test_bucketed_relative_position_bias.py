import keras
import numpy as np
import pytest

from keras_diet.layers import BucketedRelativePositionBias, cache_positions
from tests import reference
from tests.helpers import (
    assert_close,
    check_layer,
    compiled,
    gradients,
    randomize,
    to_numpy,
    weighted_sum,
)

NUM_HEADS, NUM_BUCKETS, MAX_DISTANCE = 3, 14, 11


def make(rng, **kwargs):
    arguments = {"num_buckets": NUM_BUCKETS, "max_distance": MAX_DISTANCE, **kwargs}
    bias = BucketedRelativePositionBias(NUM_HEADS, **arguments)
    bias.build()
    return randomize(bias, rng)


def sequence(length, batch_size=2):
    return np.zeros((batch_size, length, 7), "float32")


def call(bias, query_length, key_length, start_index=0):
    query, key = sequence(query_length), sequence(key_length)
    return compiled(lambda: bias(query, key, start_index=start_index))()


def expected_bias(bias, query_length, key_length, start_index=0, embedding=None):
    return reference.bucketed_relative_position_bias(
        to_numpy(bias.bucket_embedding) if embedding is None else embedding,
        query_length,
        key_length,
        bias.max_distance,
        bias.bidirectional,
        start_index,
        num_heads=NUM_HEADS,
    )


@pytest.mark.parametrize("bidirectional, share_heads", [(True, False), (False, True)])
@pytest.mark.parametrize(
    "query_length, key_length, start_index",
    # Distances below `max_distance`, above it, and far above it.
    [(5, 5, 0), (3, 7, 0), (23, 29, 0), (1, 17, 16), (3, 5, 41), (1, 1, 0)],
)
def test_equals_reference(rng, bidirectional, share_heads, query_length, key_length, start_index):
    bias = make(rng, bidirectional=bidirectional, share_heads=share_heads)
    scores = call(bias, query_length, key_length, start_index)
    assert_close(scores, expected_bias(bias, query_length, key_length, start_index))


def bins(rng, distances, **kwargs):
    """The bins of keys at these distances; each scalar is the number of its bin."""
    bias = make(rng, **kwargs)
    bias.bucket_embedding.assign(
        np.broadcast_to(np.arange(bias.num_buckets)[:, None], (bias.num_buckets, NUM_HEADS))
    )
    # The query is at 200.
    scores = to_numpy(call(bias, 1, 401, 200))[0, 0, 0]
    return [int(scores[200 + distance]) for distance in distances]


def test_bins_of_t5(rng):
    """The bins that T5's code gives for its default sizes."""
    sizes = {"num_buckets": 32, "max_distance": 128}
    distances = [0, -1, -7, -8, -11, -12, -16, -23, -32, -64, -91, -128, -200]
    expected = [0, 1, 7, 8, 8, 9, 10, 11, 12, 14, 15, 15, 15]
    assert bins(rng, distances, **sizes) == expected
    after = [-distance for distance in distances[1:]]
    assert bins(rng, after, **sizes) == [bucket + 16 for bucket in expected[1:]]
    causal = {**sizes, "bidirectional": False}
    assert bins(rng, [3, 200, 0, -15, -16, -127, -128], **causal) == [0, 0, 0, 15, 16, 31, 31]


def test_bins_on_the_border_are_rounded_as_in_t5(rng):
    """T5 computes logarithms in float32. In float64 the keys at 8, 16 and 64 are one bin lower."""
    sizes = {"num_buckets": 18, "max_distance": 128}
    distances = [-7, -8, -15, -16, -31, -32, -63, -64, -128]
    assert bins(rng, distances, **sizes) == [4, 5, 5, 6, 6, 7, 7, 8, 8]
    causal = {**sizes, "num_buckets": 9, "bidirectional": False}
    assert bins(rng, distances, **causal) == [4, 5, 5, 6, 6, 7, 7, 8, 8]


# NumPy computes the bins on every backend, and the tests above use them there.
@pytest.mark.any_backend
def test_equals_t5_of_hugging_face(rng):
    import torch
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    def draw(low, high):
        return int(rng.integers(low, high))

    for index in range(20):
        bidirectional = index % 2 == 0
        num_buckets = 2 * draw(2, 20)
        max_distance = num_buckets + draw(1, 150)
        config = T5Config(
            num_heads=NUM_HEADS,
            relative_attention_num_buckets=num_buckets,
            relative_attention_max_distance=max_distance,
            is_decoder=not bidirectional,
        )
        theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        bias = make(
            rng, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional
        )
        start_index = draw(0, 200)
        with torch.no_grad():
            theirs.relative_attention_bias.weight.copy_(
                torch.tensor(to_numpy(bias.bucket_embedding))
            )
            expected = theirs.compute_bias(61, 199, past_seen_tokens=start_index).numpy()
        assert_close(call(bias, 61, 199, start_index), expected, 0)


@pytest.mark.parametrize("share_heads, heads", [(False, NUM_HEADS), (True, 1)])
def test_weights(rng, share_heads, heads):
    bias = make(rng, share_heads=share_heads)
    assert [(weight.name, weight.shape) for weight in bias.weights] == [
        ("bucket_embedding", (NUM_BUCKETS, heads)),
    ]


@pytest.mark.parametrize("bidirectional, share_heads", [(True, True), (False, False)])
def test_gradients_equal_finite_differences(rng, share_heads, bidirectional):
    bias = make(rng, share_heads=share_heads, bidirectional=bidirectional)
    random = rng.normal(size=(1, NUM_HEADS, 13, 17)).astype("float32")
    query, key = sequence(13), sequence(17)
    (gradient,) = gradients(
        lambda: weighted_sum(bias(query, key, start_index=2), random), bias.weights
    )
    embedding = to_numpy(bias.bucket_embedding)

    def loss(embedding):
        return np.sum(expected_bias(bias, 13, 17, 2, embedding) * random)

    for flat_index in rng.choice(embedding.size, size=5, replace=False):
        index = np.unravel_index(flat_index, embedding.shape)
        assert_close(gradient[index], reference.finite_difference(loss, embedding, index), 1e-4)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_decoder_step_by_step(rng, bidirectional):
    bias = make(rng, bidirectional=bidirectional)
    scores = to_numpy(call(bias, 17, 17))
    for start_index in (0, 1, 5, 16):
        step = call(bias, 1, 17, start_index)
        assert_close(step, scores[:, :, start_index : start_index + 1], 1e-7)
    future = scores[:, :, 0, 1:]
    # Without `bidirectional`, keys after the query have the bin of distance 0.
    assert (np.ptp(future, axis=-1) == 0).all() != bidirectional


def test_max_length_none_allows_any_length(rng):
    scores = to_numpy(make(rng)(sequence(101, batch_size=1)))
    assert scores.shape == (1, NUM_HEADS, 101, 101)
    assert_close(scores[:, :, 1:, 1:], scores[:, :, :-1, :-1], 0)
    assert np.ptp(scores[0, 0, 50, 50 + MAX_DISTANCE :]) == 0


def test_too_long_sequences_name_the_argument(rng):
    with pytest.raises(ValueError, match=r"query is longer than `max_length`.*length=8"):
        make(rng, max_length=7)(sequence(8))
    with pytest.raises(ValueError, match=r"key is longer than `max_length`.*length=8"):
        make(rng, max_length=7)(sequence(2), sequence(8))


def test_caching_needs_max_length(rng):
    with pytest.raises(ValueError, match=r"cannot be cached.*`max_length`.*max_length=None"):
        cache_positions(make(rng))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "argument, value",
    [("num_heads", None), ("num_buckets", 6.0), ("max_distance", True), ("max_length", 0)],
)
def test_sizes_must_be_positive_integers(argument, value):
    arguments = {"num_heads": NUM_HEADS, argument: value}
    with pytest.raises(ValueError, match=f"`{argument}` must be a positive integer.*{value!r}"):
        BucketedRelativePositionBias(**arguments)


@pytest.mark.any_backend
@pytest.mark.parametrize("num_buckets, bidirectional", [(2, True), (7, True), (1, False)])
def test_too_few_or_odd_numbers_of_bins_are_refused(num_buckets, bidirectional):
    with pytest.raises(ValueError, match=f"`num_buckets` must be at least.*{num_buckets}"):
        BucketedRelativePositionBias(NUM_HEADS, num_buckets, bidirectional=bidirectional)


@pytest.mark.any_backend
@pytest.mark.parametrize("max_distance, bidirectional", [(8, True), (16, False)])
def test_max_distance_must_exceed_the_exact_bins(max_distance, bidirectional):
    with pytest.raises(ValueError, match=rf"`max_distance` must be above {max_distance}.*bins"):
        BucketedRelativePositionBias(NUM_HEADS, 32, max_distance, bidirectional)
    BucketedRelativePositionBias(NUM_HEADS, 32, max_distance + 1, bidirectional)


def test_as_a_layer():
    bias = BucketedRelativePositionBias(
        NUM_HEADS,
        num_buckets=6,
        max_distance=5,
        bidirectional=False,
        share_heads=True,
        max_length=13,
        initializer=keras.initializers.RandomNormal(stddev=0.5, seed=3),
        name="positions",
    )
    check_layer(bias, sequence(11), sequence(13))
