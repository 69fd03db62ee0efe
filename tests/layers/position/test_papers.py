"""What papers say beyond the contract: bins of T5, slopes of ALiBi, limits, large positions."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    BiasedMultiHeadAttention,
    BucketedRelativePositionBias,
    FirePositionBias,
    KerplePositionBias,
    SandwichPositionBias,
    UntiedPositionBias,
)
from keras_diet.layers.position.alibi_position_bias import alibi_slopes
from tests import reference
from tests.helpers import assert_close, gradients, to_numpy, weighted_sum
from tests.layers.bias_layers import expected_scores, make_bias, sequence

NUM_HEADS = 3
any_backend = pytest.mark.any_backend


def scores_of(bias, query_length, key_length, start=0):
    return to_numpy(bias(sequence(query_length), sequence(key_length), start_index=start))


# === T5 ===


def bins(distances, **kwargs):
    """The bins of keys at these distances from the query at 200; each scalar is its bin."""
    bias = BucketedRelativePositionBias(1, **kwargs)
    bias.build()
    bias.bucket_embedding.assign(np.arange(bias.num_buckets)[:, None])
    scores = scores_of(bias, 1, 401, 200)[0, 0, 0]
    return [int(scores[200 + distance]) for distance in distances]


@any_backend
def test_bins_of_t5():
    """The bins that T5's code gives for its default sizes."""
    sizes = {"num_buckets": 32, "max_distance": 128}
    distances = [0, -1, -7, -8, -11, -12, -16, -23, -32, -64, -91, -128, -200]
    expected = [0, 1, 7, 8, 8, 9, 10, 11, 12, 14, 15, 15, 15]
    assert bins(distances, **sizes) == expected
    after = [-distance for distance in distances[1:]]
    assert bins(after, **sizes) == [bucket + 16 for bucket in expected[1:]]
    causal = {**sizes, "bidirectional": False}
    assert bins([3, 200, 0, -15, -16, -127, -128], **causal) == [0, 0, 0, 15, 16, 31, 31]


@any_backend
def test_equals_t5_of_hugging_face(rng):
    import torch
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    for index in range(20):
        num_buckets = 2 * int(rng.integers(2, 20))
        max_distance = num_buckets + int(rng.integers(1, 150))
        config = T5Config(
            num_heads=NUM_HEADS,
            relative_attention_num_buckets=num_buckets,
            relative_attention_max_distance=max_distance,
            is_decoder=index % 2 == 1,
        )
        theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        bias = BucketedRelativePositionBias(NUM_HEADS, num_buckets, max_distance, index % 2 == 0)
        bias.build()
        bias.bucket_embedding.assign(rng.normal(size=bias.bucket_embedding.shape))
        start = int(rng.integers(0, 200))
        with torch.no_grad():
            weight = torch.tensor(to_numpy(bias.bucket_embedding))
            theirs.relative_attention_bias.weight.copy_(weight)
            expected = theirs.compute_bias(61, 199, past_seen_tokens=start).numpy()
        assert_close(scores_of(bias, 61, 199, start), expected, 0)


@any_backend
@pytest.mark.parametrize("lengths", [(23, 29, 0), (3, 5, 41)], ids=str)
@pytest.mark.parametrize("name", ["t5", "t5_causal", "alibi", "kerple_log", "fire", "sandwich"])
def test_any_length_without_max_length(rng, name, lengths):
    bias = make_bias(name, rng, max_length=None)
    assert_close(scores_of(bias, *lengths), expected_scores(bias, *lengths), 1e-4)


@any_backend
def test_bins_that_are_refused():
    for num_buckets, bidirectional in [(2, True), (7, True), (1, False)]:
        with pytest.raises(ValueError, match=f"`num_buckets` must be at least.*{num_buckets}"):
            BucketedRelativePositionBias(3, num_buckets, bidirectional=bidirectional)
    for max_distance, bidirectional in [(8, True), (16, False)]:
        with pytest.raises(ValueError, match=rf"`max_distance` must be above {max_distance}.*bins"):
            BucketedRelativePositionBias(3, 32, max_distance, bidirectional)
        BucketedRelativePositionBias(3, 32, max_distance + 1, bidirectional)


# === ALiBi and Sandwich ===


# From section 3 of Press et al. for 8 and 16 heads, and between for 6 and 3.
@any_backend
@pytest.mark.parametrize(
    "num_heads, slopes",
    [
        (1, [1 / 256]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
        (3, [1 / 16, 1 / 256, 1 / 4]),
    ],
)
def test_slopes_of_alibi(num_heads, slopes):
    assert_close(alibi_slopes(num_heads), np.array(slopes), 1e-6)
    assert_close(alibi_slopes(16)[:3], 0.5 ** np.array([0.5, 1.0, 1.5]), 1e-6)


@any_backend
def test_sandwich_of_the_paper():
    bias = SandwichPositionBias(12)
    assert bias.position_dim == 128
    scores = scores_of(bias, 1, 8)[0, :, 0]
    # The first head of twelve divides by 2 / 3, the last one by 8.
    assert_close(scores[0], 12 * scores[11])
    # Inner products of the sinusoidal encoding, up to a constant which softmax removes.
    positions = reference.sinusoidal_positions(9, 10)
    found = scores_of(SandwichPositionBias(3, position_dim=10), 9, 9)[0, 2]
    assert_close(found - positions @ positions.T / 8, np.full((9, 9), -5 / 8), 1e-5)
    with pytest.raises(ValueError, match=r"`position_dim` must be even.*position_dim=7"):
        SandwichPositionBias(3, position_dim=7)


@any_backend
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sandwich_in_half_precision_tells_near_keys_apart(dtype):
    bias = SandwichPositionBias(12, dtype=dtype)
    assert_close(scores_of(bias, 1, 6), expected_scores(bias, 1, 6), 1e-2)
    # Half precision cannot hold most of these distances.
    bias = SandwichPositionBias(3, position_dim=10, dtype=dtype)
    expected = expected_scores(bias, 1, 3003)
    assert_close(scores_of(bias, 1, 3003), expected, 1e-2)


# === KERPLE ===


def kerple(kernel, r1, r2, **kwargs):
    bias = KerplePositionBias(len(r1), kernel=kernel, **kwargs)
    bias.build()
    bias.r1.assign(r1)
    bias.r2.assign(r2)
    return bias


@pytest.mark.parametrize("kernel, largest", [("log", 5.0), ("power", 2.0)])
def test_weights_of_kerple_outside_of_their_limits(kernel, largest):
    """The scores and gradients are those at the limit."""
    bias = kerple(kernel, [-1.0, 3.0, 3.0], [0.5, -1.0, 5.0])
    at_limit = {"r1": np.array([0.01, 3.0, 3.0]), "r2": np.array([0.5, 0.01, largest])}
    assert_close(bias(sequence(4), sequence(6)), expected_scores(bias, 4, 6, 0, at_limit))
    random = np.random.default_rng(3).normal(size=(1, 3, 4, 6))
    found = gradients(lambda: weighted_sum(bias(sequence(4), sequence(6)), random), bias.weights)
    for name, gradient in zip(("r1", "r2"), found, strict=True):

        def loss(array, name=name):
            return np.sum(expected_scores(bias, 4, 6, 0, {**at_limit, name: array}) * random)

        for head in range(3):
            slope = reference.finite_difference(loss, at_limit[name], (head,))
            np.testing.assert_allclose(gradient[head], slope, 1e-3, 1e-3)


@any_backend
@pytest.mark.parametrize("kernel, ranges", [("log", (2, 1)), ("power", (1, 2))])
def test_initial_values_of_kerple(kernel, ranges):
    bias = KerplePositionBias(500, kernel=kernel)
    bias.build()
    for weight, largest in zip(bias.weights, ranges, strict=True):
        values = to_numpy(weight)
        assert 0 <= values.min() < 0.03 * largest
        assert 0.97 * largest < values.max() <= largest
    assert np.abs(to_numpy(bias.r1) / ranges[0] - to_numpy(bias.r2) / ranges[1]).max() > 0.1


@any_backend
def test_an_optimizer_keeps_the_weights_of_kerple_within_their_limits():
    for kernel, largest in (("log", 10.6), ("power", 2.0)):
        bias = kerple(kernel, [0.7, 1.9, 0.3], [0.2, 1.1, 0.6])
        signs = np.array([1.0, -1.0, -1.0], "float32")
        steps = [keras.ops.convert_to_tensor(signs) for _ in range(2)]
        keras.optimizers.SGD(10.0).apply(steps, [bias.r1, bias.r2])
        assert_close(bias.r1, np.array([0.01, 11.9, 10.3]))
        assert_close(to_numpy(bias.r2)[[0, 2]], np.array([0.01, largest]))


@any_backend
def test_float16_holds_the_scores_of_distant_keys():
    bias = kerple("power", [1.0, 1.0, 0.01], [2.0, 0.5, 2.0], dtype="mixed_float16")
    scores = scores_of(bias, 1, 301)[0, :, 0]
    assert_close(scores[:, 300], np.array([-9e4, -np.sqrt(300), -900]), 1e-3)
    assert_close(scores[0, :4], -(np.arange(4.0) ** 2), 1e-3)
    with pytest.raises(ValueError, match=r"`kernel` must be one of 'log', 'power'.*'linear'"):
        KerplePositionBias(3, kernel="linear")


# === FIRE ===


@any_backend
@pytest.mark.parametrize("c, multiplier", [(-0.7, 1.3), (0.7, -1.3), (0.0, 1.3), (0.7, 0.0)])
def test_scalars_of_fire_of_any_sign(rng, c, multiplier):
    bias = make_bias("fire", rng)
    bias.c.assign(c)
    bias.multiplier.assign(multiplier)
    scores = scores_of(bias, 7, 11)
    assert np.isfinite(scores).all()
    if c and multiplier:
        assert_close(scores, expected_scores(bias, 7, 11))


@any_backend
def test_initial_values_of_fire():
    bias = FirePositionBias(NUM_HEADS)
    bias.build()
    assert (bias.hidden_dim, bias.threshold) == (32, 512)
    assert float(to_numpy(bias.c)) == pytest.approx(0.1)
    assert float(to_numpy(bias.multiplier)) == 1
    for weight, bound in zip(bias.weights[2:], (1, 1, 32**-0.5, 32**-0.5), strict=True):
        values = to_numpy(weight)
        assert values.min() < 0 < values.max() or values.size == NUM_HEADS
        assert bound / 8 < np.abs(values).max() <= bound
    with pytest.raises(ValueError, match="`threshold` must be a positive, finite number"):
        FirePositionBias(NUM_HEADS, threshold=0)


@any_backend
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_fire_in_half_precision_tells_near_keys_apart_at_large_positions(dtype):
    exact, half = (
        make_bias("fire", np.random.default_rng(7), max_length=None, dtype=name)
        for name in ("float32", dtype)
    )
    expected, found = (scores_of(bias, 1, 5001, 5000)[..., -20:] for bias in (exact, half))
    assert np.abs(expected[..., -1] - expected[..., 0]).max() > 0.1
    assert_close(found, expected, 2e-2)


# === TUPE ===


@any_backend
def test_cls_and_scale_of_tupe(rng):
    """Softmax removes the scores from the first token. Tokens have the scale of positions."""
    bias = make_bias("tupe_rel", rng)
    from_cls, to_cls = to_numpy(bias.cls_scores)
    scores = scores_of(bias, 5, 5)[0]
    for h in range(NUM_HEADS):
        assert_close(scores[h, 0], np.full(5, from_cls[h]), 1e-7)
        assert_close(scores[h, 1:, 0], np.full(4, to_cls[h]), 1e-7)
    attention = BiasedMultiHeadAttention(NUM_HEADS, 2, scale=4**-0.5)
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    attention.build(x.shape, x.shape)
    random = rng.normal(size=x.shape).astype("float32")
    (gradient,) = gradients(
        lambda: weighted_sum(attention(x, x, attention_bias=bias(x)), random), [bias.cls_scores]
    )
    assert np.abs(gradient[0]).max() < 1e-6
    assert np.abs(gradient[1]).min() > 1e-5


@any_backend
def test_bins_of_tupe():
    bias = UntiedPositionBias(3, 2, 7, 5, relative=True).relative_bias
    assert (bias.num_buckets, bias.max_distance) == (32, 128)
    for argument in ("num_buckets", "max_distance"):
        with pytest.raises(ValueError, match=f"`relative=True`.*{argument}=16"):
            UntiedPositionBias(3, 2, 7, 5, **{argument: 16})


# === DIET ===


@any_backend
def test_row_of_a_distance(rng):
    bias = make_bias("relative", rng)
    embedding = np.zeros((21, NUM_HEADS))
    # Query 5 and key 2 are at distance 3, in the head 1.
    embedding[5 - 2 + 11 - 1, 1] = 1.0
    bias.relative_embedding.assign(embedding)
    assert np.argwhere(scores_of(bias, 7, 7)).tolist() == [[0, 1, i, i - 3] for i in range(3, 7)]


# === Sinusoids ===
