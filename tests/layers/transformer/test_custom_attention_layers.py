"""`DietEncoder` with custom attention layers."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    AbsolutePositionBias,
    AttentionHook,
    BiasedMultiHeadAttention,
    BiasedTransformerEncoder,
    PositionEncoding,
)
from tests.helpers import assert_close, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    CAUSAL,
    HIDDEN,
    LENGTH,
    MASK,
    NUM_HEADS,
    NUM_LAYERS,
    PROJECTED,
    VALID,
    copy_weights,
    expected_biases,
    expected_output,
    make_encoder,
    make_inputs,
)


class CustomAttention(keras.layers.Layer):
    """An attention layer that knows only the arguments of Keras's layer and a bias."""

    calls = []

    def __init__(self, num_heads, key_dim, name=None, **kwargs):
        super().__init__(name=name)
        self.attention = BiasedMultiHeadAttention(num_heads, key_dim, **kwargs)

    def build(self, query_shape, value_shape):
        self.attention.build(query_shape, value_shape)
        self.built = True

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
        self.calls.append(arguments)
        return self.attention(query, value, **arguments)


@pytest.fixture
def calls(monkeypatch):
    """The arguments of all calls of `CustomAttention` in one test."""
    monkeypatch.setattr(CustomAttention, "calls", [])
    return CustomAttention.calls


def custom_attention(sizes, **kwargs):
    return CustomAttention(sizes.num_heads, sizes.head_dim, **kwargs)


def absolute_bias(sizes, **kwargs):
    return AbsolutePositionBias(sizes.num_heads, sizes.max_length, 2, **kwargs)


def test_custom_attention_gets_scores_and_masks(rng, register, calls):
    name = register(
        attention=custom_attention, bias=absolute_bias, sharing_modes=("none", "layer-wise")
    )
    encoder = make_encoder(rng, position_encoding=name, num_segments=3)
    plain = make_encoder(rng, position_encoding="diet_abs", sharing="none", rank=2, num_segments=3)
    plain.set_weights(encoder.get_weights())
    x, _ = make_inputs(rng)
    segment_ids = np.array([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]])
    output = encoder(
        x,
        segment_ids=segment_ids,
        padding_mask=VALID.astype("int32"),
        attention_mask=MASK,
        use_causal_mask=True,
    )
    mask = VALID[:, None, None] & MASK[:, None] & CAUSAL
    assert_close(output, expected_output(plain, x, segment_ids, mask))
    assert len(calls) == NUM_LAYERS
    for call, bias in zip(calls, expected_biases(plain, LENGTH, segment_ids), strict=True):
        assert_close(call["attention_bias"], bias)
        np.testing.assert_array_equal(to_numpy(call["value_mask"]), VALID)
        np.testing.assert_array_equal(to_numpy(call["attention_mask"]), MASK)
        assert call["use_causal_mask"] is True


def test_custom_attention_in_a_block(rng, calls):
    block = BiasedTransformerEncoder(11, NUM_HEADS, self_attention=CustomAttention(NUM_HEADS, 2))
    plain = BiasedTransformerEncoder(11, NUM_HEADS)
    for layer in (block, plain):
        layer.build((BATCH, LENGTH, HIDDEN))
    plain.set_weights(block.get_weights())
    x, _ = make_inputs(rng)
    bias = rng.normal(size=(BATCH, NUM_HEADS, LENGTH, LENGTH)).astype("float32")
    arguments = {"attention_bias": bias, "padding_mask": VALID}
    assert_close(block(x, **arguments), plain(x, **arguments))


def test_custom_attention_is_refused_where_it_cannot_work(rng, register):
    name = register(attention=custom_attention)
    hook = AttentionHook(scores=lambda scores: scores)
    with pytest.raises(ValueError, match=r"(?s)`attention_hook` needs.*Received: <CustomAttention"):
        make_encoder(rng, position_encoding=name)(make_inputs(rng)[0], attention_hook=hook)
    for implementation in ("features", "blockwise"):
        with pytest.raises(ValueError, match=f"'{implementation}' needs.*CustomAttention"):
            make_encoder(rng, position_encoding=name, attention_implementation=implementation)


@pytest.mark.parametrize("projection_dim", [None, PROJECTED])
def test_scale(rng, register, projection_dim):
    name = register(scale=lambda sizes: 0.1 * sizes.head_dim, allows_projection=True)
    arguments = {"segment_encoding": "none", "projection_dim": projection_dim}
    encoder = make_encoder(rng, position_encoding=name, **arguments)
    assert [block.self_attention.scale for block in encoder.transformer_layers] == [0.2, 0.2]
    plain = make_encoder(rng, position_encoding="none", **arguments)
    copy_weights(encoder, plain)
    for block in plain.transformer_layers:
        dense = block.self_attention.query_dense
        for weight in (dense.kernel, dense.bias):
            weight.assign(0.2 * np.sqrt(2) * to_numpy(weight))
    x, _ = make_inputs(rng)
    assert_close(encoder(x), plain(x))


def test_scale_with_attention_is_refused():
    with pytest.raises(ValueError, match="`scale` is only used without `attention`"):
        PositionEncoding(scale=lambda sizes: 0.7, attention=custom_attention)


def test_sliding_window_of_an_attention_layer(rng, register):
    def probabilities(window):
        name = register(
            attention=lambda sizes, **kwargs: BiasedMultiHeadAttention(
                sizes.num_heads, sizes.head_dim, sliding_window=window, **kwargs
            )
        )
        encoder = make_encoder(rng, position_encoding=name)
        x, segment_ids = make_inputs(rng)
        _, scores = encoder(x, segment_ids=segment_ids, return_attention_scores=True)
        return to_numpy(scores[0])

    distance = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH))
    found = probabilities(window=3)
    assert np.all(found[..., distance >= 3] == 0)
    assert np.all(found[..., distance < 3] > 0)
    assert np.all(probabilities(window=None) > 0)
