"""`RotaryMultiHeadAttention` against the reference and against plain attention."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention, DietEncoder, RotaryMultiHeadAttention
from tests import reference
from tests.helpers import (
    assert_close,
    attention_weights,
    check_layer,
    compiled,
    gradients,
    randomize,
    to_numpy,
    weighted_sum,
)

BATCH, HIDDEN, NUM_HEADS, KEY_DIM, VALUE_DIM, WAVELENGTH = 2, 7, 3, 10, 5, 23.0
QUERIES, KEYS = 5, 11
CAUSAL = np.tri(QUERIES, KEYS, dtype="bool")


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make(rng, **kwargs):
    arguments = {"max_wavelength": WAVELENGTH, "value_dim": VALUE_DIM, **kwargs}
    attention = RotaryMultiHeadAttention(NUM_HEADS, KEY_DIM, **arguments)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    return randomize(attention, rng, scale=0.6)


def make_inputs(rng, query_length=QUERIES, key_length=KEYS):
    return normal(rng, BATCH, query_length, HIDDEN), normal(rng, BATCH, key_length, HIDDEN)


@pytest.mark.parametrize("causal", [False, True])
def test_equals_reference(rng, causal):
    attention = make(rng)
    query, value = make_inputs(rng)
    bias = normal(rng, 1, NUM_HEADS, QUERIES, KEYS)
    arguments = {"attention_bias": bias, "use_causal_mask": causal}
    expected = reference.multi_head_attention(
        query,
        value,
        attention_weights(attention),
        bias=bias,
        mask=CAUSAL if causal else None,
        return_scores=True,
    )
    output, scores = compiled(
        lambda: attention(query, value, return_attention_scores=True, **arguments)
    )()
    assert_close(output, expected[0])
    assert_close(scores, expected[1])
    # Without scores PyTorch uses its fused kernel.
    assert_close(compiled(lambda: attention(query, value, **arguments))(), expected[0])


@pytest.mark.parametrize("query_length, key_length", [(1, 13), (13, 2)])
def test_lengths_equal_reference(rng, query_length, key_length):
    attention = make(rng, scale=0.9)
    query, value = make_inputs(rng, query_length, key_length)
    weights = {**attention_weights(attention), "scale": 0.9}
    expected = reference.multi_head_attention(query, value, weights)
    assert_close(compiled(lambda: attention(query, value))(), expected)


def test_the_reference_is_the_matrix_of_the_paper(rng):
    """Equation 15 of Su et al., whose pairs are neighbors, for columns in another order."""
    vector, position = rng.normal(size=6), 5
    matrix = np.zeros((6, 6))
    for k in range(3):
        angle = position * 10_000.0 ** (-2 * k / 6)
        cosine, sine = np.cos(angle), np.sin(angle)
        matrix[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = [[cosine, -sine], [sine, cosine]]
    order = [0, 3, 1, 4, 2, 5]
    expected = matrix @ vector[order]
    np.testing.assert_allclose(reference.turned(vector, position)[order], expected, 1e-12)


def test_scores_depend_on_the_distance_only(rng):
    attention = make(rng)
    # The same query, and the same key, at each position.
    query, key = (
        np.broadcast_to(x, (1, 9, NUM_HEADS, KEY_DIM)) for x in normal(rng, 2, NUM_HEADS, KEY_DIM)
    )
    turned_query, turned_key = to_numpy(attention.rotate(query)), to_numpy(attention.rotate(key))
    scores = np.einsum("bthk,bshk->hts", turned_query, turned_key)
    assert_close(scores[:, 1:, 1:], scores[:, :-1, :-1])
    for distance in (1, 3):
        # The direction and the size of the distance matter.
        assert np.abs(scores[:, 0, distance] - scores[:, distance, 0]).max() > 1e-2
        assert np.abs(scores[:, 0, distance] - scores[:, 0, 0]).max() > 1e-2
    assert_close(np.linalg.norm(turned_key, axis=-1), np.linalg.norm(key, axis=-1))
    assert_close(turned_key[:, 0], key[:, 0])


@pytest.mark.parametrize("as_tensor", [False, True], ids=["int", "tensor"])
def test_a_step_is_a_row_of_the_full_pass(rng, as_tensor):
    attention = make(rng)
    _, x = make_inputs(rng)
    start = ops.convert_to_tensor(4, "int32") if as_tensor else 4
    full = to_numpy(compiled(lambda: attention(x, x, use_causal_mask=True))())
    step = attention(x[:, 4:6], x, use_causal_mask=True, start_index=start)
    assert_close(step, full[:, 4:6])
    elsewhere = to_numpy(attention(x[:, 4:6], x, start_index=3))
    assert np.abs(elsewhere - to_numpy(attention(x[:, 4:6], x, start_index=start))).max() > 1e-2


def test_no_position_is_plain_attention(rng):
    """Keys at the position of the query are not turned against it."""
    attention = make(rng)
    plain = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, VALUE_DIM)
    query, value = make_inputs(rng, 1, 1)
    plain.build(query.shape, value.shape)
    plain.set_weights(attention.get_weights())
    assert_close(attention(query, value), plain(query, value), 1e-6)
    query, value = make_inputs(rng)
    assert np.abs(to_numpy(attention(query, value)) - to_numpy(plain(query, value))).max() > 1e-2


def test_gradients_equal_finite_differences(rng):
    attention = make(rng)
    query, value = make_inputs(rng)
    random, values = normal(rng, BATCH, QUERIES, HIDDEN), attention_weights(attention)
    names = ("query", "key")
    variables = [getattr(attention, f"{name}_dense").kernel for name in names]
    found = gradients(lambda: weighted_sum(attention(query, value), random), variables)

    def loss(name, array):
        weights = {**values, name: array}
        return np.sum(reference.multi_head_attention(query, value, weights) * random)

    for name, gradient in zip(names, found, strict=True):
        name = f"{name}_kernel"
        for flat_index in rng.choice(gradient.size, size=2, replace=False):
            index = np.unravel_index(flat_index, gradient.shape)
            slope = reference.finite_difference(
                lambda array, name=name: loss(name, array), values[name], index
            )
            np.testing.assert_allclose(gradient[index], slope, 1e-3, 1e-4, err_msg=name)


def test_padded_tokens_change_nothing(rng):
    attention = make(rng)
    query, value = make_inputs(rng)
    valid = np.array([[True] * 4 + [False] * 7, [True] * 11])
    other = np.where(valid[..., None], value, 100.0).astype("float32")
    weights = attention_weights(attention)
    expected = reference.multi_head_attention(query, value, weights, mask=valid[:, None, None])
    assert_close(attention(query, other, value_mask=valid), expected)


def test_blocks_and_features(rng):
    attention = make(rng)
    query, value = make_inputs(rng)
    features = normal(rng, 1, QUERIES, NUM_HEADS, 2), normal(rng, BATCH, KEYS, 1, 2)
    bias = np.einsum("bthr,csxr->chts", features[0], features[1])
    expected = reference.multi_head_attention(query, value, attention_weights(attention), bias=bias)
    for arguments in ({}, {"block_size": 2}):
        output = compiled(
            lambda a=arguments: attention(query, value, attention_features=features, **a)
        )()
        assert_close(output, expected)


@pytest.mark.any_backend
def test_angles_are_in_float32():
    """bfloat16 holds whole numbers up to 256, and the angle of position 1001 needs more."""
    attention = RotaryMultiHeadAttention(1, 2, max_wavelength=50, dtype="bfloat16")
    heads = np.zeros((1, 1, 1, 2))
    heads[..., 0] = 1.0
    turned = to_numpy(attention.rotate(ops.cast(heads, "bfloat16"), 1001))
    assert_close(turned[0, 0, 0], np.array([np.cos(1001), np.sin(1001)]), 4e-3)


@pytest.mark.any_backend
def test_functional_model_of_any_length(rng):
    attention = make(rng)
    inputs = keras.Input((None, HIDDEN)), keras.Input((None, HIDDEN))
    model = keras.Model(inputs, ops.mean(attention(*inputs), axis=1))
    for lengths in ((5, 7), (11, 3)):
        query, value = make_inputs(rng, *lengths)
        expected = reference.multi_head_attention(query, value, attention_weights(attention))
        assert_close(model.predict([query, value], verbose=0), expected.mean(axis=1))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph for any length")
def test_one_graph_for_all_lengths(rng):
    import tensorflow as tf

    attention = make(rng)
    spec = tf.TensorSpec((None, None, HIDDEN))
    function = tf.function(attention, input_signature=(spec, spec))
    for lengths in ((5, 7), (11, 3)):
        query, value = make_inputs(rng, *lengths)
        assert_close(function(query, value), attention(query, value))


def test_encoder_takes_any_way_of_computing_it(rng):
    x = normal(rng, 2, 7, 12)
    outputs = []
    for name in ("full", "features", "blockwise"):
        encoder = DietEncoder(2, 3, 5, position_encoding="rotary", attention_implementation=name)
        encoder.build(x.shape)
        randomize(encoder, np.random.default_rng(5))
        segments = np.array([[0, 0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 1, 1]])
        outputs.append(to_numpy(compiled(lambda e=encoder: e(x, segments))()))  # noqa: B023
    assert_close(outputs[1], outputs[0])
    assert_close(outputs[2], outputs[0])


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "key_dim, arguments, message",
    [
        (5, {}, r"`key_dim` must be even.*key_dim=5.*hidden_dim / num_heads"),
        (4, {"max_wavelength": 0}, "`max_wavelength` must be.*max_wavelength=0"),
        (4, {"attention_axes": 2}, "`attention_axes` must be left at `None`"),
    ],
)
def test_arguments_that_are_refused(key_dim, arguments, message):
    with pytest.raises(ValueError, match=message):
        RotaryMultiHeadAttention(NUM_HEADS, key_dim, **arguments)


@pytest.mark.any_backend
def test_there_is_one_sequence_axis(rng):
    with pytest.raises(ValueError, match=r"shape \(batch_size, length, features\).*2, 3, 5, 6"):
        RotaryMultiHeadAttention(NUM_HEADS, KEY_DIM)(*[normal(rng, 2, 3, 5, 6)] * 2)


def test_as_a_layer(rng):
    attention = RotaryMultiHeadAttention(
        NUM_HEADS,
        KEY_DIM,
        max_wavelength=WAVELENGTH,
        scale=0.7,
        dropout=0.3,
        output_shape=11,
        use_gate=True,
        kernel_regularizer="l2",
        bias_initializer="ones",
        seed=3,
        name="attention",
    )
    mask = np.random.default_rng(5).random((BATCH, QUERIES, KEYS)) < 0.6
    mask[:, :, 0] = True
    # A bias of the keys is turned too, so it has a gradient here.
    check_layer(attention, *make_inputs(rng), attention_mask=mask)
