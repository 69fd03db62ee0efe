"""Biases that read the hidden states: what the contract of all bias layers does not say of them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend, layers
from tests.helpers import assert_close, gradients, normal, once, randomize, to_numpy, weighted_sum
from tests.layers import diet_decoders
from tests.layers.bias_layers import BIAS_LAYERS, make_bias
from tests.layers.diet_encoders import BATCH

LENGTH, HIDDEN, NUM_HEADS = 7, 5, 3
NAMES = [name for name, spec in BIAS_LAYERS.items() if spec.reads_content]
any_backend = pytest.mark.any_backend


def make_attention(rng, **kwargs):
    attention = layers.BiasedMultiHeadAttention(NUM_HEADS, 4, **kwargs)
    attention.build((BATCH, LENGTH, HIDDEN), (BATCH, LENGTH, HIDDEN))
    return randomize(attention, rng)


@pytest.mark.parametrize("name", ["forgetting", *once(*(n for n in NAMES if n != "forgetting"))])
def test_blocks_have_the_same_outputs_and_gradients(rng, name):
    """Of rows, and of features for all queries. Three blocks, the last of which is shorter."""
    attention, bias = make_attention(rng), make_bias(name, rng)
    x, random = (keras.Variable(normal(rng, BATCH, LENGTH, HIDDEN)) for _ in range(2))
    variables = [x, random, *attention.trainable_variables, *bias.trainable_variables]

    def loss(**arguments):
        inputs = ops.convert_to_tensor(x)
        terms = {"use_causal_mask": True, **arguments}
        return weighted_sum(attention(inputs, inputs, **terms), random)

    def of_layer(**arguments):
        return gradients(lambda: loss(attention_bias=bias, **arguments), variables)

    expected = gradients(lambda: loss(attention_bias=bias(ops.convert_to_tensor(x))), variables)
    found = [of_layer(), of_layer(block_size=3)]
    if bias.features is not None:

        def features():
            pair = bias.features(ops.convert_to_tensor(x))
            return loss(attention_features=pair)

        found.append(gradients(features, variables))
    for each in found:
        for gradient, wanted in zip(each, expected, strict=True):
            assert_close(gradient, wanted, 1e-4)


@any_backend
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16", "float16"])
def test_sums_are_not_rounded(rng, dtype):
    """The sum of 100 gates is about -90, where the steps of bfloat16 are 0.5."""
    bias = make_bias("forgetting", rng, dtype=dtype, max_length=None)
    assert (bias.features is None) == (dtype != "float16")
    query = ops.cast(normal(rng, 1, 100, HIDDEN), bias.compute_dtype)
    kernel, offset, states = (
        to_numpy(ops.cast(each, "float32")) for each in (bias.gate_kernel, bias.gate_bias, query)
    )
    sums = np.cumsum(-np.log(1 + np.exp(-states @ kernel - offset)), axis=1).swapaxes(1, 2)
    expected = np.minimum(sums[..., :, None] - sums[..., None, :], 0)
    assert_close(bias(query), expected, 1e-4)
    assert expected.min() < -60
    keys = bias.project_keys(query)
    assert keras.backend.standardize_dtype(keys.dtype) == "float32"
    steps = bias(query[:, 98:], keys, start_index=98)
    assert_close(steps, expected[:, :, 98:], 1e-4)


@any_backend
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_products_on_accelerators_would_round_the_sums(monkeypatch, platform):
    assert layers.ForgettingPositionBias(NUM_HEADS).features is not None
    monkeypatch.setattr(_backend, "platform", lambda: platform)
    assert layers.ForgettingPositionBias(NUM_HEADS).features is None


@any_backend
@pytest.mark.parametrize("block_size", [None, 100])
def test_gates_in_a_kernel_in_bfloat16(block_size):
    """The sums of 512 gates reach -350. So those of masked keys must not set the scale."""
    x = normal(np.random.default_rng(7), 1, 512, HIDDEN)

    def outputs(dtype):
        rng = np.random.default_rng(3)
        bias = layers.ForgettingPositionBias(NUM_HEADS, dtype=dtype)
        bias.build(x.shape)
        attention = make_attention(rng, dtype=dtype)
        y = attention(x, x, attention_bias=bias, use_causal_mask=True, block_size=block_size)
        return to_numpy(ops.cast(y, "float32"))

    assert_close(outputs("mixed_bfloat16"), outputs("float32"), 0.05)


@any_backend
@pytest.mark.parametrize(
    "name, dtype",
    [
        *(("query_relative", dtype) for dtype in ("mixed_float16", "bfloat16")),
        *(("forgetting", dtype) for dtype in ("mixed_float16", "mixed_bfloat16")),
        ("deberta", "mixed_bfloat16"),
    ],
)
def test_decoding_in_half_precision(name, dtype):
    arguments = {"position_encoding": name, "normalize_first": True}
    decoder = diet_decoders.make_decoder(np.random.default_rng(3), **arguments)
    half = diet_decoders.make_decoder(np.random.default_rng(3), dtype=dtype, **arguments)
    target, source = diet_decoders.make_inputs(np.random.default_rng(5))
    expected = to_numpy(decoder(target, source))
    memory = half.start_memory(BATCH, diet_decoders.MEMORY, source)
    found = to_numpy(ops.cast(diet_decoders.decode(half, target, memory, (2, 1, 2))[0], "float32"))
    assert np.abs(found - expected).mean() < 0.05
    if name == "forgetting":
        gates = memory.target[0][2]
        assert keras.backend.standardize_dtype(gates.dtype) == "float32"
        assert gates.shape == (BATCH, NUM_HEADS, diet_decoders.MEMORY, 1)


@any_backend
def test_a_block_keeps_the_gates_of_a_new_bias(rng):
    block = layers.BiasedTransformerDecoder(23, NUM_HEADS, head_dim=4)
    target, source = normal(rng, 1, LENGTH, HIDDEN), normal(rng, 1, 3, HIDDEN)
    block.build(target.shape, source.shape)
    bias = layers.ForgettingPositionBias(NUM_HEADS, initializer="normal")
    memory, steps = block.start_memory(1, LENGTH, source, bias), []
    for i in range(LENGTH):
        arguments = {"memory": memory, "start_index": i, "attention_bias": bias}
        step, memory = block(target[:, i : i + 1], **arguments)
        steps.append(step)
    assert_close(ops.concatenate(steps, 1), block(target, source, attention_bias=bias), 1e-5)
    memory = block.start_memory(1, LENGTH, source)
    with pytest.raises(ValueError, match=r"2 tensors.*3 tensors.*same `attention_bias`"):
        block(target[:, :1], memory=memory, attention_bias=bias)


@pytest.mark.any_backend("torch")
def test_curves_are_those_of_inkling(rng):
    modeling = pytest.importorskip("transformers.models.inkling.modeling_inkling")
    import torch

    bias = make_bias("query_relative_causal", rng)
    theirs = modeling.InklingRelativeLogits(bias.rank, bias.max_distance)
    x, start = normal(rng, 2, 5, HIDDEN), 4
    states = np.einsum("btd,dhr->bthr", x, to_numpy(bias.query_kernel))
    with torch.no_grad():
        theirs.proj.copy_(torch.tensor(to_numpy(bias.curves).T))
        positions = torch.arange(start, start + 5), torch.arange(9)
        expected = theirs(torch.tensor(states), *positions)
    assert_close(bias(x, np.zeros((2, 9, 1)), start_index=start), expected.numpy(), 2e-6)
