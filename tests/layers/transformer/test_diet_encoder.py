"""`DietEncoder` against the reference; see also the other tests that begin like this file."""

import numpy as np
import pytest

from keras_diet.layers import DietEncoder
from tests import reference
from tests.helpers import assert_close, block_weights, once, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    CAUSAL,
    HIDDEN,
    LENGTH,
    MASK,
    MAX_LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    PROJECTED,
    PROJECTED_POSITIONS,
    VALID,
    copy_weights,
    expected_biases,
    expected_output,
    make_encoder,
    make_inputs,
)

# Call arguments, and the mask that they mean to the reference.
MASKS = {
    "padding": ({"padding_mask": VALID}, VALID[:, None, None]),
    "padding_of_integers": ({"padding_mask": VALID.astype("int32")}, VALID[:, None, None]),
    "attention": ({"attention_mask": MASK}, MASK[:, None]),
    "attention_of_integers": ({"attention_mask": MASK.astype("int32")}, MASK[:, None]),
    "causal": ({"use_causal_mask": True}, CAUSAL),
    "all": (
        {"padding_mask": VALID, "attention_mask": MASK, "use_causal_mask": True},
        VALID[:, None, None] & MASK[:, None] & CAUSAL,
    ),
}








@pytest.mark.parametrize(
    "positions, segment_encoding",
    [
        (PROJECTED_POSITIONS[0], "input"),
        (PROJECTED_POSITIONS[1], "none"),
        *once(*zip(PROJECTED_POSITIONS[2:], ["input", "none"] * 3, strict=False)),
    ],
    ids=str,
)
def test_projected_keys_equal_reference(rng, positions, segment_encoding):
    encoder = make_encoder(
        rng, **positions, segment_encoding=segment_encoding, projection_dim=PROJECTED
    )
    x, segment_ids = make_inputs(rng)
    segment_ids = None if segment_encoding == "none" else segment_ids
    output, scores = encoder(
        x, segment_ids=segment_ids, padding_mask=VALID, return_attention_scores=True
    )
    assert_close(output, expected_output(encoder, x, segment_ids, VALID[:, None, None]))
    shapes = {tuple(layer_scores.shape) for layer_scores in scores}
    assert shapes == {(BATCH, NUM_HEADS, LENGTH, PROJECTED)}


@pytest.mark.parametrize("position_encoding", ["input", "sinusoidal", "diet_abs_input"])
def test_inputs_that_are_encoded_already(rng, position_encoding):
    arguments = {"position_encoding": position_encoding, "segment_encoding": "input"}
    encoder = make_encoder(rng, **arguments)
    plain = make_encoder(rng, **arguments, encode_inputs=False)
    assert plain.input_encoding is None
    copy_weights(encoder, plain)
    for source, target in zip(encoder.position_biases, plain.position_biases, strict=True):
        target.set_weights(source.get_weights())
    x, segment_ids = make_inputs(rng)
    encoded = encoder.input_encoding(x, segment_ids=segment_ids)
    assert_close(plain(encoded), encoder(x, segment_ids=segment_ids), 1e-6)


@pytest.mark.parametrize(
    "position_encoding, masks",
    [
        *(("diet_abs", masks) for masks in ("attention_of_integers", "causal", "all")),
        *once(*(("diet_abs", masks) for masks in ("padding", "padding_of_integers", "attention"))),
        *((name, "all") for name in ("shaw", "none")),
    ],
)
def test_masks_equal_reference(rng, position_encoding, masks):
    encoder = make_encoder(rng, position_encoding=position_encoding)
    x, segment_ids = make_inputs(rng)
    arguments, mask = MASKS[masks]
    output = encoder(x, segment_ids=segment_ids, **arguments)
    assert_close(output, expected_output(encoder, x, segment_ids, mask))


def test_no_bias_at_all_with_a_causal_mask(rng):
    encoder = make_encoder(rng, position_encoding="none", segment_encoding="none")
    x, _ = make_inputs(rng)
    assert_close(encoder(x, use_causal_mask=True), expected_output(encoder, x, mask=CAUSAL))


@pytest.mark.parametrize("segment_encoding", ["per-head", "input"])
def test_segment_defaults_to_zero(rng, segment_encoding):
    encoder = make_encoder(rng, segment_encoding=segment_encoding)
    x, _ = make_inputs(rng)
    output = encoder(x)
    assert_close(output, expected_output(encoder, x))
    assert_close(output, encoder(x, segment_ids=np.zeros((BATCH, LENGTH), "int32")), 1e-6)






@pytest.mark.parametrize("normalize_first", [False, True], ids=["post_norm", "pre_norm"])
def test_scores_on_request(rng, normalize_first):
    encoder = make_encoder(rng, normalize_first=normalize_first)
    x, segment_ids = make_inputs(rng)
    arguments = {"segment_ids": segment_ids, "padding_mask": VALID}
    output, scores = encoder(x, return_attention_scores=True, **arguments)
    assert_close(output, encoder(x, **arguments))
    assert len(scores) == NUM_LAYERS
    for layer_scores in map(to_numpy, scores):
        assert layer_scores.shape == (BATCH, NUM_HEADS, LENGTH, LENGTH)
        assert_close(layer_scores.sum(axis=-1), np.ones((BATCH, NUM_HEADS, LENGTH)))
        assert not layer_scores[1, :, :, 3:].any()
    assert np.abs(to_numpy(scores[0]) - to_numpy(scores[1])).max() > 1e-2


def test_scores_of_the_first_layer_equal_reference(rng):
    encoder = make_encoder(rng)
    x, segment_ids = make_inputs(rng)
    _, scores = encoder(x, segment_ids=segment_ids, return_attention_scores=True)
    _, expected = reference.multi_head_attention(
        x,
        x,
        block_weights(encoder.transformer_layers[0])["attention"],
        bias=expected_biases(encoder, LENGTH, segment_ids)[0],
        return_scores=True,
    )
    assert_close(scores[0], expected)


def test_scores_while_training(rng):
    encoder = make_encoder(rng, dropout=0.5)
    x, _ = make_inputs(rng)
    _, scores = encoder(x, return_attention_scores=True, training=True)
    assert_close(to_numpy(scores[1]).sum(axis=-1), np.ones((BATCH, NUM_HEADS, LENGTH)))








def test_sizes_follow_the_inputs():
    encoder = DietEncoder(NUM_LAYERS, NUM_HEADS, 11, max_sequence_length=MAX_LENGTH)
    encoder.build((BATCH, LENGTH, 3 * HIDDEN))
    assert encoder.transformer_layers[0].self_attention.key_dim == 6
    # The rank of the scores is the head size unless it is given.
    assert encoder.position_biases[0].rank == 6
