"""The faster calls for single backends return the same as the calls of Keras."""

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


# A function that makes the layer, the shape of its input, and the number of axes it sums over.
HEADS_SHAPE, SQUARE_SHAPE = (BATCH, LENGTH, NUM_HEADS, KEY_DIM), (BATCH, LENGTH, 3, 3)
LAYERS = {
    "dense": (lambda **kwargs: keras.layers.Dense(KEY_DIM, **kwargs), (BATCH, LENGTH, HIDDEN), 1),
    "activation": (
        lambda **kwargs: keras.layers.Dense(KEY_DIM, activation="gelu", **kwargs),
        (BATCH, LENGTH, HIDDEN),
        1,
    ),
    "no_bias": (
        lambda **kwargs: keras.layers.Dense(KEY_DIM, use_bias=False, **kwargs),
        (BATCH, HIDDEN),
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
    "from_heads_with_activation": (
        lambda **kwargs: from_heads(activation="tanh", **kwargs),
        HEADS_SHAPE,
        2,
    ),
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
def test_gradients_of_dense_equal_the_gradients_of_the_layer(rng, name):
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
def test_dense_calls_layers_with_lora_or_quantized_weights(rng, name, change):
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


def test_dense_calls_subclasses(rng):
    class Doubled(keras.layers.Dense):
        def call(self, inputs):
            return 2 * super().call(inputs)

    layer, inputs = Doubled(KEY_DIM), normal(rng, BATCH, HIDDEN)
    layer.build(inputs.shape)
    expected = 2 * inputs @ to_numpy(layer.kernel)
    assert_close(_backend.dense(layer, ops.convert_to_tensor(inputs)), expected)


def test_dense_has_the_dtype_of_the_layer(rng):
    layer = keras.layers.Dense(KEY_DIM, dtype="mixed_bfloat16")
    x = ops.convert_to_tensor(normal(rng, BATCH, HIDDEN))
    actual, expected = _backend.dense(layer, x), layer(x)
    assert actual.dtype == expected.dtype
    assert_close(actual, expected, 1e-6)


def test_dense_calls_layers_that_are_watched(rng):
    """Calibration of quantized weights replaces `call`. PyTorch has hooks."""
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
        layer = keras.layers.Dense(KEY_DIM)
        layer(x)
        layer.register_forward_hook(lambda *_: calls.append("hook"))
        _backend.dense(layer, x)
        assert calls == ["call", "hook"]


SCORES_SHAPE = (BATCH, NUM_HEADS, LENGTH, HIDDEN)
BIAS_SHAPES = [
    SCORES_SHAPE,
    (1, NUM_HEADS, LENGTH, HIDDEN),
    (1, 1, 1, 1),
    (BATCH, 1, LENGTH, 1),
    (LENGTH, HIDDEN),
    (HIDDEN,),
]


@pytest.mark.parametrize("shape", BIAS_SHAPES, ids=str)
def test_sum_and_its_gradients(rng, shape):
    factor, bias = keras.Variable(normal(rng, *SCORES_SHAPE)), keras.Variable(normal(rng, *shape))
    random = normal(rng, *SCORES_SHAPE)

    def add():
        # A product and not the variable: PyTorch writes the sum into the first operand.
        return _backend.add(ops.multiply(factor, 2.0), ops.convert_to_tensor(bias))

    expected = 2 * to_numpy(factor) + to_numpy(bias)
    assert_close(add(), expected, 1e-6)
    of_factor, of_bias = gradients(lambda: weighted_sum(add(), random), [factor, bias])
    assert_close(of_factor, 2 * random, 1e-6)
    axes = tuple(range(4 - len(shape)))
    summed = random.sum(axis=axes)
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    assert_close(of_bias, summed.sum(axis=axes, keepdims=True))


@pytest.mark.parametrize("bias_dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_sum_of_two_dtypes(rng, dtype, bias_dtype):
    scores, bias = normal(rng, *SCORES_SHAPE), normal(rng, 1, *SCORES_SHAPE[1:])
    expected = ops.add(ops.cast(scores, dtype), ops.cast(bias, bias_dtype))
    actual = _backend.add(ops.cast(scores, dtype), ops.cast(bias, bias_dtype))
    assert actual.dtype == expected.dtype
    assert_close(actual, expected, 1e-6)


@pytest.mark.parametrize("shape", [SCORES_SHAPE, (3, 1, *SCORES_SHAPE[1:])], ids=["batch", "axes"])
def test_sum_broadcasts_the_scores(rng, shape):
    scores, bias = normal(rng, 1, *SCORES_SHAPE[1:]), normal(rng, *shape)
    actual = _backend.add(ops.convert_to_tensor(scores) + 0.0, ops.convert_to_tensor(bias))
    assert_close(actual, scores + bias, 1e-6)


QUERIES, KEYS = 5, 7
MASK = np.random.default_rng(5).random((BATCH, 1, QUERIES, KEYS)) < 0.6
MASK[0, :, 3] = False
BIAS = np.random.default_rng(6).normal(size=(1, NUM_HEADS, QUERIES, KEYS)).astype("float32")
TERMS = {
    "plain": {},
    "bias": {"bias": BIAS},
    "mask": {"mask": MASK},
    "keys": {"mask": MASK[:, :, :1]},
    "causal": {"is_causal": True},
}


def attention_of_loops(query, key, value, scale, bias=0.0, mask=True, is_causal=False):
    shape = (BATCH, NUM_HEADS, QUERIES, KEYS)
    bias, mask = np.broadcast_to(bias, shape), np.broadcast_to(mask, shape)
    output = np.zeros((BATCH, QUERIES, NUM_HEADS, value.shape[-1]))
    for b, h, i in np.ndindex(shape[:3]):
        scores = np.array([scale * query[b, i, h] @ key[b, j, h] for j in range(KEYS)])
        allowed = mask[b, h, i] & (np.arange(KEYS) <= i if is_causal else True)
        # A query that may attend to no key attends to all keys equally.
        scores = np.where(allowed, scores + bias[b, h, i], -np.inf) if allowed.any() else 0 * scores
        probabilities = np.exp(scores - scores.max())
        output[b, i, h] = probabilities / probabilities.sum() @ value[b, :, h]
    return output


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("value_dim", [KEY_DIM, 2])
def test_fused_attention_equals_loops(rng, name, value_dim):
    query = normal(rng, BATCH, QUERIES, NUM_HEADS, KEY_DIM)
    key = normal(rng, BATCH, KEYS, NUM_HEADS, KEY_DIM)
    value = normal(rng, BATCH, KEYS, NUM_HEADS, value_dim)
    expected = attention_of_loops(query, key, value, 0.7, **TERMS[name])
    terms = {"bias": None, "mask": None, "is_causal": False, **TERMS[name]}
    terms = {
        name: ops.convert_to_tensor(term) if isinstance(term, np.ndarray) else term
        for name, term in terms.items()
    }
    heads = [ops.convert_to_tensor(tensor) for tensor in (query, key, value)]
    output = _backend.fused_attention(*heads, scale=0.7, flash_attention=None, **terms)
    assert_close(output, expected)


@pytest.fixture
def platform(request, monkeypatch):
    """Let JAX report this platform."""
    if keras.backend.backend() == "jax":
        import jax

        monkeypatch.setattr(jax, "default_backend", lambda: request.param)
    return request.param


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"], indirect=True)
def test_which_backends_have_fused_attention(platform):
    on_torch = keras.backend.backend() == "torch"
    on_jax_gpu = keras.backend.backend() == "jax" and platform == "gpu"
    assert _backend.has_fused_attention("bfloat16", 128) == (on_torch or on_jax_gpu)
    assert not _backend.has_fused_attention("float16", 64)
    # The fused attention of cuDNN is limited to these dtypes and head sizes.
    assert _backend.has_fused_attention("float32", 64) == on_torch
    assert _backend.has_fused_attention("bfloat16", 136) == on_torch


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"], indirect=True)
def test_only_tpus_add_inside_the_softmax(monkeypatch, platform):
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        devices = {platform.upper(): ["the device"], "CPU": ["another"]}
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: devices.get(kind, []))
    assert _backend.adds_inside_softmax() == (platform == "tpu" and backend != "torch")


def make_seed():
    return keras.random.SeedGenerator(5).next()


@pytest.mark.parametrize("rate", [0.1, 0.7])
def test_dropout(rng, rate):
    x = np.exp(normal(rng, 17, 19, 23))
    output = to_numpy(_backend.dropout(ops.convert_to_tensor(x), rate, make_seed(), 2))
    kept = output != 0
    assert abs(kept.mean() - (1 - rate)) < 0.02
    assert_close(output[kept], x[kept] / (1 - rate))
    # The rate holds in every row of every axis.
    for axis in range(3):
        shares = np.moveaxis(kept, axis, 0).reshape(kept.shape[axis], -1).mean(axis=1)
        assert np.abs(shares - (1 - rate)).max() < 0.1


def test_dropout_depends_on_the_seed_and_the_block():
    x = ops.ones((17, 19, 23))
    seeds = keras.random.SeedGenerator(5)
    first, second = seeds.next(), seeds.next()

    def kept(seed, index):
        return to_numpy(_backend.dropout(x, 0.5, seed, index)) != 0

    once = kept(first, 3)
    np.testing.assert_array_equal(kept(first, 3), once)
    np.testing.assert_array_equal(kept(first, ops.convert_to_tensor(3)), once)
    # Two independent masks agree in half of the entries.
    for other in (kept(first, 4), kept(first, 0), kept(second, 3), kept(second, 2)):
        assert 0.45 < (other == once).mean() < 0.55


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dropout_keeps_the_dtype(dtype):
    output = _backend.dropout(ops.ones((5, 7), dtype), 0.5, make_seed(), 1)
    assert keras.backend.standardize_dtype(output.dtype) == dtype
    assert set(np.unique(to_numpy(output))) == {0.0, 2.0}


def test_map_in_turn_equals_map(rng):
    blocks = (ops.convert_to_tensor(normal(rng, 3, 2, 5)), ops.arange(3))

    def function(block):
        x, index = block
        return ops.sum(x, axis=0) * ops.cast(index + 1, x.dtype)

    expected = [(i + 1) * to_numpy(blocks[0])[i].sum(axis=0) for i in range(3)]
    assert_close(_backend.map_in_turn(function, blocks), np.stack(expected))
    assert_close(ops.map(function, blocks), np.stack(expected))


def test_sliding_windows(rng):
    inputs = rng.normal(size=(3, 7)).astype("float32")
    # A transposed tensor, whose windows would be scattered in memory.
    windows = _backend.sliding_windows(ops.transpose(ops.convert_to_tensor(inputs.T)), 4)
    if keras.backend.backend() != "torch":
        assert windows is None
        return
    expected = np.stack([inputs[:, start : start + 4] for start in range(4)], axis=1)
    assert_close(windows, expected, 0)
    assert windows.stride(-1) == 1
