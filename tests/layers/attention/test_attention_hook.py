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
CAP = 0.7
VALID = np.array([[True] * 5 + [False] * 2, [True] * 7])
VECTORS = np.random.default_rng(3).normal(size=(LENGTH, KEY_DIM)).astype("float32")
any_backend = pytest.mark.any_backend
block_sizes = pytest.mark.parametrize("block_size", [None, 3])


def make(rng, hook=None, **kwargs):
    """A layer with random weights whose own hook is `hook`, and an input."""

    class Hooked(BiasedMultiHeadAttention):
        def attention_hook(self):
            return hook

    attention = Hooked(NUM_HEADS, KEY_DIM, **kwargs)
    attention.build((BATCH, LENGTH, HIDDEN), (BATCH, LENGTH, HIDDEN))
    return randomize(attention, rng), normal(rng, BATCH, LENGTH, HIDDEN)


def expected(attention, x, **terms):
    return reference.multi_head_attention(x, x, attention_weights(attention), **terms)


def add_vectors(output, probabilities, start):
    positions = ops.arange(output.shape[1]) + start
    return output + ops.take(ops.convert_to_tensor(VECTORS), positions, axis=0)[None, :, None]


SOFT_CAP = AttentionHook(scores=lambda scores: CAP * ops.tanh(scores / CAP))


@block_sizes
def test_output_gets_the_position_of_the_first_query(rng, block_size):
    attention, x = make(rng, AttentionHook(output=add_vectors))
    kernel = attention_weights(attention)["output_kernel"]
    want = expected(attention, x) + VECTORS @ kernel.sum(axis=0)
    assert_close(attention(x, x, block_size=block_size), want)
    step = attention(x[:, 2:6], x, block_size=block_size, start_index=2)
    assert_close(step, want[:, 2:6])


@block_sizes
def test_scores_are_capped_before_the_masks(rng, block_size):
    attention, x = make(rng, SOFT_CAP)
    bias = normal(rng, NUM_HEADS, LENGTH, LENGTH)
    allowed = VALID[:, None, None] & np.tri(LENGTH, dtype="bool")
    want = expected(attention, x, bias=bias, mask=allowed, change=lambda s: CAP * np.tanh(s / CAP))
    arguments = {"value_mask": VALID, "use_causal_mask": True, "attention_bias": bias}
    # Padding of terms is no score either.
    terms = ScoreTerms(bias=bias, padding_mask=ops.convert_to_tensor(VALID), is_causal=True)
    for terms_of_call in (arguments, {"score_terms": terms}):
        assert_close(attention(x, x, block_size=block_size, **terms_of_call), want)


@block_sizes
@pytest.mark.parametrize("kind", ["tensor", "layer", "none"])
def test_bias_is_added_to_the_other_bias(rng, kind, block_size):
    kept = ops.convert_to_tensor(normal(rng, BATCH, NUM_HEADS, LENGTH, LENGTH))
    before = to_numpy(kept).copy()
    attention, x = make(rng, AttentionHook(bias=lambda query, key, start: kept))
    layer = RelativePositionBias(NUM_HEADS, 13)
    layer.build()
    tensor = to_numpy(randomize(layer, rng)(x))
    bias = {"tensor": tensor, "layer": layer, "none": None}[kind]
    want = expected(attention, x, bias=before + (0 if bias is None else tensor))
    for _ in range(2):
        assert_close(attention(x, x, attention_bias=bias, block_size=block_size), want)
    # The hook keeps its tensor.
    assert_close(kept, before, 0)


@any_backend
def test_output_gets_probabilities_after_dropout(rng):
    seen = []

    def double(output, probabilities, start):
        seen.append(to_numpy(probabilities))
        return 2 * output

    attention, x = make(rng, AttentionHook(output=double), dropout=0.5)
    output, probabilities = expected(attention, x, return_scores=True)
    # The bias of the projection is not doubled.
    assert_close(attention(x, x), 2 * output - attention_weights(attention)["output_bias"])
    assert_close(seen[0], probabilities)
    attention(x, x, training=True)
    dropped = seen[-1]
    assert np.all((dropped == 0) | np.isclose(dropped, 2 * probabilities, rtol=1e-4))
    assert (dropped == 0).any()


@any_backend
def test_two_hooks_run_one_after_the_other(rng):
    """The hook of the layer comes before the hook of the call."""
    attention, x = make(rng, SOFT_CAP)
    second = AttentionHook(
        heads=lambda query, key, start: (3 * query, key),
        scores=lambda scores: scores + 5 * scores**2,
    )

    def change(scores):
        capped = CAP * np.tanh(3 * scores / CAP)
        return capped + 5 * capped**2

    want = expected(attention, x, change=change)
    assert_close(attention(x, x, attention_hook=second), want, 1e-4)
