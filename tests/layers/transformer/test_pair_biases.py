"""Features of pairs of tokens as an input of `DietEncoder`."""

import numpy as np
import pytest

from keras_diet.layers import DietEncoder, PairBias
from keras_diet.layers.attention import plan
from tests.helpers import assert_close, check_layer, once, to_numpy
from tests.layers import diet_encoders
from tests.layers.diet_encoders import BATCH, LENGTH, NUM_HEADS, VALID, make_encoder

PAIR_DIM = 4
# No bias, features, one that all layers share, one of the content, and one in documents.
NAMES = ("none", "diet_abs", "t5", "query_relative", "shaw")


def make_inputs(rng):
    shape = (BATCH, LENGTH, LENGTH, PAIR_DIM)
    return diet_encoders.make_inputs(rng)[0], rng.normal(size=shape).astype("float32")


def expected_output(encoder, x, pairs, monkeypatch):
    """The output by the reference, whose layers add `w . z_ij`."""
    biases = diet_encoders.expected_biases

    def with_pairs(encoder, *args):
        of_pairs = [
            np.einsum("bijc,ch->bhij", pairs, to_numpy(bias.kernel)) for bias in encoder.pair_biases
        ]
        of_layers = zip(biases(encoder, *args), of_pairs, strict=True)
        return [diet_encoders.sum_of(positions, scores) for positions, scores in of_layers]

    monkeypatch.setattr(diet_encoders, "expected_biases", with_pairs)
    return diet_encoders.expected_output(encoder, x, mask=VALID[:, None, None])


@pytest.mark.parametrize("name", ["diet_abs", *once(*(n for n in NAMES if n != "diet_abs"))])
def test_equals_reference(rng, monkeypatch, name):
    monkeypatch.setattr(plan, "BLOCK_SIZE", 2)
    x, pairs = make_inputs(rng)
    arguments = {"position_encoding": name, "pair_dim": PAIR_DIM, "attention_windows": (None, 3)}
    encoder = make_encoder(np.random.default_rng(3), **arguments)
    expected = expected_output(encoder, x, pairs, monkeypatch)
    assert_close(encoder(x, padding_mask=VALID, pairs=pairs), expected)
    if name != "shaw":
        arguments["attention_implementation"] = "blockwise"
        encoder = make_encoder(np.random.default_rng(3), **arguments)
        assert_close(encoder(x, padding_mask=VALID, pairs=pairs), expected)


def test_the_layer(rng):
    check_layer(PairBias(NUM_HEADS, initializer="ones"), make_inputs(rng)[1])
    assert PairBias(NUM_HEADS).compute_output_shape((2, 5, 7, 3)) == (2, NUM_HEADS, 5, 7)


@pytest.mark.any_backend
def test_refused(rng):
    x, pairs = make_inputs(rng)
    message = r"`pairs` must have the shape.*shape="
    encoder = make_encoder(rng, pair_dim=PAIR_DIM)
    for wrong in (None, pairs[..., :3], pairs[:, :4], pairs[0]):
        with pytest.raises(ValueError, match=message):
            encoder(x, pairs=wrong)
    with pytest.raises(ValueError, match=message):
        make_encoder(rng)(x, pairs=pairs)
    with pytest.raises(ValueError, match=r"needs `pair_dim=None`.*projection_dim=4"):
        DietEncoder(2, 3, 11, projection_dim=4, pair_dim=3, segment_encoding="none")
