"""Stacks with custom attention layers and custom bias layers, and what their layers share."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    BiasedTransformerEncoder,
    ScoreTerms,
)
from keras_diet.layers.transformer.position_encodings import POSITION_ENCODINGS
from tests.helpers import assert_close, randomize, to_numpy
from tests.layers.diet_encoders import (
    CAUSAL,
    MASK,
    MAX_LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    VALID,
    Slopes,
    expected_output,
    make_encoder,
    make_inputs,
)

pytestmark = pytest.mark.any_backend

# === Attention layers ===


class CustomAttention(keras.layers.Layer):
    """An attention layer that knows only the arguments of Keras's layer and a bias."""

    def __init__(self, num_heads, key_dim, name=None, **kwargs):
        super().__init__(name=name)
        self.attention = BiasedMultiHeadAttention(num_heads, key_dim, **kwargs)

    def build(self, query_shape, value_shape):
        self.attention.build(query_shape, value_shape)

    def call(
        self,
        query,
        value,
        attention_bias=None,
        attention_mask=None,
        value_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        arguments = {
            "attention_bias": attention_bias,
            "attention_mask": attention_mask,
            "value_mask": value_mask,
            "use_causal_mask": use_causal_mask,
        }
        return self.attention(query, value, **arguments)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("encoding", ["diet_abs", "query_relative"])
def test_custom_attention_gets_scores_and_masks(rng, register, encoding, window):
    bias = POSITION_ENCODINGS[encoding].bias
    name = register(attention=CustomAttention, bias=bias, sharing_modes=("none", "layer-wise"))
    arguments = {"num_segments": 3, "attention_windows": (window, None)}
    encoder = make_encoder(rng, position_encoding=name, **arguments)
    plain = make_encoder(rng, position_encoding=encoding, sharing="none", **arguments)
    plain.set_weights(encoder.get_weights())
    x, segment_ids = make_inputs(rng)[0], np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]])
    masks = {"padding_mask": VALID.astype("int32"), "attention_mask": MASK}
    output = encoder(x, segment_ids=segment_ids, use_causal_mask=True, **masks)
    mask = VALID[:, None, None] & MASK[:, None] & CAUSAL
    assert_close(output, expected_output(plain, x, segment_ids, mask))


TERMS = {
    "documents": {"document_ids": np.array([[1, 1, 2, 2, 2], [3, 3, 3, 3, 0]], "int32")},
    "window": {"sliding_window": 2},
    "later queries": {"is_causal": True, "start_index": 2},
}


@pytest.mark.parametrize("terms", TERMS.values(), ids=list(TERMS))
def test_custom_attention_of_a_block_gets_all_terms(rng, terms):
    """As a bias and a mask, like that of a stack. The layer has no argument for the others."""
    custom, plain = (
        BiasedTransformerEncoder(11, NUM_HEADS, self_attention=kind(NUM_HEADS, 2))
        for kind in (CustomAttention, BiasedMultiHeadAttention)
    )
    x, bias = make_inputs(rng)[0], AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, 2)
    for layer in (custom, plain, bias):
        layer.build(x.shape)
    custom.set_weights(randomize(plain, rng).get_weights())
    padding = keras.ops.convert_to_tensor(VALID)
    without = ScoreTerms(randomize(bias, rng), padding_mask=padding)
    expected = to_numpy(plain(x, score_terms=without.replace(**terms)))[VALID]
    found = to_numpy(custom(x, score_terms=without.replace(**terms)))[VALID]
    assert_close(found, expected)
    assert np.abs(to_numpy(plain(x, score_terms=without))[VALID] - expected).max() > 1e-2


# === Bias layers ===


class Doubled(AbsolutePositionBias):
    """Other scores than those of the inherited features, so it declares that it has none."""

    features = None

    def compute_scores(self, *args):
        return 2 * super().compute_scores(*args)


class DoubledCall(AbsolutePositionBias):
    """The same in a `call` without `start_index`."""

    features = None
    rows = None

    def call(self, query, key=None):
        return 2 * super().call(query, key)


def test_a_subclass_declares_the_forms_that_it_does_not_have(rng):
    encoder = make_encoder(
        rng,
        position_encoding=Doubled(NUM_HEADS, MAX_LENGTH, 2),
        attention_implementation="blockwise",
    )
    other = make_encoder(rng, position_encoding=DoubledCall(NUM_HEADS, MAX_LENGTH, 2))
    other.set_weights(encoder.get_weights())
    x, segment_ids = make_inputs(rng)
    assert_close(encoder(x, segment_ids=segment_ids), other(x, segment_ids=segment_ids))
    bias = Doubled(NUM_HEADS, MAX_LENGTH, 2)
    with pytest.raises(ValueError, match="'features' needs a bias layer with `features`"):
        make_encoder(rng, position_encoding=bias, attention_implementation="features")


# === Sharing ===


@pytest.mark.parametrize("sharing, count", [(None, 1), ("layer-wise", 1), ("none", NUM_LAYERS)])
def test_own_bias_layer_is_shared_or_copied(rng, sharing, count):
    bias = Slopes(NUM_HEADS, name="slopes")
    encoder = make_encoder(rng, position_encoding=bias, sharing=sharing)
    x, segment_ids = make_inputs(rng)
    output = encoder(x, segment_ids=segment_ids)
    assert encoder.position_biases[0] is bias
    found = [(type(each), each.num_calls) for each in encoder.position_biases]
    assert found == [(Slopes, 1)] * count
    slopes = [weight for weight in encoder.weights if weight.name == "slopes"]
    assert len(slopes) == len({weight.path for weight in slopes}) == count
    assert len({float(to_numpy(weight)[0]) for weight in slopes}) == count
    assert_close(output, expected_output(encoder, x, segment_ids))
