"""`AttentionHook`: each function, two hooks, blocks, gradients."""

import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    AttentionHook,
    BiasedMultiHeadAttention,
    RelativePositionBias,
    ScoreTerms,
)
from tests import reference
from tests.helpers import assert_close, attention_weights, randomize, to_numpy
from tests.layers.attention.variants import normal

BATCH, LENGTH, HIDDEN, NUM_HEADS, KEY_DIM = 2, 7, 11, 3, 4
BLOCK_SIZE = 3
CAP = 0.7
VALID = np.array([[True] * 5 + [False] * 2, [True] * 7])
any_backend = pytest.mark.any_backend
block_sizes = pytest.mark.parametrize("block_size", [None, BLOCK_SIZE])


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


def attend(query, key, value, change=lambda scores: scores, allowed=True):
    """Attention as sums of arrays: the output before its projection, and the probabilities."""
    scores = change(np.einsum("bthk,bshk->bhts", query, key) / np.sqrt(KEY_DIM))
    scores = np.where(allowed, scores, -1e9)
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    return np.einsum("bhts,bshk->bthk", probabilities, value), probabilities


def project(attention, output):
    weights = attention_weights(attention)
    return np.einsum("bthk,hkd->btd", output, weights["output_kernel"]) + weights["output_bias"]


SOFT_CAP = AttentionHook(scores=lambda scores: CAP * ops.tanh(scores / CAP))


@block_sizes
def test_heads_get_the_position_of_the_first_query(rng, block_size):
    def shift(query, key, start):
        positions = ops.cast(ops.arange(query.shape[1]) + start, query.dtype)
        return query * ops.reshape(1 + positions, (1, -1, 1, 1)), 0.5 * key

    attention = make(rng, AttentionHook(heads=shift))
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    query, key, value = heads_of(attention, x)
    positions = np.arange(1, LENGTH + 1)[None, :, None, None]
    expected = project(attention, attend(query * positions, 0.5 * key, value)[0])
    assert_close(attention(x, x, block_size=block_size), expected)
    step = attention(x[:, 4:6], x, block_size=block_size, start_index=4)
    assert_close(step, expected[:, 4:6])


@block_sizes
def test_scores_are_capped_before_the_masks(rng, block_size):
    attention, x = make(rng, SOFT_CAP), normal(rng, BATCH, LENGTH, HIDDEN)
    bias = normal(rng, NUM_HEADS, LENGTH, LENGTH)
    allowed = VALID[:, None, None] & np.tri(LENGTH, dtype="bool")
    output, _ = attend(*heads_of(attention, x), lambda s: CAP * np.tanh((s + bias) / CAP), allowed)
    expected = project(attention, output)
    arguments = {"value_mask": VALID, "use_causal_mask": True, "attention_bias": bias}
    assert_close(attention(x, x, block_size=block_size, **arguments), expected)
    # Padding of terms is no score either.
    terms = ScoreTerms(bias=bias, padding_mask=ops.convert_to_tensor(VALID), is_causal=True)
    assert_close(attention(x, x, block_size=block_size, score_terms=terms), expected)


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


@any_backend
def test_output_gets_probabilities_after_dropout(rng):
    seen = []

    def double(output, probabilities, start):
        seen.append(to_numpy(probabilities))
        return 2 * output

    attention = make(rng, AttentionHook(output=double), dropout=0.5)
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    output, probabilities = attend(*heads_of(attention, x))
    assert_close(attention(x, x), project(attention, 2 * output))
    assert_close(seen[0], probabilities)
    attention(x, x, training=True)
    dropped = seen[-1]
    assert np.all((dropped == 0) | np.isclose(dropped, 2 * probabilities, rtol=1e-4))
    assert (dropped == 0).any()


@block_sizes
def test_output_of_blocks_gets_their_start(rng, block_size):
    """A value vector for each position of a query."""
    vectors = normal(rng, LENGTH, KEY_DIM)

    def add_vectors(output, probabilities, start):
        positions = ops.arange(output.shape[1]) + start
        return output + ops.take(ops.convert_to_tensor(vectors), positions, axis=0)[None, :, None]

    attention = make(rng, AttentionHook(output=add_vectors))
    x = normal(rng, BATCH, LENGTH, HIDDEN)
    output, _ = attend(*heads_of(attention, x))
    expected = project(attention, output + vectors[None, :, None])
    assert_close(attention(x, x, block_size=block_size), expected)


@any_backend
def test_two_hooks_run_one_after_the_other(rng):
    """The hook of the layer comes before the hook of the call."""
    attention, x = make(rng, SOFT_CAP), normal(rng, BATCH, LENGTH, HIDDEN)
    second = AttentionHook(
        heads=lambda query, key, start: (3 * query, key),
        scores=lambda scores: scores + 5 * scores**2,
    )

    def change(scores):
        capped = CAP * np.tanh(3 * scores / CAP)
        return capped + 5 * capped**2

    output, _ = attend(*heads_of(attention, x), change)
    assert_close(attention(x, x, attention_hook=second), project(attention, output), 1e-4)
