"""What `BiasedMultiHeadAttention` refuses, its configuration, and the check of all layers."""

import keras
import numpy as np
import pytest

from keras_diet.layers import BiasedMultiHeadAttention
from tests.helpers import HALF_POLICIES, check_layer

BATCH, QUERIES, KEYS, HIDDEN, NUM_HEADS, HEAD_DIM = 2, 5, 7, 6, 3, 2
FULL_SHAPE = (BATCH, NUM_HEADS, QUERIES, KEYS)


@pytest.fixture
def inputs(rng):
    """A query and a value."""
    return [
        rng.normal(size=(BATCH, length, HIDDEN)).astype("float32") for length in (QUERIES, KEYS)
    ]


@pytest.mark.parametrize("value", [0, -1.0, "1", True, float("nan"), float("inf")])
def test_scale_must_be_positive(value):
    with pytest.raises(ValueError, match=f"`scale` must be a positive, finite number.*{value!r}"):
        BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM, scale=value)


def test_without_scale_the_configuration_is_that_of_keras():
    attention = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM)
    assert "scale" not in attention.get_config()
    keras.layers.MultiHeadAttention.from_config(attention.get_config())


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8"])
def test_bias_must_be_floating_point(inputs, dtype):
    attention = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM)
    with pytest.raises(ValueError, match=f"`attention_bias` must be a floating point.*{dtype}"):
        attention(*inputs, attention_bias=np.ones(FULL_SHAPE, dtype))


@pytest.mark.parametrize(
    "bias_shape",
    [
        (BATCH, NUM_HEADS, KEYS, QUERIES),
        (BATCH, NUM_HEADS, QUERIES, KEYS + 1),
        (BATCH, NUM_HEADS + 1, QUERIES, KEYS),
        (BATCH + 1, NUM_HEADS, QUERIES, KEYS),
        (BATCH, QUERIES, KEYS),
        (1, BATCH, NUM_HEADS, QUERIES, KEYS),
    ],
    ids=str,
)
@pytest.mark.parametrize("return_attention_scores", [False, True])
def test_bias_must_broadcast_to_the_scores(inputs, bias_shape, return_attention_scores):
    attention = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM)
    with pytest.raises(ValueError, match="`attention_bias` must be broadcastable") as info:
        attention(
            *inputs,
            attention_bias=np.ones(bias_shape, "float32"),
            return_attention_scores=return_attention_scores,
        )
    assert str(tuple(bias_shape)) in str(info.value)


def make_full(**kwargs):
    """A layer with no argument at its default but those that exclude others, which are given."""
    arguments = {"scale": 0.9, **kwargs}
    return BiasedMultiHeadAttention(
        NUM_HEADS,
        HEAD_DIM,
        output_shape=11,
        sliding_window=4,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=1),
        bias_initializer="ones",
        kernel_regularizer="l2",
        bias_regularizer="l1",
        activity_regularizer="l2",
        kernel_constraint="max_norm",
        bias_constraint="non_neg",
        use_gate=True,
        name="attention",
        **arguments,
    )


@pytest.mark.parametrize("return_attention_scores", [False, True])
def test_as_a_layer(rng, inputs, return_attention_scores):
    mask = rng.random((BATCH, QUERIES, KEYS)) < 0.7
    check_layer(
        make_full(dropout=0.5, seed=3),
        *inputs,
        attention_bias=rng.normal(size=FULL_SHAPE).astype("float32"),
        attention_mask=mask,
        return_attention_scores=return_attention_scores,
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=HALF_POLICIES if return_attention_scores else ("mixed_bfloat16",),
    )


@pytest.mark.parametrize(
    "kwargs",
    [
        {"value_dim": 5},
        {"scale": 0.5},
        {"use_bias": False},
        {"attention_axes": 1},
        {"flash_attention": True},
    ],
    ids=str,
)
def test_configuration_keeps(kwargs):
    (name, value), config = next(iter(kwargs.items())), make_full(**kwargs).get_config()
    assert config[name] == ((1,) if name == "attention_axes" else value)
    assert BiasedMultiHeadAttention.from_config(config).get_config() == config


@pytest.mark.parametrize("attention_axes", [None, 2])
def test_symbolic_scores_of_grids(rng, attention_axes):
    query, value = (rng.normal(size=(2, 3, length, HIDDEN)).astype("float32") for length in (5, 7))
    attention = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM, attention_axes=attention_axes)
    scores = attention(query, value, return_attention_scores=True)[1]
    spec = attention.compute_output_spec(query, value, return_attention_scores=True)[1]
    assert tuple(spec.shape) == tuple(scores.shape)
