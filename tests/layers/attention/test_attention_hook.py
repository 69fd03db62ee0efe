"""`AttentionHook`: each function, two hooks, blocks, several axes, and what is refused."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    AbsolutePositionBias,
    AttentionHook,
    BiasedMultiHeadAttention,
    DietEncoder,
    RelativePositionBias,
)
from tests import reference
from tests.helpers import assert_close, attention_weights, gradients, randomize, to_numpy

BATCH, LENGTH, HIDDEN, NUM_HEADS, KEY_DIM = 2, 7, 11, 3, 4
BLOCK_SIZE = 3
CAP = 0.7
VALID = np.array([[True] * 5 + [False] * 2, [True] * 7])


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make(rng, hook=None, **kwargs):
    """A layer with random weights whose own hook is `hook`."""

    class Hooked(BiasedMultiHeadAttention):
        def attention_hook(self):
            return hook

    attention = Hooked(NUM_HEADS, KEY_DIM, **kwargs)
    attention.build((BATCH, LENGTH, HIDDEN), (BATCH, LENGTH, HIDDEN))
    return randomize(attention, rng)


def heads_of(attention, x):
    """Projected queries, keys and values as arrays `(B, T, H, size)`."""
    weights = attention_weights(attention)
    return [
        np.einsum("btd,dhk->bthk", x, weights[f"{name}_kernel"]) + weights[f"{name}_bias"]
        for name in ("query", "key", "value")
    ]


def attend(attention, query, key, value, change=lambda scores: scores, allowed=True):
    """Attention as sums of arrays: the output before its projection, and the probabilities."""
    scores = change(np.einsum("bthk,bshk->bhts", query, key) / np.sqrt(KEY_DIM))
    scores = np.where(allowed, scores, -1e9)
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    return np.einsum("bhts,bshk->bthk", probabilities, value), probabilities


def project(attention, output):
    weights = attention_weights(attention)
    return np.einsum("bthk,hkd->btd", output, weights["output_kernel"]) + weights["output_bias"]


def rotate(x, start, library=ops):
    """Rotary positions: pairs of features are rotated by an angle that grows with the position."""
    angle = (np.arange(x.shape[1]) + start)[None, :, None, None] * np.array([1.0, 0.1])
    cos, sin = (np.cos(angle), np.sin(angle)) if library is np else (ops.cos(angle), ops.sin(angle))
    if library is ops:
        cos, sin = ops.cast(cos, x.dtype), ops.cast(sin, x.dtype)
    first, second = x[..., :2], x[..., 2:]
    return library.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


ROTARY = AttentionHook(heads=lambda query, key, start: (rotate(query, start), rotate(key, 0)))
SOFT_CAP = AttentionHook(scores=lambda scores: CAP * ops.tanh(scores / CAP))
block_sizes = pytest.mark.parametrize("block_size", [None, BLOCK_SIZE])


@block_sizes
def test_rotary_positions(rng, block_size):
    attention, x = make(rng, ROTARY), normal(rng, BATCH, LENGTH, HIDDEN)
    query, key, value = heads_of(attention, x)
    output, _ = attend(attention, rotate(query, 0, np), rotate(key, 0, np), value)
    assert_close(attention(x, x, block_size=block_size), project(attention, output))


def test_heads_get_the_position_of_the_first_query(rng):
    attention, x = make(rng, ROTARY), normal(rng, BATCH, LENGTH, HIDDEN)
    full = to_numpy(attention(x, x, use_causal_mask=True))
    step = attention(x[:, 4:5], x, use_causal_mask=True, start_index=4)
    assert_close(step, full[:, 4:5])
    assert np.abs(to_numpy(attention(x[:, 4:5], x)) - full[:, 4:5]).max() > 1e-2


@block_sizes
def test_soft_cap(rng, block_size):
    """The cap is before the masks, so that masked keys stay excluded."""
    attention, x = make(rng, SOFT_CAP), normal(rng, BATCH, LENGTH, HIDDEN)
    bias = normal(rng, NUM_HEADS, LENGTH, LENGTH)
    query, key, value = heads_of(attention, x)
    allowed = VALID[:, None, None] & np.tri(LENGTH, dtype="bool")
    output, _ = attend(
        attention, query, key, value, lambda s: CAP * np.tanh((s + bias) / CAP), allowed
    )
    arguments = {"value_mask": VALID, "use_causal_mask": True, "block_size": block_size}
    assert_close(attention(x, x, attention_bias=bias, **arguments), project(attention, output))


@block_sizes
@pytest.mark.parametrize("kind", ["tensor", "layer", "none"])
def test_bias_is_added_to_the_other_bias(rng, kind, block_size):
    kept = ops.convert_to_tensor(normal(rng, BATCH, NUM_HEADS, LENGTH, LENGTH))
    before = to_numpy(kept).copy()
    attention = make(rng, AttentionHook(bias=lambda query, key, start: kept))
    x, layer = normal(rng, BATCH, LENGTH, HIDDEN), RelativePositionBias(NUM_HEADS, 13)
    layer.build()
    tensor = to_numpy(randomize(layer, rng)(x))
    bias = {"tensor": tensor, "layer": layer, "none": None}[kind]
    total = before + (0 if bias is None else tensor)
    expected = reference.multi_head_attention(x, x, attention_weights(attention), bias=total)
    for _ in range(2):
        assert_close(attention(x, x, attention_bias=bias, block_size=block_size), expected)
    # The hook keeps its tensor.
    assert_close(kept, before, 0)


@pytest.mark.parametrize("grid", [False, True])
def test_output_gets_probabilities_after_dropout(rng, grid):
    seen = []

    def double(output, probabilities, start):
        seen.append((to_numpy(probabilities), start))
        return 2 * output

    attention = make(rng, AttentionHook(output=double), dropout=0.5)
    shape = (BATCH, LENGTH, HIDDEN)
    if grid:
        attention = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, attention_axes=2)
        shape = (BATCH, 3, LENGTH, HIDDEN)
    x = normal(rng, *shape)
    plain = to_numpy(attention(x, x))
    hook = AttentionHook(output=double) if grid else None
    bias = to_numpy(attention.output_dense.bias)
    doubled = attention(x, x, attention_hook=hook)
    factor = 2 if grid else 1
    assert_close(to_numpy(doubled) - bias, factor * (plain - bias))
    if not grid:
        query, key, value = heads_of(attention, x)
        output, probabilities = attend(attention, query, key, value)
        assert_close(plain, project(attention, 2 * output))
        assert_close(seen[0][0], probabilities)
        attention(x, x, training=True)
        dropped = seen[-1][0]
        assert np.all((dropped == 0) | np.isclose(dropped, 2 * probabilities, rtol=1e-4))
        assert (dropped == 0).any()


def test_output_of_blocks_gets_their_start(rng):
    """A value vector for each position of a query."""
    vectors = normal(rng, LENGTH, KEY_DIM)

    def add_vectors(output, probabilities, start):
        positions = ops.arange(output.shape[1]) + start
        return output + ops.take(ops.convert_to_tensor(vectors), positions, axis=0)[None, :, None]

    attention = make(rng, AttentionHook(output=add_vectors))
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    output, _ = attend(attention, *heads_of(attention, x))
    expected = project(attention, output + vectors[None, :, None])
    for block_size in (None, BLOCK_SIZE):
        assert_close(attention(x, x, block_size=block_size), expected)


def test_two_hooks_run_one_after_the_other(rng):
    """The hook of the layer comes before the hook of the call."""
    attention, x = make(rng, SOFT_CAP), normal(rng, BATCH, LENGTH, HIDDEN)
    query, key, value = heads_of(attention, x)
    second = AttentionHook(
        heads=lambda query, key, start: (3 * query, key),
        scores=lambda scores: scores + 5 * scores**2,
    )

    def change(scores):
        capped = CAP * np.tanh(3 * scores / CAP)
        return capped + 5 * capped**2

    output, _ = attend(attention, query, key, value, change)
    assert_close(attention(x, x, attention_hook=second), project(attention, output), 1e-4)


@pytest.mark.parametrize("implementation", ["auto", "full", "blockwise"])
def test_soft_cap_in_an_encoder(rng, monkeypatch, implementation):
    """With segments in full: a score that is the same for all keys matters before a cap."""
    monkeypatch.setattr("keras_diet.layers.attention.plan.BLOCK_SIZE", BLOCK_SIZE)
    encoder = DietEncoder(
        1,
        NUM_HEADS,
        5,
        max_sequence_length=13,
        num_segments=3,
        position_encoding="diet_rel",
        attention_implementation=implementation,
    )
    encoder.build((BATCH, LENGTH, 12))
    randomize(encoder, rng)
    x, segment_ids = normal(rng, BATCH, LENGTH, 12), rng.integers(3, size=(BATCH, LENGTH))
    block, (bias,), (segments,) = (
        encoder.transformer_layers[0],
        encoder.position_biases,
        encoder.segment_biases,
    )
    block = encoder.transformer_layers[0]
    total = to_numpy(bias(x)) + to_numpy(segments(segment_ids.astype("int32")))
    expected = block(
        x,
        attention_bias=total,
        padding_mask=VALID,
        attention_hook=SOFT_CAP,
    )
    found = encoder(
        x,
        segment_ids=segment_ids.astype("int32"),
        padding_mask=VALID,
        attention_hook=SOFT_CAP,
    )
    assert_close(to_numpy(found)[VALID], to_numpy(expected)[VALID], 1e-4)


def recorded_kernel(calls):
    def kernel(query, key, value, scale):
        calls.append((query.shape[-1], scale))
        scores = ops.einsum("bthk,bshk->bhts", query, key) * scale
        return ops.einsum("bhts,bshk->bthk", ops.softmax(scores), value)

    return AttentionHook(kernel=kernel)


def test_kernel_of_a_layer(rng):
    calls, x = [], normal(rng, BATCH, LENGTH, HIDDEN)
    attention = make(rng, recorded_kernel(calls), scale=0.3)
    weights = {**attention_weights(attention), "scale": 0.3}
    assert_close(attention(x, x), reference.multi_head_attention(x, x, weights))
    assert calls == [(KEY_DIM, 0.3)]
    layer = AbsolutePositionBias(NUM_HEADS, 13, rank=2)
    bias = to_numpy(randomize_built(layer, rng)(x))
    output = attention(x, x, attention_bias=layer)
    assert_close(output, reference.multi_head_attention(x, x, weights, bias=bias))
    assert calls[1:] == [(KEY_DIM + 2, 1.0)]


def randomize_built(layer, rng):
    layer.build()
    return randomize(layer, rng)


@pytest.mark.parametrize("implementation", ["auto", "full"])
def test_kernel_of_an_encoder_gets_columns(rng, implementation):
    calls = []
    encoder = DietEncoder(2, NUM_HEADS, 5, max_sequence_length=13, rank=2)
    encoder.build((BATCH, LENGTH, 12))
    randomize(encoder, rng)
    x = normal(rng, BATCH, LENGTH, 12)
    segment_ids = rng.integers(2, size=(BATCH, LENGTH)).astype("int32")
    arguments = {"segment_ids": segment_ids, "padding_mask": VALID}
    expected = to_numpy(encoder(x, **arguments))
    encoder.attention_implementation = implementation
    found = encoder(x, attention_hook=recorded_kernel(calls), **arguments)
    assert_close(to_numpy(found)[VALID], expected[VALID], 1e-4)
    # Heads of 4, a segment, padding and 2 features of positions.
    assert calls == [(8, 1.0)] * 2


@pytest.mark.parametrize(
    "arguments, received",
    [
        ({"attention_bias": np.ones((LENGTH, LENGTH), "float32")}, "a bias"),
        ({"value_mask": VALID}, "a mask"),
        ({"use_causal_mask": True}, "a mask"),
        ({"training": True}, "dropout"),
        ({"return_attention_scores": True}, "return_attention_scores=True"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_kernel_refuses_what_it_would_ignore(rng, arguments, received):
    attention, x = make(rng, recorded_kernel([]), dropout=0.1), normal(rng, BATCH, LENGTH, HIDDEN)
    with pytest.raises(ValueError, match=f"The kernel of a hook takes.*Received: {received}"):
        attention(x, x, **arguments)


@pytest.mark.parametrize("name", ["bias", "scores", "output", "kernel"])
def test_a_kernel_excludes_other_functions(rng, name):
    function = lambda *arguments: arguments  # noqa: E731
    other, x = AttentionHook(**{name: function}), normal(rng, BATCH, LENGTH, HIDDEN)
    match = f"only `heads` can go with it.*Received: kernel, {name}"
    if name != "kernel":
        with pytest.raises(ValueError, match=match):
            AttentionHook(kernel=function, **{name: function})
    with pytest.raises(ValueError, match=match):
        make(rng, AttentionHook(kernel=function))(x, x, attention_hook=other)
    AttentionHook(kernel=function, heads=function)


def test_reads_scores():
    assert [
        AttentionHook(**{name: print}).reads_scores for name in ("heads", "bias", "kernel")
    ] == [False] * 3
    assert AttentionHook(scores=print).reads_scores
    assert AttentionHook(output=print).reads_scores


@block_sizes
def test_weights_that_hooks_read_have_gradients(rng, block_size):
    """Weights of `heads` and `bias`, which run before the blocks."""
    angle, factor = keras.Variable(0.7), keras.Variable(1.3)
    hook = AttentionHook(
        heads=lambda query, key, start: (query * ops.cos(angle), key),
        bias=lambda query, key, start: factor * ops.einsum("bthk,bshk->bhts", query, key),
    )
    attention, x = make(rng, hook), normal(rng, BATCH, LENGTH, HIDDEN)
    query, key, value = heads_of(attention, x)

    def loss():
        return ops.sum(attention(x, x, block_size=block_size) ** 2)

    def reference_loss(angle, factor):
        changed = query * np.cos(angle)
        products = np.einsum("bthk,bshk->bhts", changed, key)
        output, _ = attend(attention, changed, key, value, lambda s: s + factor * products)
        return (project(attention, output) ** 2).sum()

    found, step = gradients(loss, [angle, factor]), 1e-4
    for gradient, (a, f) in zip(found, ((step, 0), (0, step)), strict=True):
        slope = reference_loss(0.7 + a, 1.3 + f) - reference_loss(0.7 - a, 1.3 - f)
        np.testing.assert_allclose(gradient, slope / (2 * step), rtol=1e-2)
