"""KERPLE, against its definition."""

import keras
import numpy as np
import pytest

from keras_diet.layers import DietEncoder, KerplePositionBias, cache_positions
from tests.helpers import assert_close, check_layer, compiled, gradients, random_loss, to_numpy

NUM_HEADS = 3
R1, R2 = np.array([0.7, 1.9, 0.3]), np.array([0.2, 1.4, 0.6])


def make(r1=R1, r2=R2, **kwargs):
    bias = KerplePositionBias(NUM_HEADS, **kwargs)
    bias.build()
    num_heads = bias.num_score_heads
    bias.r1.assign(np.asarray(r1)[:num_heads])
    bias.r2.assign(np.asarray(r2)[:num_heads])
    return bias


def call(bias, query_length, key_length, start_index=0):
    query, key = np.zeros((2, query_length, 7)), np.zeros((2, key_length, 7))
    return compiled(lambda: bias(query, key, start_index=start_index))()


def expected_scores(kernel, r1, r2, query_length, key_length, start=0):
    scores = np.zeros((1, NUM_HEADS, query_length, key_length))
    for h, i, j in np.ndindex(scores.shape[1:]):
        distance = abs(start + i - j)
        if kernel == "log":
            scores[0, h, i, j] = -r1[h] * np.log(1 + r2[h] * distance)
        else:
            scores[0, h, i, j] = -r1[h] * float(distance) ** r2[h]
    return scores


@pytest.mark.parametrize("share_heads", [False, True])
@pytest.mark.parametrize("kernel", ["log", "power"])
@pytest.mark.parametrize("lengths", [(5, 11, 0), (3, 2, 0), (1, 7, 6), (2, 5, 23)])
def test_scores_are_the_definition(kernel, share_heads, lengths):
    bias = make(kernel=kernel, share_heads=share_heads)
    r1, r2 = (np.full(3, R1[0]), np.full(3, R2[0])) if share_heads else (R1, R2)
    assert_close(call(bias, *lengths), expected_scores(kernel, r1, r2, *lengths))


@pytest.mark.parametrize(("kernel", "largest"), [("log", 5.0), ("power", 2.0)])
def test_weights_outside_of_their_limits(kernel, largest):
    bias = make([-1.0, 3.0, 3.0], [0.5, -1.0, 5.0], kernel=kernel)
    expected = expected_scores(kernel, [0.01, 3.0, 3.0], [0.5, 0.01, largest], 4, 6)
    assert_close(call(bias, 4, 6), expected)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_gradients_are_those_of_the_definition(kernel):
    # The first head is outside of its limits, and its gradient is the one at the limit.
    bias = make([-0.5, 1.9, 0.3], [0.2, -1.0, 0.6], kernel=kernel)
    at_limit = (np.array([0.01, 1.9, 0.3]), np.array([0.2, 0.01, 0.6]))
    loss = random_loss(lambda: bias(np.zeros((2, 5, 7))), np.random.default_rng(3))
    weights = np.random.default_rng(3).normal(size=(1, NUM_HEADS, 5, 5))
    for number, gradient in enumerate(gradients(loss, [bias.r1, bias.r2])):
        expected = []
        for head in range(NUM_HEADS):
            change = np.zeros((2, NUM_HEADS))
            change[number, head] = 1e-5
            above, below = (
                expected_scores(kernel, *(np.stack(at_limit) + sign * change), 5, 5)
                for sign in (1, -1)
            )
            expected.append(np.sum(weights * (above - below)) / 2e-5)
        assert_close(gradient, np.array(expected), 1e-3)


@pytest.mark.any_backend
@pytest.mark.parametrize(("kernel", "ranges"), [("log", (2, 1)), ("power", (1, 2))])
def test_initial_values_are_those_of_the_authors(kernel, ranges):
    bias = KerplePositionBias(500, kernel=kernel)
    bias.build()
    for weight, largest in zip(bias.weights, ranges, strict=True):
        values = to_numpy(weight)
        assert 0 <= values.min() < 0.03 * largest
        assert 0.97 * largest < values.max() <= largest
    assert np.abs(to_numpy(bias.r1) / ranges[0] - to_numpy(bias.r2) / ranges[1]).max() > 0.1


def test_an_optimizer_keeps_the_weights_within_their_limits():
    for kernel, largest in (("log", 10.6), ("power", 2.0)):
        bias = make(kernel=kernel)
        optimizer = keras.optimizers.SGD(10.0)
        signs = np.array([1.0, -1.0, -1.0], "float32")
        steps = [keras.ops.convert_to_tensor(signs) for _ in range(2)]
        optimizer.apply(steps, [bias.r1, bias.r2])
        assert_close(bias.r1, np.array([0.01, 11.9, 10.3]))
        assert_close(to_numpy(bias.r2)[[0, 2]], np.array([0.01, largest]))


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_layer(rng, kernel):
    layer = KerplePositionBias(NUM_HEADS, kernel=kernel, share_heads=True, max_length=13)
    check_layer(layer, rng.normal(size=(2, 5, 6)).astype("float32"))
    assert {"initializer", "key_length"}.isdisjoint(layer.get_config())
    with pytest.raises(ValueError, match="max_length"):
        layer(np.zeros((1, 14, 2)))


@pytest.mark.any_backend
def test_float16_holds_the_scores_of_distant_keys():
    bias = KerplePositionBias(NUM_HEADS, kernel="power", dtype="mixed_float16")
    bias.build()
    bias.r1.assign([1.0, 1.0, 0.01])
    bias.r2.assign([2.0, 0.5, 2.0])
    scores = to_numpy(call(bias, 1, 301))[0, :, 0]
    assert_close(scores[:, 300], np.array([-3e4, -np.sqrt(300), -900]), 1e-3)
    assert_close(scores[0, :4], -(np.arange(4.0) ** 2), 1e-3)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_encoder_takes_any_way_of_computing_it(rng, kernel):
    x = rng.normal(size=(2, 7, 6)).astype("float32")
    encoders = [
        DietEncoder(
            2,
            NUM_HEADS,
            5,
            position_encoding=make(kernel=kernel, max_length=9),
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
    encoders[0].position_biases[0].r1.assign(10 * R1)
    changed = to_numpy(compiled(lambda: encoders[0](x, use_causal_mask=True))())
    assert np.abs(changed - outputs[0]).max() > 1e-2


@pytest.mark.any_backend
def test_unknown_kernel():
    with pytest.raises(ValueError, match=r"`kernel` must be one of 'log', 'power'.*'linear'"):
        KerplePositionBias(NUM_HEADS, kernel="linear")
