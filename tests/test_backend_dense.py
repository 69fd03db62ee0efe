"""`_backend.dense` returns the same as the layer."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend
from tests.helpers import assert_close, gradients, normal, randomize, to_numpy, weighted_sum

# Other backends call the layer.
pytestmark = pytest.mark.any_backend("torch")
BATCH, LENGTH, HIDDEN, NUM_HEADS, KEY_DIM = 2, 5, 7, 3, 11
X_SHAPE = (BATCH, LENGTH, HIDDEN)


def to_heads(num_heads, key_dim, bias_axes="de", **kwargs):
    shape = (None, num_heads, key_dim)
    return keras.layers.EinsumDense("abc,cde->abde", shape, bias_axes=bias_axes, **kwargs)


def from_heads(bias_axes="e", **kwargs):
    return keras.layers.EinsumDense("abcd,cde->abe", (None, HIDDEN), bias_axes=bias_axes, **kwargs)


# How to make the layer, the shape of an input and over how many of its axes the layer goes.
LAYERS = {
    "dense": (lambda **kwargs: keras.layers.Dense(KEY_DIM, **kwargs), X_SHAPE, 1),
    "activation": (lambda **kwargs: keras.layers.Dense(KEY_DIM, "gelu", **kwargs), X_SHAPE, 1),
    "to_heads": (lambda **kwargs: to_heads(NUM_HEADS, KEY_DIM, **kwargs), X_SHAPE, 1),
    "to_square_heads": (lambda **kwargs: to_heads(3, 3, **kwargs), (BATCH, LENGTH, 3), 1),
    "from_heads": (from_heads, (BATCH, LENGTH, NUM_HEADS, KEY_DIM), 2),
    "from_square_heads": (from_heads, (BATCH, LENGTH, 3, 3), 2),
}
NO_BIAS = {
    name: {"use_bias": False} if name in ("dense", "activation") else {"bias_axes": None}
    for name in LAYERS
}
some_layers = pytest.mark.parametrize("name", ["dense", "to_heads", "from_heads"])


def make_layer(rng, name, **kwargs):
    """A built layer, its inputs, and the number of axes."""
    make, shape, num_axes = LAYERS[name]
    layer = make(**kwargs)
    layer.build(shape)
    return randomize(layer, rng), ops.convert_to_tensor(normal(rng, *shape)), num_axes


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_outputs_and_gradients_equal_those_of_the_layer(rng, name, use_bias):
    """Also for no rows, and for other strides."""
    layer, x, num_axes = make_layer(rng, name, **({} if use_bias else NO_BIAS[name]))
    for given in (x[:0], x.mT.contiguous().mT):
        assert_close(_backend.dense(layer, given, num_axes), layer(given), 1e-6)
    # The gradient of the loss by `random` is the output.
    inputs, random = keras.Variable(x), keras.Variable(normal(rng, *layer(x).shape))
    variables = [inputs, random, *layer.trainable_weights]
    actual, expected = (
        gradients(
            lambda call=call: weighted_sum(call(ops.convert_to_tensor(inputs)), random), variables
        )
        for call in (lambda inputs: _backend.dense(layer, inputs, num_axes), layer)
    )
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert np.abs(expected_gradient).max() > 1e-2
        assert_close(gradient, expected_gradient)


def names_a_gpu(device):
    return device == "cuda"


@pytest.mark.parametrize(
    "name, function",
    [("is_autocast_enabled", names_a_gpu), ("compiler.is_compiling", lambda: True)],
)
def test_programs_and_casts_are_seen(monkeypatch, name, function):
    assert _backend.only_runs()
    monkeypatch.setattr(f"torch.{name}", function)
    assert not _backend.only_runs()


@some_layers
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_dtypes_are_those_of_the_layer(rng, name, policy):
    layer, inputs, num_axes = make_layer(rng, name, dtype=policy)
    for x in (inputs, ops.cast(inputs, layer.compute_dtype)):
        actual, expected = _backend.dense(layer, x, num_axes), layer(x)
        assert actual.dtype == expected.dtype
        assert_close(actual, expected, 2e-2)


def with_lora(layer):
    layer.enable_lora(2)
    for weight in layer.trainable_weights:
        weight.assign(normal(np.random.default_rng(3), *weight.shape))


def with_other_call(layer):
    """Calibration of quantized weights replaces `call`."""
    call = layer.call
    layer.call = lambda inputs, training=None: 2 * call(inputs)


CHANGES = {
    "lora": with_lora,
    "int8": lambda layer: layer.quantize("int8"),
    "lora_of_int8": lambda layer: (layer.quantize("int8"), with_lora(layer)),
    "call": with_other_call,
    "hook": lambda layer: layer.register_forward_hook(lambda _, inputs, output: 2 * output),
    "pre_hook": lambda layer: layer.register_forward_pre_hook(lambda _, inputs: 2 * inputs[0]),
}


@some_layers
@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_does_more_is_called(rng, name, change):
    layer, inputs, num_axes = make_layer(rng, name)
    before = to_numpy(layer(inputs))
    CHANGES[change](layer)
    expected = to_numpy(layer(inputs))
    assert np.abs(expected - before).max() > 1e-4
    assert_close(_backend.dense(layer, inputs, num_axes), expected, 1e-6)


class Doubled(keras.layers.Dense):
    def call(self, inputs):
        return 2 * super().call(inputs)


def test_subclasses_and_layers_with_losses_are_called(rng):
    x = ops.convert_to_tensor(normal(rng, BATCH, HIDDEN))
    layer = Doubled(KEY_DIM)
    assert_close(_backend.dense(layer, x), layer(x))
    layer = keras.layers.Dense(KEY_DIM, activity_regularizer="l2")
    output = to_numpy(_backend.dense(layer, x))
    assert_close(layer.losses[0], 0.01 * np.sum(output**2) / BATCH)
