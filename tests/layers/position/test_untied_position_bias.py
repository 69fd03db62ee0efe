import keras
import numpy as np
import pytest

from keras_diet.layers import BiasedMultiHeadAttention, UntiedPositionBias
from tests import reference
from tests.helpers import (
    assert_close,
    attention_weights,
    check_layer,
    compiled,
    gradients,
    randomize,
    to_numpy,
    untied_weights,
    weighted_sum,
)

NUM_HEADS, KEY_DIM, MAX_LENGTH, POSITION_DIM = 3, 2, 11, 7
EPSILON, NUM_BUCKETS, MAX_DISTANCE = 1e-3, 6, 5
KINDS = {
    "tupe_abs": {},
    "tupe_rel": {"relative": True},
    "tied_cls": {"untie_cls": False},
    "tied_cls_rel": {"relative": True, "untie_cls": False},
}
kinds = pytest.mark.parametrize("kind", KINDS)


def make(rng, kind="tupe_rel", **kwargs):
    bins = {"num_buckets": NUM_BUCKETS, "max_distance": MAX_DISTANCE}
    bias = UntiedPositionBias(
        NUM_HEADS,
        KEY_DIM,
        MAX_LENGTH,
        POSITION_DIM,
        layer_norm_epsilon=EPSILON,
        **(bins if KINDS[kind].get("relative") else {}),
        **KINDS[kind],
        **kwargs,
    )
    bias.build()
    return randomize(bias, rng, scale=0.6)


def sequence(length, batch_size=2):
    return np.zeros((batch_size, length, 5), "float32")


def expected_bias(weights, query_length, key_length, start_index=0):
    """The scores of the reference with `untied_weights`."""
    relative = None
    if "bucket_embedding" in weights:
        relative = reference.bucketed_relative_position_bias(
            weights["bucket_embedding"],
            query_length,
            key_length,
            MAX_DISTANCE,
            start_index=start_index,
            num_heads=NUM_HEADS,
        )
    return reference.untied_position_bias(
        weights, query_length, key_length, relative, start_index, NUM_HEADS, EPSILON
    )


@kinds
@pytest.mark.parametrize(
    "query_length, key_length, start_index, share_heads",
    [(3, 7, 0, True), (11, 2, 0, False), (2, 11, 5, False), (1, 7, 10, True)],
)
def test_equals_reference(rng, kind, query_length, key_length, start_index, share_heads):
    bias = make(rng, kind, share_heads=share_heads)
    query, key = sequence(query_length), sequence(key_length)
    scores = compiled(lambda: bias(query, key, start_index=start_index))()
    expected = expected_bias(untied_weights(bias), query_length, key_length, start_index)
    assert_close(scores, expected)


def test_scores_from_and_to_the_first_token(rng):
    bias = make(rng)
    scores = to_numpy(bias(sequence(5)))[0]
    from_cls, to_cls = to_numpy(bias.cls_scores)
    for h in range(NUM_HEADS):
        assert_close(scores[h, 0], np.full(5, from_cls[h]), 1e-7)
        assert_close(scores[h, 1:, 0], np.full(4, to_cls[h]), 1e-7)
    # Queries after the first token are not `[CLS]`.
    later = to_numpy(bias(sequence(2), sequence(5), start_index=3))[0]
    assert_close(later, scores[:, 3:], 1e-6)


@kinds
@pytest.mark.parametrize("share_heads, heads", [(False, NUM_HEADS), (True, 1)])
def test_weights(rng, kind, share_heads, heads):
    expected = {
        "position_embedding": (MAX_LENGTH, POSITION_DIM),
        "query_kernel": (POSITION_DIM, heads, KEY_DIM),
        "key_kernel": (POSITION_DIM, heads, KEY_DIM),
        "position_norm_gamma": (POSITION_DIM,),
        "position_norm_beta": (POSITION_DIM,),
    }
    if not kind.startswith("tied"):
        expected["cls_scores"] = (2, heads)
    if kind.endswith("rel"):
        expected["bucket_embedding"] = (NUM_BUCKETS, heads)
    bias = make(rng, kind, share_heads=share_heads)
    assert len(bias.weights) == len(expected)
    assert {name: array.shape for name, array in untied_weights(bias).items()} == expected


@pytest.mark.parametrize("share_heads", [False, True])
def test_gradients_equal_finite_differences(rng, share_heads):
    bias = make(rng, share_heads=share_heads)
    random = rng.normal(size=(1, NUM_HEADS, 5, 7)).astype("float32")
    values = untied_weights(bias)
    found = gradients(
        lambda: weighted_sum(bias(sequence(5), sequence(7)), random),
        [
            *bias._trainable_variables,
            *bias.position_layer_norm.weights,
            *bias.relative_bias.weights,
        ],
    )

    def loss(name, array):
        return np.sum(expected_bias({**values, name: array}, 5, 7) * random)

    names = ("position_embedding", "query_kernel", "key_kernel", "cls_scores")
    names += ("position_norm_gamma", "position_norm_beta", "bucket_embedding")
    for name, gradient in zip(names, found, strict=True):
        for flat_index in rng.choice(gradient.size, size=2, replace=False):
            index = np.unravel_index(flat_index, gradient.shape)
            slope = reference.finite_difference(
                lambda array, name=name: loss(name, array), values[name], index
            )
            np.testing.assert_allclose(gradient[index], slope, 1e-3, 1e-4, err_msg=name)


def test_softmax_removes_the_scores_from_the_first_token(rng):
    bias = make(rng)
    attention = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, scale=(2 * KEY_DIM) ** -0.5)
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    attention.build(x.shape, x.shape)
    randomize(attention, rng)
    random = rng.normal(size=x.shape).astype("float32")
    (gradient,) = gradients(
        lambda: weighted_sum(attention(x, x, attention_bias=bias(x)), random), [bias.cls_scores]
    )
    assert np.abs(gradient[0]).max() < 1e-6
    assert np.abs(gradient[1]).min() > 1e-4


def test_tokens_and_positions_have_the_same_scale(rng):
    """`A_ij = (x_i W_Q . x_j W_K + p_i U_Q . p_j U_K) / sqrt(2 d_h)`."""
    bias = make(rng, "tied_cls")
    attention = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, scale=(2 * KEY_DIM) ** -0.5)
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    attention.build(x.shape, x.shape)
    weights = attention_weights(randomize(attention, rng))
    scores = expected_bias(untied_weights(bias), 5, 5)
    expected = reference.multi_head_attention(
        x, x, {**weights, "scale": 1 / np.sqrt(2 * KEY_DIM)}, bias=scores
    )
    assert_close(attention(x, x, attention_bias=bias(x)), expected)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "argument, value", [("num_heads", 0), ("key_dim", -1), ("max_length", 2.0), ("position_dim", 0)]
)
def test_sizes_must_be_positive_integers(argument, value):
    sizes = {"num_heads": 3, "key_dim": 2, "max_length": 7, "position_dim": 5, argument: value}
    with pytest.raises(ValueError, match=f"`{argument}` must be a positive integer.*{value!r}"):
        UntiedPositionBias(**sizes)


@pytest.mark.any_backend
@pytest.mark.parametrize("value", [0, -1e-12, float("nan")])
def test_layer_norm_epsilon_must_be_a_positive_number(value):
    with pytest.raises(ValueError, match="`layer_norm_epsilon` must be a positive, finite number"):
        UntiedPositionBias(3, 2, 7, 5, layer_norm_epsilon=value)


@pytest.mark.any_backend
@pytest.mark.parametrize("argument, value", [("num_buckets", 7), ("max_distance", 2)])
def test_bad_bins_name_the_argument(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must be.*{argument}={value}"):
        UntiedPositionBias(3, 2, 7, 5, relative=True, **{argument: value})


@pytest.mark.any_backend
@pytest.mark.parametrize("argument", ["num_buckets", "max_distance"])
def test_bins_need_relative(argument):
    with pytest.raises(ValueError, match=f"`relative=True`.*{argument}=16"):
        UntiedPositionBias(3, 2, 7, 5, **{argument: 16})


@pytest.mark.any_backend
def test_default_bins_are_the_bins_of_t5():
    bias = UntiedPositionBias(3, 2, 7, 5, relative=True).relative_bias
    assert (bias.num_buckets, bias.max_distance) == (32, 128)


def test_as_a_layer():
    bias = UntiedPositionBias(
        NUM_HEADS,
        KEY_DIM,
        MAX_LENGTH,
        POSITION_DIM,
        relative=True,
        num_buckets=NUM_BUCKETS,
        max_distance=MAX_DISTANCE,
        share_heads=True,
        layer_norm_epsilon=EPSILON,
        initializer=keras.initializers.RandomNormal(stddev=0.5, seed=3),
        name="positions",
    )
    check_layer(bias, sequence(11), sequence(7), policies=("mixed_float16", "bfloat16"))


def test_as_a_layer_without_untie_cls():
    bias = UntiedPositionBias(NUM_HEADS, KEY_DIM, MAX_LENGTH, POSITION_DIM, untie_cls=False)
    check_layer(bias, sequence(11), sequence(11), policies=())
