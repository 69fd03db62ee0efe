"""`DietEncoder` beyond the contract of stacks: masks, projected keys, hooks."""

import keras
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask
from keras_diet.layers import AttentionHook, BiasedMultiHeadAttention
from tests.helpers import assert_close, attention_weights, once, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    PROJECTED,
    VALID,
    expected_biases,
    expected_output,
    make_encoder,
    make_inputs,
)

PADDING = VALID[:, None, None]
TOKENS = np.array([[3, 1, 2, 2, 4], [2, 2, 1, 0, 0]])
any_backend = pytest.mark.any_backend


# === Projected keys, masks ===

PROJECTIONS = [
    ("diet_abs", "none", "input"),
    ("diet_abs", "head-wise", "none"),
    *once(("diet_abs", "layer-wise", "none"), ("input", None, "input"), ("none", None, "none")),
    *once(("sinusoidal", None, "none"), ("diet_abs_input", "none", "input")),
]


@pytest.mark.parametrize("name, sharing, segment_encoding", PROJECTIONS)
def test_projected_keys_equal_reference(rng, name, sharing, segment_encoding):
    arguments = {"segment_encoding": segment_encoding, "projection_dim": PROJECTED}
    encoder = make_encoder(rng, position_encoding=name, sharing=sharing, **arguments)
    x, segment_ids = make_inputs(rng)
    segment_ids = None if segment_encoding == "none" else segment_ids
    output, scores = encoder(
        x, segment_ids=segment_ids, padding_mask=VALID, return_attention_scores=True
    )
    assert_close(output, expected_output(encoder, x, segment_ids, PADDING))
    shapes = {tuple(layer_scores.shape) for layer_scores in scores}
    assert shapes == {(BATCH, NUM_HEADS, LENGTH, PROJECTED)}
    _, symbolic = encoder(keras.Input((LENGTH, HIDDEN), BATCH), return_attention_scores=True)
    assert {each.shape for each in symbolic} == shapes
    # Padding is in no projected key.
    other = np.where(VALID[..., None], x, 100.0).astype("float32")
    found = encoder(other, segment_ids=segment_ids, padding_mask=VALID)
    assert_close(to_numpy(found)[VALID], to_numpy(output)[VALID], 1e-5)


@any_backend
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"position_encoding": "input", "normalize_first": True},
        {"segment_encoding": "none", "projection_dim": PROJECTED},
    ],
    ids=str,
)
def test_keras_mask_is_the_padding_mask(rng, arguments):
    encoder = make_encoder(rng, **arguments)
    initializer = keras.initializers.RandomNormal(stddev=1.0, seed=3)
    x = keras.layers.Embedding(5, HIDDEN, initializer, mask_zero=True)(TOKENS)
    output, again, plain = encoder(x), encoder(x), to_numpy(x)
    np.testing.assert_array_equal(to_numpy(get_keras_mask(output)), VALID)
    expected = to_numpy(encoder(plain, padding_mask=VALID))
    for found in (output, again):
        assert_close(to_numpy(found)[VALID], expected[VALID])
    assert np.abs(expected - to_numpy(encoder(plain)))[VALID].max() > 1e-3
    # A mask that is given replaces it.
    padding_mask = np.array([[True] * 4 + [False], [True] * 5])
    assert_close(encoder(x, padding_mask=padding_mask), encoder(plain, padding_mask=padding_mask))


# === Hooks ===


def scores_before_softmax(encoder, x, segment_ids):
    """The scores of the first layer without masks."""
    weights = attention_weights(encoder.transformer_layers[0].self_attention)
    # b: batch; t, s: query and key positions; d: hidden size; h: heads; k: head size
    query, key = (
        np.einsum("btd,dhk->bthk", x, weights[f"{name}_kernel"]) + weights[f"{name}_bias"]
        for name in ("query", "key")
    )
    products = np.einsum("bthk,bshk->bhts", query, key) / np.sqrt(query.shape[-1])
    return products + expected_biases(encoder, x.shape[1], segment_ids)[0]


@pytest.mark.parametrize("implementation", ["full", "features"])
@pytest.mark.parametrize("is_own", [False, True], ids=["call", "layer"])
def test_a_hook_sees_complete_scores_without_padding(rng, monkeypatch, implementation, is_own):
    seen = []

    def see(scores):
        seen.append(to_numpy(scores))
        return scores

    hook = AttentionHook(scores=see)
    if is_own:
        monkeypatch.setattr(BiasedMultiHeadAttention, "attention_hook", lambda self: hook)
    encoder = make_encoder(rng, num_segments=3, attention_implementation=implementation)
    x, _ = make_inputs(rng)
    segment_ids = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]])
    options = {} if is_own else {"attention_hook": hook}
    encoder(x, segment_ids=segment_ids, padding_mask=VALID, **options)
    assert len(seen) == NUM_LAYERS
    assert_close(seen[0], scores_before_softmax(encoder, x, segment_ids))
