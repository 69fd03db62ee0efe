"""`TransformerXLMultiHeadAttention` against the reference and against plain attention."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention, TransformerXLMultiHeadAttention
from tests import reference
from tests.helpers import (
    HALF_POLICIES,
    assert_close,
    attention_weights,
    check_layer,
    compiled,
    gradients,
    randomize,
    to_numpy,
    weighted_sum,
)

BATCH, HIDDEN, NUM_HEADS, KEY_DIM, VALUE_DIM = 2, 7, 3, 4, 5
QUERIES, KEYS = 5, 11
CAUSAL = np.tri(QUERIES, KEYS, dtype="bool")


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make(rng, **kwargs):
    arguments = {"value_dim": VALUE_DIM, **kwargs}
    attention = TransformerXLMultiHeadAttention(NUM_HEADS, KEY_DIM, **arguments)
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


@pytest.mark.parametrize("query_length, key_length", [(3, 3), (1, 13), (13, 2)])
def test_lengths_equal_reference(rng, query_length, key_length):
    attention = make(rng, scale=0.9)
    query, value = make_inputs(rng, query_length, key_length)
    weights = {**attention_weights(attention), "scale": 0.9}
    expected = reference.multi_head_attention(query, value, weights)
    assert_close(compiled(lambda: attention(query, value))(), expected)


def test_separate_keys_equal_reference(rng):
    attention = make(rng)
    (query, value), key = make_inputs(rng), normal(rng, BATCH, KEYS, HIDDEN)
    weights = attention_weights(attention)
    expected = reference.multi_head_attention(query, value, weights, key=key)
    assert_close(attention(query, value, key), expected)


def test_projected_sinusoids(rng):
    """The projection of known columns: the first sine and the first cosine of `i - j`."""
    attention = make(rng)
    kernel = np.zeros((HIDDEN, NUM_HEADS, KEY_DIM), "float32")
    # Seven numbers: four sines, then three cosines.
    kernel[0, 1, 2], kernel[4, 2, 3] = 1.0, 1.0
    attention.position_dense.kernel.assign(kernel)
    # Queries at 5 and 6, keys at 0, 1 and 2.
    vectors = to_numpy(attention.project_distances(2, 3, start_index=5))
    distances = np.array([6, 5, 4, 3])
    assert_close(vectors[:, 1, 2], np.sin(distances))
    assert_close(vectors[:, 2, 3], np.cos(distances))
    assert_close(np.abs(vectors[:, 0]).max(), 0.0)


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


@pytest.mark.parametrize("returns_scores", [False, True])
def test_without_positions_it_is_plain_attention(rng, returns_scores):
    attention = make(rng)
    for weight in (attention.position_dense.kernel, attention.content_bias):
        weight.assign(np.zeros(weight.shape))
    plain = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, VALUE_DIM)
    query, value = make_inputs(rng)
    plain.build(query.shape, value.shape)
    own = (attention.position_dense.kernel, attention.content_bias, attention.position_bias)
    paths = {weight.path for weight in own}
    plain.set_weights([to_numpy(w) for w in attention.weights if w.path not in paths])
    arguments = {"return_attention_scores": returns_scores, "use_causal_mask": True}
    actual, expected = attention(query, value, **arguments), plain(query, value, **arguments)
    keras.tree.map_structure(lambda x, y: assert_close(x, y, 1e-6), actual, expected)


def test_weights(rng):
    attention = make(rng)
    plain = BiasedMultiHeadAttention(NUM_HEADS, KEY_DIM, VALUE_DIM)
    plain.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    new = HIDDEN * NUM_HEADS * KEY_DIM + 2 * NUM_HEADS * KEY_DIM
    assert attention.count_params() - plain.count_params() == new
    assert tuple(attention.content_bias.shape) == (NUM_HEADS, KEY_DIM)


@pytest.mark.usefixtures("keras_initializers")
@pytest.mark.any_backend
def test_vectors_start_as_bert_s():
    attention = TransformerXLMultiHeadAttention(50, 11, kernel_initializer="he_normal")
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    first, second = to_numpy(attention.content_bias), to_numpy(attention.position_bias)
    for values in (first, second):
        assert 0.015 < values.std() < 0.02
    assert not np.array_equal(first, second)
    kernels = [to_numpy(dense.kernel) for dense in (attention.position_dense, attention.key_dense)]
    assert not np.array_equal(*kernels)
    assert isinstance(attention.position_dense.kernel_initializer, keras.initializers.HeNormal)


def test_gradients_equal_finite_differences(rng):
    attention = make(rng)
    query, value = make_inputs(rng)
    random, values = normal(rng, BATCH, QUERIES, HIDDEN), attention_weights(attention)
    variables = {
        "content_bias": attention.content_bias,
        "position_bias": attention.position_bias,
        "position_kernel": attention.position_dense.kernel,
        "query_kernel": attention.query_dense.kernel,
    }
    found = gradients(lambda: weighted_sum(attention(query, value), random), variables.values())

    def loss(name, array):
        weights = {**values, name: array}
        return np.sum(reference.multi_head_attention(query, value, weights) * random)

    for name, gradient in zip(variables, found, strict=True):
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


@pytest.mark.any_backend
def test_sinusoids_are_in_float32(rng):
    """bfloat16 holds whole numbers up to 256, and the sine of the distance 1001 needs more."""
    attention = make(rng, dtype="bfloat16")
    kernel = np.zeros((HIDDEN, NUM_HEADS, KEY_DIM), "float32")
    kernel[0] = 1.0
    attention.position_dense.kernel.assign(kernel)
    vectors = to_numpy(attention.project_distances(1, 1, start_index=1001))
    assert_close(vectors[0, 0, 0], np.sin(1001), 4e-3)


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


@pytest.mark.any_backend
def test_inputs_that_are_refused(rng):
    with pytest.raises(ValueError, match="`attention_axes` must be left at `None`"):
        TransformerXLMultiHeadAttention(NUM_HEADS, KEY_DIM, attention_axes=2)
    with pytest.raises(ValueError, match=r"shape \(batch_size, length, features\).*2, 3, 5, 6"):
        TransformerXLMultiHeadAttention(NUM_HEADS, KEY_DIM)(*[normal(rng, 2, 3, 5, 6)] * 2)
    with pytest.raises(ValueError, match=r"`block_size`.*TransformerXLMultiHeadAttention"):
        make(rng)(*make_inputs(rng), block_size=3)


@pytest.mark.parametrize(
    "returns_scores, policies", [(False, HALF_POLICIES), (True, ("mixed_bfloat16",))]
)
def test_as_a_layer(rng, returns_scores, policies):
    attention = TransformerXLMultiHeadAttention(
        NUM_HEADS,
        KEY_DIM,
        position_bias_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=1),
        scale=0.7,
        dropout=0.3,
        output_shape=11,
        use_gate=True,
        kernel_regularizer="l2",
        kernel_constraint="non_neg",
        bias_initializer="ones",
        seed=3,
        name="attention",
    )
    mask = np.random.default_rng(5).random((BATCH, QUERIES, KEYS)) < 0.6
    mask[:, :, 0] = True
    check_layer(
        attention,
        *make_inputs(rng),
        attention_mask=mask,
        attention_bias=normal(rng, BATCH, NUM_HEADS, QUERIES, KEYS),
        return_attention_scores=returns_scores,
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=policies,
    )
    assert attention.position_dense.kernel_regularizer is not None
    assert attention.position_dense.kernel_constraint is not None
