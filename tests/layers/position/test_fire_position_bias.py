"""FIRE, against its definition."""

import numpy as np
import pytest

from keras_diet.layers import DietEncoder, FirePositionBias, cache_positions
from tests.helpers import assert_close, check_layer, compiled, randomize, to_numpy

NUM_HEADS, HIDDEN_DIM = 3, 5


def make(rng, c=0.7, multiplier=1.3, **kwargs):
    arguments = {"hidden_dim": HIDDEN_DIM, "threshold": 4.5, **kwargs}
    bias = FirePositionBias(NUM_HEADS, **arguments)
    bias.build()
    randomize(bias, rng, scale=1.0)
    bias.c.assign(c)
    bias.multiplier.assign(multiplier)
    return bias


def call(bias, query_length, key_length, start_index=0):
    query, key = np.zeros((2, query_length, 7)), np.zeros((2, key_length, 7))
    return compiled(lambda: bias(query, key, start_index=start_index))()


def expected_scores(bias, query_length, key_length, start=0):
    c, multiplier, kernel, hidden_bias, output_kernel, output_bias = map(to_numpy, bias.weights)

    def psi(x):
        return np.log(abs(c) * x + 1)

    scores = np.zeros((1, NUM_HEADS, query_length, key_length))
    for h, i, j in np.ndindex(scores.shape[1:]):
        largest = max(abs(multiplier) * bias.threshold, start + i, j)
        x = psi(abs(start + i - j)) / psi(largest)
        head = 0 if bias.share_heads else h
        scores[0, h, i, j] = output_bias[head]
        for unit in range(bias.hidden_dim):
            hidden = max(x * kernel[unit] + hidden_bias[unit], 0)
            scores[0, h, i, j] += hidden * output_kernel[unit, head]
    return scores


@pytest.mark.parametrize("share_heads", [False, True])
# Positions below and above the threshold, keys before and after the query.
@pytest.mark.parametrize("lengths", [(4, 4, 0), (11, 13, 0), (7, 2, 0), (1, 9, 8), (2, 5, 23)])
def test_scores_are_the_definition(rng, share_heads, lengths):
    bias = make(rng, share_heads=share_heads)
    assert_close(call(bias, *lengths), expected_scores(bias, *lengths))


@pytest.mark.any_backend
@pytest.mark.parametrize(("c", "multiplier"), [(-0.7, 1.3), (0.7, -1.3), (0.0, 1.3), (0.7, 0.0)])
def test_scalars_of_any_sign(rng, c, multiplier):
    bias = make(rng, c, multiplier)
    scores = to_numpy(call(bias, 7, 11))
    assert np.isfinite(scores).all()
    if c and multiplier:
        positive = make(np.random.default_rng(0))
        positive.set_weights(bias.get_weights())
        positive.c.assign(abs(c))
        positive.multiplier.assign(abs(multiplier))
        assert_close(scores, call(positive, 7, 11))


@pytest.mark.any_backend
def test_causal_part_is_the_equation_of_the_paper(rng):
    """A query and the keys before it: `f(psi(i - j) / psi(max(L, i)))`."""
    bias = make(rng)
    bias.hidden_kernel.assign([1.0] + [0.0] * (HIDDEN_DIM - 1))
    bias.hidden_bias.assign([0.0] * HIDDEN_DIM)
    bias.output_kernel.assign(np.ones((HIDDEN_DIM, NUM_HEADS)))
    bias.output_bias.assign([0.0] * NUM_HEADS)
    # The network is the identity, and the first five positions are below 1.3 * 4.5.
    scores = to_numpy(call(bias, 9, 9))[0, 1]
    for i, j in zip(*np.tril_indices(9), strict=True):
        expected = np.log(0.7 * (i - j) + 1) / np.log(0.7 * max(5.85, i) + 1)
        assert scores[i, j] == pytest.approx(expected, abs=1e-5)
        assert scores[j, i] == pytest.approx(expected, abs=1e-5)


@pytest.mark.any_backend
def test_initial_values_are_those_of_the_paper():
    bias = FirePositionBias(NUM_HEADS)
    bias.build()
    assert (bias.hidden_dim, bias.threshold) == (32, 512)
    assert float(to_numpy(bias.c)) == pytest.approx(0.1)
    assert float(to_numpy(bias.multiplier)) == 1
    bounds = (1, 1, 32**-0.5, 32**-0.5)
    for weight, bound in zip(bias.weights[2:], bounds, strict=True):
        values = to_numpy(weight)
        assert values.min() < 0 < values.max() or values.size == NUM_HEADS
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > bound / 8


@pytest.mark.any_backend
def test_longer_model_has_the_same_scores(rng):
    bias, longer = make(rng, max_length=7), make(rng, max_length=4000)
    longer.set_weights(bias.get_weights())
    assert_close(call(longer, 7, 7), call(bias, 7, 7))
    # Positions above 2,048 are not equal in float16, and the distances are not either.
    half = make(rng, dtype="mixed_float16")
    half.set_weights(bias.get_weights())
    assert_close(call(half, 2, 3, 3001), expected_scores(bias, 2, 3, 3001), 2e-2)


def test_layer(rng):
    layer = FirePositionBias(
        NUM_HEADS, hidden_dim=HIDDEN_DIM, threshold=40.5, share_heads=True, max_length=13
    )
    check_layer(layer, rng.normal(size=(2, 11, 6)).astype("float32"))
    assert {"initializer", "key_length"}.isdisjoint(layer.get_config())
    with pytest.raises(ValueError, match="max_length"):
        layer(np.zeros((1, 14, 2)))


def test_encoder_takes_any_way_of_computing_it(rng):
    x = rng.normal(size=(2, 7, 6)).astype("float32")
    encoders = [
        DietEncoder(
            2,
            NUM_HEADS,
            5,
            position_encoding=make(rng, max_length=9),
            max_sequence_length=9,
            attention_implementation=name,
        )
        for name in ("full", "blockwise")
    ]
    for encoder in encoders:
        encoder.build(x.shape)
    encoders[1].set_weights(encoders[0].get_weights())
    cached = cache_positions(encoders[0])
    for causal in (False, True):
        arguments = {"use_causal_mask": causal}
        outputs = [
            to_numpy(compiled(lambda e=e, a=arguments: e(x, **a))()) for e in (*encoders, cached)
        ]
        assert_close(outputs[1], outputs[0])
        assert_close(outputs[2], outputs[0])
    kernel = encoders[0].position_biases[0].output_kernel
    kernel.assign(-to_numpy(kernel))
    changed = to_numpy(compiled(lambda: encoders[0](x, use_causal_mask=True))())
    assert np.abs(changed - outputs[0]).max() > 1e-2


@pytest.mark.any_backend
@pytest.mark.parametrize("sharing, num_biases", [(None, 2), ("layer-wise", 1), ("head-wise", 2)])
def test_sharing(sharing, num_biases):
    encoder = DietEncoder(2, NUM_HEADS, 5, position_encoding="fire", sharing=sharing)
    encoder.build((2, 7, 6))
    assert len(encoder.position_biases) == num_biases
    heads = 1 if sharing == "head-wise" else NUM_HEADS
    for bias in encoder.position_biases:
        assert tuple(bias.output_kernel.shape) == (32, heads)


@pytest.mark.any_backend
def test_bad_arguments():
    with pytest.raises(ValueError, match=r"`hidden_dim` must be a positive integer.*hidden_dim=0"):
        FirePositionBias(NUM_HEADS, hidden_dim=0)
    for threshold in (0, -512, "long"):
        with pytest.raises(ValueError, match=r"`threshold` must be a positive, finite number"):
            FirePositionBias(NUM_HEADS, threshold=threshold)


@pytest.mark.any_backend
def test_half_precision_tells_near_keys_apart_at_large_positions():
    start = 5000
    exact, half = (
        make(np.random.default_rng(7), dtype=dtype) for dtype in ("float32", "mixed_bfloat16")
    )
    expected, found = (to_numpy(call(bias, 1, start + 1, start)) for bias in (exact, half))
    near = expected[..., -20:]
    assert np.abs(near[..., -1] - near[..., 0]).max() > 0.1
    assert_close(found[..., -20:], near, 2e-2)
