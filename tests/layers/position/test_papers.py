"""What papers say beyond the contract: slopes of ALiBi, limits, initial values, refusals."""

import numpy as np
import pytest

from keras_diet.layers import (
    BucketedRelativePositionBias,
    FirePositionBias,
    KerplePositionBias,
    LogCPBBias,
    SandwichPositionBias,
    UntiedPositionBias,
)
from keras_diet.layers.position.alibi_position_bias import alibi_slopes
from tests import reference
from tests.helpers import assert_close, gradients, to_numpy, weighted_sum
from tests.layers.bias_layers import BIAS_LAYERS, expected_scores, make_bias, sequence

NUM_HEADS = 3
any_backend = pytest.mark.any_backend


def scores_of(bias, query_length, key_length, start=0):
    return to_numpy(bias(sequence(query_length, start), sequence(key_length), start_index=start))


# === T5 ===


@any_backend
def test_equals_t5_of_hugging_face(rng):
    import torch

    pytest.importorskip("transformers")
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    for index in range(20):
        num_buckets, max_distance = 32, 128
        if index > 1:
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
@pytest.mark.parametrize("name", [name for name, spec in BIAS_LAYERS.items() if spec.any_length])
def test_any_length_without_max_length(rng, name):
    bias = make_bias(name, rng, max_length=None)
    assert_close(scores_of(bias, 3, 61, 41), expected_scores(bias, 3, 61, 41), 1e-4)


# === ALiBi ===


# From section 3 of Press et al. for 8 and 16 heads, and between for 6 and 3.
@any_backend
@pytest.mark.parametrize(
    "num_heads, slopes",
    [
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
        (3, [1 / 16, 1 / 256, 1 / 4]),
    ],
)
def test_slopes_of_alibi(num_heads, slopes):
    assert_close(alibi_slopes(num_heads), np.array(slopes), 1e-6)
    assert_close(alibi_slopes(16)[:3], 0.5 ** np.array([0.5, 1.0, 1.5]), 1e-6)


# === KERPLE ===


@pytest.mark.parametrize("kernel, largest", [("log", 5.0), ("power", 2.0)])
def test_weights_of_kerple_outside_of_their_limits(kernel, largest):
    """The scores and gradients are those at the limit."""
    bias = KerplePositionBias(3, kernel=kernel)
    bias.build()
    bias.set_weights([np.array([-1.0, 3.0, 3.0]), np.array([0.5, -1.0, 5.0])])
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


@any_backend
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_fire_in_half_precision_tells_near_keys_apart_at_large_positions(dtype):
    exact, half = (
        make_bias("fire", np.random.default_rng(7), max_length=None, dtype=name)
        for name in ("float32", dtype)
    )
    expected, found = (scores_of(bias, 1, 5001, 5000)[..., -20:] for bias in (exact, half))
    assert_close(found, expected, 2e-2)


# === Log-CPB ===


@any_backend
def test_equals_swin_v2_of_hugging_face(rng):
    """Positions are `y (2 W - 1) + x`. The second window is larger than that of pretraining."""
    import torch

    pytest.importorskip("transformers")
    from transformers import Swinv2Config
    from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

    for pretrained in (0, 4):
        theirs = Swinv2SelfAttention(Swinv2Config(), 6, NUM_HEADS, (5, 5), [pretrained] * 2)
        bias = LogCPBBias(NUM_HEADS, max_distance=(pretrained or 5) - 1, num_columns=5)
        bias.build()
        hidden, _, output = theirs.continuous_position_bias_mlp
        values = (hidden.weight.T, hidden.bias, output.weight.T)
        for weight, value in zip(bias.weights, values, strict=True):
            weight.assign(rng.normal(size=value.shape) / 3)
            value.data.copy_(torch.tensor(to_numpy(weight)))
        table = theirs.continuous_position_bias_mlp(theirs.relative_coords_table)
        expected = 16 * torch.sigmoid(
            table.view(-1, NUM_HEADS)[theirs.relative_position_index]
        ).permute(2, 0, 1)
        rows, columns = np.divmod(np.arange(25), 5)
        positions = rows * 9 + columns
        scores = scores_of(bias, 49, 49)[0][:, positions][:, :, positions]
        assert_close(scores, expected.detach().numpy(), 2e-5)


# === All ===


@any_backend
def test_defaults():
    relative = UntiedPositionBias(3, 2, 7, 5, relative=True).relative_bias
    assert (relative.num_buckets, relative.max_distance) == (32, 128)
    assert SandwichPositionBias(3).position_dim == 128


T5, TUPE = BucketedRelativePositionBias, UntiedPositionBias
TUPE_SIZES = {"key_dim": 2, "max_length": 7, "position_dim": 5}
REFUSED = {
    "one bin": (T5, {"num_buckets": 2}, "`num_buckets` must be at least.*=2"),
    "odd": (T5, {"num_buckets": 7}, "`num_buckets` must be at least.*=7"),
    "causal": (T5, {"num_buckets": 1, "bidirectional": False}, "must be at least.*=1"),
    "near": (T5, {"max_distance": 8}, "`max_distance` must be above 8.*bins"),
    "near causal": (T5, {"max_distance": 16, "bidirectional": False}, "must be above 16.*bins"),
    "features": (SandwichPositionBias, {"position_dim": 7}, "`position_dim` must be even.*=7"),
    "kernel": (KerplePositionBias, {"kernel": "linear"}, "must be one of 'log', 'power'.*'linear'"),
    "threshold": (FirePositionBias, {"threshold": 0}, "`threshold` must be a positive, finite"),
    "bins": (TUPE, {**TUPE_SIZES, "num_buckets": 16}, "`relative=True`.*num_buckets=16"),
    "distance": (TUPE, {**TUPE_SIZES, "max_distance": 16}, "`relative=True`.*max_distance=16"),
}


@any_backend
@pytest.mark.parametrize("layer_class, arguments, message", REFUSED.values(), ids=list(REFUSED))
def test_arguments_that_are_refused(layer_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        layer_class(NUM_HEADS, **arguments)
