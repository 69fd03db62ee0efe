"""`DietEncoder` beyond the contract of stacks: masks and projected keys."""

import keras
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask
from tests.helpers import assert_close, once, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    NUM_HEADS,
    PROJECTED,
    VALID,
    expected_output,
    make_encoder,
    make_inputs,
)

PADDING = VALID[:, None, None]
TOKENS = np.array([[3, 1, 2, 2, 4], [2, 2, 1, 0, 0]])


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


@pytest.mark.any_backend
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
