"""`_backend.dense` returns the same as the layer."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend
from tests.helpers import assert_close, gradients, randomize, to_numpy, weighted_sum

BATCH, LENGTH, HIDDEN, NUM_HEADS, KEY_DIM = 2, 5, 7, 3, 11
HALF = ("mixed_bfloat16", "mixed_float16")


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def to_heads(num_heads, key_dim, **kwargs):
    shape = (None, num_heads, key_dim)
    return keras.layers.EinsumDense("abc,cde->abde", shape, bias_axes="de", **kwargs)


def from_heads(**kwargs):
    return keras.layers.EinsumDense("abcd,cde->abe", (None, HIDDEN), bias_axes="e", **kwargs)


# How to make the layer, the shape of an input and over how many of its axes the layer goes.
HEADS_SHAPE, SQUARE_SHAPE = (BATCH, LENGTH, NUM_HEADS, KEY_DIM), (BATCH, LENGTH, 3, 3)
LAYERS = {
    "dense": (lambda **kwargs: keras.layers.Dense(KEY_DIM, **kwargs), (BATCH, LENGTH, HIDDEN), 1),
    "activation": (
        lambda **kwargs: keras.layers.Dense(KEY_DIM, activation="gelu", **kwargs),
        (BATCH, LENGTH, HIDDEN),
        1,
    ),
    "to_heads": (
        lambda **kwargs: to_heads(NUM_HEADS, KEY_DIM, **kwargs),
        (BATCH, LENGTH, HIDDEN),
        1,
    ),
    "to_square_heads": (lambda **kwargs: to_heads(3, 3, **kwargs), (BATCH, LENGTH, 3), 1),
    "from_heads": (from_heads, HEADS_SHAPE, 2),
    "from_square_heads": (from_heads, SQUARE_SHAPE, 2),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def make_layer(rng, name, **kwargs):
    """A built layer, its inputs as a variable, and the number of axes."""
    make, shape, num_axes = LAYERS[name]
    layer = make(**kwargs)
    layer.build(shape)
    return randomize(layer, rng), keras.Variable(normal(rng, *shape)), num_axes


@pytest.mark.parametrize(
    "name, policy",
    [
        *((name, "float32") for name in LAYERS),
        *((name, policy) for name in ("dense", "to_heads", "from_heads") for policy in HALF),
    ],
)
def test_dense_equals_the_layer(rng, name, policy):
    layer, inputs, num_axes = make_layer(rng, name, dtype=policy)
    inputs = ops.cast(inputs, layer.compute_dtype)
    actual, expected = _backend.dense(layer, inputs, num_axes), layer(inputs)
    assert actual.dtype == expected.dtype
    assert_close(actual, expected, 1e-5 if policy == "float32" else 2e-2)


@every_layer
def test_gradients_of_dense_equal_those_of_the_layer(rng, name):
    layer, inputs, num_axes = make_layer(rng, name)
    random = normal(rng, *layer(inputs).shape)
    variables = [inputs, *layer.trainable_weights]
    actual, expected = (
        gradients(
            lambda call=call: weighted_sum(call(ops.convert_to_tensor(inputs)), random), variables
        )
        for call in (lambda inputs: _backend.dense(layer, inputs, num_axes), layer)
    )
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert np.abs(expected_gradient).max() > 1e-2
        assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("name", ["dense", "to_heads", "from_heads"])
@pytest.mark.parametrize("change", ["lora", "int8", "lora_of_int8"])
def test_dense_with_other_weights_goes_the_way_of_the_layer(rng, name, change):
    layer, inputs, num_axes = make_layer(rng, name)
    inputs = ops.convert_to_tensor(to_numpy(inputs))
    before = to_numpy(layer(inputs))
    if "int8" in change:
        layer.quantize("int8")
    if "lora" in change:
        layer.enable_lora(2)
        for weight in layer.trainable_weights:
            weight.assign(normal(rng, *weight.shape))
    expected = to_numpy(layer(inputs))
    assert np.abs(expected - before).max() > 1e-4
    assert_close(_backend.dense(layer, inputs, num_axes), expected, 1e-6)


def test_dense_of_a_subclass_goes_the_way_of_the_subclass(rng):
    class Doubled(keras.layers.Dense):
        def call(self, inputs):
            return 2 * super().call(inputs)

    layer, inputs = Doubled(KEY_DIM), normal(rng, BATCH, HIDDEN)
    layer.build(inputs.shape)
    expected = 2 * inputs @ to_numpy(layer.kernel)
    assert_close(_backend.dense(layer, ops.convert_to_tensor(inputs)), expected)


def test_dense_of_another_dtype_is_that_of_the_layer(rng):
    layer = keras.layers.Dense(KEY_DIM, dtype="mixed_bfloat16")
    x = ops.convert_to_tensor(normal(rng, BATCH, HIDDEN))
    actual, expected = _backend.dense(layer, x), layer(x)
    assert actual.dtype == expected.dtype
    assert_close(actual, expected, 1e-6)


def test_dense_calls_layers_that_are_watched(rng):
    """Calibration of quantized weights replaces `call`; PyTorch has hooks."""
    x = ops.convert_to_tensor(normal(rng, BATCH, HIDDEN))
    layer, calls = keras.layers.Dense(KEY_DIM), []
    layer(x)
    call = layer.call

    def recorded(inputs, training=None):
        calls.append("call")
        return call(inputs)

    layer.call = recorded
    _backend.dense(layer, x)
    assert calls == ["call"]
    if keras.backend.backend() == "torch":
        for register in ("register_forward_hook", "register_forward_pre_hook"):
            layer = keras.layers.Dense(KEY_DIM)
            layer(x)
            getattr(layer, register)(lambda *_, name=register: calls.append(name))
            _backend.dense(layer, x)
            assert calls[-1] == register


def test_dense_keeps_the_loss_of_an_activity_regularizer(rng):
    layer, x = keras.layers.Dense(KEY_DIM, activity_regularizer="l2"), normal(rng, BATCH, HIDDEN)
    layer.build(x.shape)
    output = to_numpy(_backend.dense(layer, ops.convert_to_tensor(x)))
    assert_close(layer.losses[0], 0.01 * np.sum(output**2) / BATCH)
