"""`LinformerMultiHeadAttention` against the reference and against full attention."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers import (
    AbsolutePositionBias,
    BiasedMultiHeadAttention,
    LinformerMultiHeadAttention,
)
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
from tests.layers.attention.test_relative_multi_head_attention import shapes_of

# Fixtures replace it in every test.
DRAW_WITH_KERAS = keras.initializers.VarianceScaling.__call__
BATCH, QUERIES, KEYS, HIDDEN, NUM_HEADS, HEAD_DIM = 2, 5, 7, 6, 3, 2
MAX_LENGTH, PROJECTED = 11, 4
VALID = np.array([[True] * 5 + [False] * 2, [True] * 7])
SCORES = (BATCH, NUM_HEADS, QUERIES, PROJECTED)


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make(rng, **kwargs):
    attention = LinformerMultiHeadAttention(NUM_HEADS, HEAD_DIM, MAX_LENGTH, PROJECTED, **kwargs)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    return randomize(attention, rng, scale=0.5)


def make_inputs(rng, query_length=QUERIES, key_length=KEYS):
    return normal(rng, BATCH, query_length, HIDDEN), normal(rng, BATCH, key_length, HIDDEN)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    "query_length, key_length, padded", [(5, 7, True), (3, 1, False), (2, 11, False)]
)
def test_equals_reference(rng, query_length, key_length, padded, biased):
    attention = make(rng)
    query, value = make_inputs(rng, query_length, key_length)
    bias = normal(rng, 1, NUM_HEADS, query_length, PROJECTED) if biased else None
    valid = np.arange(key_length) < np.array([[max(key_length - 2, 1)], [key_length]])
    valid = valid if padded else None
    expected, expected_scores = reference.linformer_attention(
        query, value, attention_weights(attention), bias=bias, valid=valid, return_scores=True
    )
    arguments = {"attention_bias": bias, "value_mask": valid}
    output, scores = compiled(
        lambda: attention(query, value, return_attention_scores=True, **arguments)
    )()
    assert_close(compiled(lambda: attention(query, value, **arguments))(), expected)
    assert_close(output, expected)
    assert_close(scores, expected_scores)


def test_separate_keys_equal_reference(rng):
    attention = make(rng, value_dim=5, scale=0.9)
    (query, value), key = make_inputs(rng), normal(rng, BATCH, KEYS, HIDDEN)
    weights = {**attention_weights(attention), "scale": 0.9}
    expected = reference.linformer_attention(query, value, weights, key=key, valid=VALID)
    assert_close(attention(query, value, key, key_mask=VALID), expected)
    assert_close(attention(query, value, key, value_mask=VALID), expected)


def test_diet_abs_lin(rng):
    """Equation 4: the bias has a column for each projected key."""
    attention = make(rng)
    bias = AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, rank=5, key_length=PROJECTED)
    bias.build()
    randomize(bias, rng)
    query, value = make_inputs(rng)
    query_embedding, key_embedding = map(to_numpy, bias.weights)
    scores = reference.absolute_position_bias(query_embedding, key_embedding, QUERIES, PROJECTED)
    expected = reference.linformer_attention(
        query, value, attention_weights(attention), bias=scores
    )
    position_scores = bias(query, np.zeros((1, PROJECTED), "float32"))
    assert_close(attention(query, value, attention_bias=position_scores), expected)


def test_weights(rng):
    own = {w.name: tuple(w.shape) for w in make(rng).weights if w.name.endswith("projection")}
    shape = (PROJECTED, MAX_LENGTH)
    assert own == {"key_projection": shape, "value_projection": shape}


def test_projections_start_differently(monkeypatch):
    """With Keras's own initializer, which repeats its draw."""
    monkeypatch.setattr(keras.initializers.VarianceScaling, "__call__", DRAW_WITH_KERAS)
    attention = LinformerMultiHeadAttention(NUM_HEADS, HEAD_DIM, 101, 53)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    first, second = to_numpy(attention.key_projection), to_numpy(attention.value_projection)
    assert not np.array_equal(first, second)
    # Glorot's uniform distribution.
    assert np.abs(first).max() <= np.sqrt(6 / 154) < 1.1 * np.abs(first).max()


@pytest.mark.parametrize("return_attention_scores", [False, True])
def test_with_identities_it_is_full_attention(rng, return_attention_scores):
    attention = LinformerMultiHeadAttention(NUM_HEADS, HEAD_DIM, KEYS, KEYS)
    full = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM)
    query, value = make_inputs(rng)
    for layer in (attention, full):
        layer.build(query.shape, value.shape)
    randomize(attention, rng)
    for projection in (attention.key_projection, attention.value_projection):
        projection.assign(np.eye(KEYS))
    full.set_weights([w for w in attention.get_weights() if w.shape != (KEYS, KEYS)])
    arguments = {
        "attention_bias": normal(rng, 1, NUM_HEADS, QUERIES, KEYS),
        "return_attention_scores": return_attention_scores,
    }
    actual, expected = attention(query, value, **arguments), full(query, value, **arguments)
    keras.tree.map_structure(lambda x, y: assert_close(x, y, 1e-6), actual, expected)


@pytest.mark.parametrize("padding", [100.0, np.nan, np.inf])
@pytest.mark.parametrize("mask", ["value_mask", "key_mask"])
def test_padded_tokens_change_nothing(rng, mask, padding):
    attention = make(rng)
    query, value = make_inputs(rng)
    other = np.where(VALID[..., None], value, padding).astype("float32")
    output = to_numpy(attention(query, value, **{mask: VALID}))
    assert_close(attention(query, other, **{mask: VALID}), output, 1e-6)
    assert np.abs(to_numpy(attention(query, value))[0] - output[0]).max() > 1e-2


def test_padding_equals_a_shorter_sequence(rng):
    attention = make(rng)
    query, value = make_inputs(rng)
    short = to_numpy(attention(query, value[:, :5]))
    assert_close(to_numpy(attention(query, value, value_mask=VALID))[0], short[0])


@pytest.mark.parametrize("return_attention_scores", [False, True])
def test_keras_mask_is_applied_and_passed_on(rng, return_attention_scores):
    attention = make(rng)
    _, x = make_inputs(rng)
    # A mask of tokens that are not zero.
    masked = keras.ops.convert_to_tensor(x)
    set_keras_mask(masked, keras.ops.convert_to_tensor(VALID))
    outputs = attention(masked, masked, return_attention_scores=return_attention_scores)
    output = outputs[0] if return_attention_scores else outputs
    expected = reference.linformer_attention(x, x, attention_weights(attention), valid=VALID)
    assert_close(to_numpy(output)[VALID], expected[VALID])
    np.testing.assert_array_equal(to_numpy(get_keras_mask(output)), VALID)


def test_keras_mask_of_the_query_alone(rng):
    attention = make(rng)
    value, query = make_inputs(rng)
    query = np.where(VALID[..., None], query, 0).astype("float32")
    expected = reference.linformer_attention(query, value, attention_weights(attention))
    for bias in (None, np.zeros((1, 1, KEYS, PROJECTED), "float32")):
        output = attention(keras.layers.Masking()(query), value, attention_bias=bias)
        assert_close(to_numpy(output)[VALID], expected[VALID])
        assert np.all(np.isfinite(to_numpy(output)))


@pytest.mark.parametrize("padded", [False, True])
def test_gradients_equal_finite_differences(rng, padded):
    attention = make(rng)
    query, value = make_inputs(rng)
    valid = VALID if padded else None
    random = normal(rng, BATCH, QUERIES, HIDDEN)
    values = attention_weights(attention)
    variables = {
        "key_projection": attention.key_projection,
        "value_projection": attention.value_projection,
        "key_kernel": attention.key_dense.kernel,
        "value_kernel": attention.value_dense.kernel,
    }
    found = gradients(
        lambda: weighted_sum(attention(query, value, value_mask=valid), random),
        variables.values(),
    )

    def loss(name, array):
        weights = {**values, name: array}
        return np.sum(reference.linformer_attention(query, value, weights, valid=valid) * random)

    for name, gradient in zip(variables, found, strict=True):
        for flat_index in rng.choice(gradient.size, size=3, replace=False):
            index = np.unravel_index(flat_index, gradient.shape)
            slope = reference.finite_difference(
                lambda array, name=name: loss(name, array), values[name], index
            )
            np.testing.assert_allclose(gradient[index], slope, 1e-3, 1e-4, err_msg=name)
    # A sequence of `KEYS` tokens uses as many columns.
    for gradient in found[:2]:
        assert np.all(gradient[:, :KEYS] != 0)
        assert np.all(gradient[:, KEYS:] == 0)


def test_dropout_is_active_in_training_only(rng):
    attention = make(rng, dropout=0.5, seed=3)
    query, value = make_inputs(rng)
    expected = reference.linformer_attention(query, value, attention_weights(attention))
    assert_close(attention(query, value), expected)
    assert np.abs(to_numpy(attention(query, value, training=True)) - expected).max() > 1e-2


def test_functional_model_of_any_length(rng):
    attention = make(rng)
    inputs = keras.Input((None, HIDDEN)), keras.Input((None, HIDDEN))
    output, scores = attention(*inputs, return_attention_scores=True)
    assert scores.shape == (None, NUM_HEADS, None, PROJECTED)
    model = keras.Model(inputs, [output, scores])
    weights = attention_weights(attention)
    for lengths in ((5, 7), (3, 11)):
        query, value = make_inputs(rng, *lengths)
        expected = reference.linformer_attention(query, value, weights, return_scores=True)
        for actual in (model([query, value]), model.predict([query, value], verbose=0)):
            keras.tree.map_structure(assert_close, list(actual), list(expected))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph for any length")
def test_one_graph_for_all_lengths(rng):
    import tensorflow as tf

    attention = make(rng)
    spec = tf.TensorSpec((None, None, HIDDEN))
    function = tf.function(
        lambda query, value: attention(query, value), input_signature=(spec, spec)
    )
    for lengths in ((5, 7), (3, 11)):
        query, value = make_inputs(rng, *lengths)
        assert_close(function(query, value), attention(query, value))
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than `sequence_length`"):
        function(*make_inputs(rng, 5, MAX_LENGTH + 1))


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="reads programs of JAX")
def test_no_tensor_has_queries_and_keys(rng):
    import jax

    # Sizes that no other axis has.
    query_length, key_length = 37, 41
    attention = LinformerMultiHeadAttention(2, 5, key_length, projection_dim=3)
    query, value = normal(rng, 2, query_length, 7), normal(rng, 2, key_length, 7)
    attention.build(query.shape, value.shape)
    weights = [weight.value for weight in attention.trainable_variables]

    def loss(weights, query, value):
        arguments = {"value_mask": np.ones((2, key_length), "bool")}
        return attention.stateless_call(weights, [], query, value, **arguments)[0].sum()

    for function in (loss, jax.grad(loss, argnums=(0, 1, 2))):
        shapes = list(shapes_of(jax.make_jaxpr(function)(weights, query, value).jaxpr))
        assert shapes
        assert not [shape for shape in shapes if {query_length, key_length} <= set(shape)]
        assert max(np.prod(shape) for shape in shapes) < query_length * key_length


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", None, True])
@pytest.mark.parametrize("argument", ["sequence_length", "projection_dim"])
def test_sizes_must_be_positive_integers(argument, value):
    arguments = {"sequence_length": 7, "projection_dim": 3, argument: value}
    with pytest.raises(ValueError, match=f"`{argument}` must be a positive integer.*{value!r}"):
        LinformerMultiHeadAttention(NUM_HEADS, HEAD_DIM, **arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"attention_axes": 2}, "`attention_axes` must be left at `None`"),
        ({"sliding_window": 3}, "`sliding_window` is not supported by Linformer.*=3"),
    ],
)
def test_unsupported_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LinformerMultiHeadAttention(NUM_HEADS, HEAD_DIM, 7, 3, **arguments)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"attention_mask": np.ones((BATCH, QUERIES, KEYS), "bool")}, "attention_mask"),
        ({"use_causal_mask": True}, "use_causal_mask"),
    ],
)
def test_masks_of_pairs_are_refused(rng, arguments, name, symbolic):
    attention = make(rng)
    call = attention.compute_output_spec if symbolic else attention
    with pytest.raises(ValueError, match=f"`{name}` is not supported by Linformer.*`value_mask`"):
        call(*make_inputs(rng), **arguments)


def test_other_bad_inputs_are_refused(rng):
    attention = make(rng)
    with pytest.raises(ValueError, match=r"key is longer than `sequence_length`.*length=12"):
        attention(*make_inputs(rng, 5, MAX_LENGTH + 1))
    with pytest.raises(ValueError, match=r"`attention_bias` must be broadcastable.*3, 5, 7"):
        attention(*make_inputs(rng), attention_bias=normal(rng, BATCH, NUM_HEADS, QUERIES, KEYS))
    with pytest.raises(ValueError, match=r"shape \(batch_size, length, features\)"):
        LinformerMultiHeadAttention(NUM_HEADS, HEAD_DIM, 7, 3)(*[normal(rng, 2, 3, 5, 6)] * 2)


@pytest.mark.parametrize("return_attention_scores, policies", [(False, HALF_POLICIES), (True, ())])
def test_as_a_layer(rng, return_attention_scores, policies):
    attention = LinformerMultiHeadAttention(
        NUM_HEADS,
        HEAD_DIM,
        sequence_length=KEYS,
        projection_dim=PROJECTED,
        scale=0.7,
        dropout=0.3,
        output_shape=11,
        use_gate=True,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=1),
        kernel_regularizer="l2",
        bias_initializer="ones",
        seed=3,
        name="attention",
    )
    check_layer(
        attention,
        *make_inputs(rng),
        attention_bias=normal(rng, *SCORES),
        value_mask=VALID,
        return_attention_scores=return_attention_scores,
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=policies,
    )


def test_bias_of_queries_that_begin_later(rng):
    attention = make(rng)
    bias = AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, rank=2, key_length=PROJECTED)
    bias.build()
    randomize(bias, rng)
    query, value = normal(rng, BATCH, QUERIES, HIDDEN), normal(rng, BATCH, KEYS, HIDDEN)
    expected = to_numpy(attention(query, value, attention_bias=bias))[:, 3:]
    found = attention(query[:, 3:], value, attention_bias=bias, start_index=3)
    assert_close(found, expected)


@pytest.mark.parametrize("argument", ["value", "key"])
def test_masks_of_tensors_and_arguments_apply_together(rng, argument):
    attention = make(rng)
    (query, value), key = make_inputs(rng), normal(rng, BATCH, KEYS, HIDDEN)
    inputs = {name: ops.convert_to_tensor(x) for name, x in (("value", value), ("key", key))}
    given = np.tile(np.arange(KEYS) != 1, (BATCH, 1))
    expected = attention(query, **inputs, **{f"{argument}_mask": VALID & given})
    set_keras_mask(inputs[argument], ops.convert_to_tensor(VALID))
    assert_close(attention(query, **inputs, **{f"{argument}_mask": given}), expected)
