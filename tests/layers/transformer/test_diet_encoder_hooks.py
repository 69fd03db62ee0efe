"""`DietEncoder` with an `attention_hook`, and dropout of the probabilities that a hook sees."""

import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    AttentionHook,
    BiasedMultiHeadAttention,
)
from tests.helpers import assert_close, attention_weights, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    VALID,
    expected_biases,
    make_encoder,
    make_inputs,
)

CAP = 0.7


def expected_scores(encoder, x, segment_ids):
    """The scores of the first layer before softmax, without masks."""
    weights = attention_weights(encoder.transformer_layers[0].self_attention)
    # b: batch; t, s: query and key positions; d: hidden size; h: heads; k: head size
    query, key = (
        np.einsum("btd,dhk->bthk", x, weights[f"{name}_kernel"]) + weights[f"{name}_bias"]
        for name in ("query", "key")
    )
    products = np.einsum("bthk,bshk->bhts", query, key) / np.sqrt(query.shape[-1])
    return products + expected_biases(encoder, x.shape[1], segment_ids)[0]


def softmax(scores):
    """The softmax over keys, without padding."""
    exponentials = np.exp(scores) * VALID[:, None, None]
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("implementation", ["full", "features"])
def test_a_hook_sees_complete_scores_without_padding(rng, implementation):
    encoder = make_encoder(rng, num_segments=3, attention_implementation=implementation)
    x, _ = make_inputs(rng)
    segment_ids = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]])
    arguments = {"segment_ids": segment_ids, "padding_mask": VALID}
    seen = []

    def see(scores):
        seen.append(to_numpy(scores))
        return scores

    output, probabilities = encoder(
        x, return_attention_scores=True, attention_hook=AttentionHook(scores=see), **arguments
    )
    assert len(seen) == NUM_LAYERS
    expected = expected_scores(encoder, x, segment_ids)
    assert_close(seen[0], expected)
    assert_close(probabilities[0], softmax(expected))
    assert_close(output, encoder(x, **arguments))


def soft_cap(scores):
    return CAP * ops.tanh(scores / CAP)


class SoftCappedAttention(BiasedMultiHeadAttention):
    """Attention whose own hook caps the scores."""

    def attention_hook(self):
        return AttentionHook(scores=soft_cap)


def test_soft_cap(rng, register):
    """As the hook of a call and as the hook of the attention layer."""
    encoder = make_encoder(rng, position_encoding="none")
    x, segment_ids = make_inputs(rng)
    arguments = {"segment_ids": segment_ids, "padding_mask": VALID, "return_attention_scores": True}
    hook = AttentionHook(scores=soft_cap)
    output, probabilities = encoder(x, attention_hook=hook, **arguments)
    capped = CAP * np.tanh(expected_scores(encoder, x, segment_ids) / CAP)
    assert_close(probabilities[0], softmax(capped))

    name = register(
        attention=lambda sizes, **kwargs: SoftCappedAttention(
            sizes.num_heads, sizes.head_dim, **kwargs
        )
    )
    own = make_encoder(rng, position_encoding=name)
    own.set_weights(encoder.get_weights())
    own_output, own_probabilities = own(x, **arguments)
    assert_close(own_output, output)
    for actual, expected in zip(own_probabilities, probabilities, strict=True):
        assert_close(actual, expected)


# === Dropout of the probabilities ===


def test_dropout_drops_probabilities(rng):
    encoder = make_encoder(rng, dropout=0.5)
    x, segment_ids = make_inputs(rng)
    seen = []

    def see(output, probabilities, start_index):
        seen.append(to_numpy(probabilities))
        return output

    _, probabilities = encoder(
        x,
        segment_ids=segment_ids,
        training=True,
        return_attention_scores=True,
        attention_hook=AttentionHook(output=see),
    )
    for dropped, kept in zip(seen, map(to_numpy, probabilities), strict=True):
        assert dropped.shape == (BATCH, NUM_HEADS, LENGTH, LENGTH)
        is_dropped = dropped == 0
        assert 0 < is_dropped.sum() < is_dropped.size
        # Dropout keeps the mean.
        assert_close(dropped, np.where(is_dropped, 0, 2 * kept))


@pytest.mark.parametrize("implementation", ["full", "features", "blockwise"])
def test_dropout_of_probabilities_alone_changes_outputs(rng, implementation):
    encoder = make_encoder(rng, dropout=0.5, attention_implementation=implementation)
    for block in encoder.transformer_layers:
        block.self_attention_dropout.rate = block.feedforward_dropout.rate = 0.0
    x, segment_ids = make_inputs(rng)
    outputs = [
        to_numpy(encoder(x, segment_ids=segment_ids, training=training))
        for training in (False, True, True)
    ]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(outputs[first] - outputs[second]).max() > 1e-2
