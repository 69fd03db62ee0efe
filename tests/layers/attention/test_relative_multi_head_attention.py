"""`RelativeMultiHeadAttention` (Shaw) against the reference and against plain attention."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention, RelativeMultiHeadAttention
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

BATCH, HIDDEN, NUM_HEADS, HEAD_DIM, VALUE_DIM, MAX_DISTANCE = 2, 6, 3, 2, 5, 4
QUERIES, KEYS = 5, 7
CAUSAL = np.tri(QUERIES, KEYS, dtype="bool")
MASK = np.random.default_rng(5).random((BATCH, QUERIES, KEYS)) < 0.6
MASK[:, :, 0] = True
# Call arguments, and the mask that they mean to the reference.
MASKS = {
    "unmasked": ({}, None),
    "mask": ({"attention_mask": MASK}, MASK[:, None]),
    "causal": ({"use_causal_mask": True}, CAUSAL),
    "both": ({"attention_mask": MASK, "use_causal_mask": True}, MASK[:, None] & CAUSAL),
}
with_values = pytest.mark.parametrize("use_value_embedding", [True, False], ids=["values", "keys"])


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def make(rng, **kwargs):
    arguments = {"max_distance": MAX_DISTANCE, "value_dim": VALUE_DIM, **kwargs}
    attention = RelativeMultiHeadAttention(NUM_HEADS, HEAD_DIM, **arguments)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    return randomize(attention, rng, scale=0.6)


def make_inputs(rng, query_length=QUERIES, key_length=KEYS):
    return normal(rng, BATCH, query_length, HIDDEN), normal(rng, BATCH, key_length, HIDDEN)


@pytest.mark.parametrize(
    "use_value_embedding, masks, biased",
    [
        *((True, masks, True) for masks in MASKS),
        *((False, masks, True) for masks in ("causal", "both")),
        *((use_value_embedding, "unmasked", False) for use_value_embedding in (True, False)),
    ],
)
def test_equals_reference(rng, use_value_embedding, masks, biased):
    attention = make(rng, use_value_embedding=use_value_embedding)
    query, value = make_inputs(rng)
    bias = normal(rng, 1, NUM_HEADS, QUERIES, KEYS) if biased else None
    arguments, mask = MASKS[masks]
    expected, expected_scores = reference.multi_head_attention(
        query, value, attention_weights(attention), bias=bias, mask=mask, return_scores=True
    )
    arguments = {"attention_bias": bias, **arguments}
    output, scores = compiled(
        lambda: attention(query, value, return_attention_scores=True, **arguments)
    )()
    assert_close(compiled(lambda: attention(query, value, **arguments))(), expected)
    assert_close(output, expected)
    assert_close(scores, expected_scores)


# Below the clipping distance, and beyond it on both sides.
@pytest.mark.parametrize("query_length, key_length", [(3, 3), (1, 11), (13, 2)])
@with_values
def test_lengths_equal_reference(rng, use_value_embedding, query_length, key_length):
    attention = make(rng, use_value_embedding=use_value_embedding, scale=0.9)
    query, value = make_inputs(rng, query_length, key_length)
    weights = {**attention_weights(attention), "scale": 0.9}
    output = compiled(lambda: attention(query, value))()
    assert_close(output, reference.multi_head_attention(query, value, weights))


def test_separate_keys_equal_reference(rng):
    attention = make(rng)
    (query, value), key = make_inputs(rng), normal(rng, BATCH, KEYS, HIDDEN)
    weights = attention_weights(attention)
    expected = reference.multi_head_attention(query, value, weights, key=key)
    assert_close(attention(query, value, key), expected)


def test_rows_of_the_embeddings(rng):
    """Only query 1 sees a vector of distance 2: that of key 3."""
    attention = make(rng)
    for weight in attention.weights:
        weight.assign(np.zeros(weight.shape))
    attention.output_dense.kernel.assign(np.ones(attention.output_dense.kernel.shape))
    rows = np.zeros((2 * MAX_DISTANCE + 1, VALUE_DIM))
    rows[2 + MAX_DISTANCE, 1] = 1.0
    attention.value_embedding.assign(rows)
    output = to_numpy(attention(*make_inputs(rng, 2, 4)))
    # The probability of one key of four, in each head.
    assert_close(output[:, :, 0], np.full((BATCH, 2), NUM_HEADS / 4))
    rows[:] = 0
    rows[-1 + MAX_DISTANCE, 1] = 1.0
    attention.value_embedding.assign(rows)
    # Only the second query has a key one before it.
    output = to_numpy(attention(*make_inputs(rng, 2, 4)))
    assert_close(output[:, :, 0], np.full((BATCH, 2), [0, NUM_HEADS / 4]))


@with_values
def test_weights(rng, use_value_embedding):
    attention = make(rng, use_value_embedding=use_value_embedding)
    own = {w.name: tuple(w.shape) for w in attention.weights if w.name.endswith("embedding")}
    expected = {"key_embedding": (2 * MAX_DISTANCE + 1, HEAD_DIM)}
    if use_value_embedding:
        expected["value_embedding"] = (2 * MAX_DISTANCE + 1, VALUE_DIM)
    assert own == expected


@pytest.mark.usefixtures("keras_initializers")
def test_embeddings_start_as_bert_s():
    attention = RelativeMultiHeadAttention(NUM_HEADS, 11, max_distance=50)
    attention.build((BATCH, QUERIES, HIDDEN), (BATCH, KEYS, HIDDEN))
    first, second = to_numpy(attention.key_embedding), to_numpy(attention.value_embedding)
    for values in (first, second):
        assert 0.015 < values.std() < 0.02
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("return_attention_scores", [False, True])
@pytest.mark.parametrize("masks", ["unmasked", "both"])
def test_without_vectors_it_is_biased_attention(rng, masks, return_attention_scores):
    attention = make(rng, use_value_embedding=False)
    attention.key_embedding.assign(np.zeros(attention.key_embedding.shape))
    plain = BiasedMultiHeadAttention(NUM_HEADS, HEAD_DIM, VALUE_DIM)
    query, value = make_inputs(rng)
    plain.build(query.shape, value.shape)
    plain.set_weights([w for w in attention.get_weights() if w.shape != (9, HEAD_DIM)])
    arguments = {
        "attention_bias": normal(rng, 1, NUM_HEADS, QUERIES, KEYS),
        "return_attention_scores": return_attention_scores,
        **MASKS[masks][0],
    }
    actual, expected = attention(query, value, **arguments), plain(query, value, **arguments)
    keras.tree.map_structure(lambda x, y: assert_close(x, y, 1e-6), actual, expected)


@with_values
@pytest.mark.parametrize("masks", ["unmasked", "both"])
def test_gradients_equal_finite_differences(rng, use_value_embedding, masks):
    attention = make(rng, use_value_embedding=use_value_embedding)
    query, value = make_inputs(rng)
    arguments, mask = MASKS[masks]
    random = normal(rng, BATCH, QUERIES, HIDDEN)
    values = attention_weights(attention)
    variables = {
        "distance_key_embedding": attention.key_embedding,
        "query_kernel": attention.query_dense.kernel,
        "value_kernel": attention.value_dense.kernel,
    }
    if use_value_embedding:
        variables["distance_value_embedding"] = attention.value_embedding
    found = gradients(
        lambda: weighted_sum(attention(query, value, **arguments), random), variables.values()
    )

    def loss(name, array):
        weights = {**values, name: array}
        return np.sum(reference.multi_head_attention(query, value, weights, mask=mask) * random)

    for name, gradient in zip(variables, found, strict=True):
        for flat_index in rng.choice(gradient.size, size=2, replace=False):
            index = np.unravel_index(flat_index, gradient.shape)
            slope = reference.finite_difference(
                lambda array, name=name: loss(name, array), values[name], index
            )
            np.testing.assert_allclose(gradient[index], slope, 1e-3, 1e-4, err_msg=name)


def test_vectors_of_distances_that_do_not_occur_have_no_gradient(rng):
    attention = make(rng)
    query, value = make_inputs(rng, 2, 3)
    random = normal(rng, BATCH, 2, HIDDEN)
    for gradient in gradients(
        lambda: weighted_sum(attention(query, value), random),
        [attention.key_embedding, attention.value_embedding],
    ):
        used = np.abs(gradient).max(axis=1) > 1e-5
        # From -1, the first key of the second query, to 2.
        assert np.flatnonzero(used).tolist() == [
            distance + MAX_DISTANCE for distance in range(-1, 3)
        ]


@with_values
@pytest.mark.parametrize("explicit", [True, False])
def test_padded_tokens_change_nothing(rng, use_value_embedding, explicit):
    attention = make(rng, use_value_embedding=use_value_embedding)
    query, value = make_inputs(rng)
    valid = np.array([[True] * 4 + [False] * 3, [True] * 7])
    value = np.where(valid[..., None], value, 0).astype("float32")
    if explicit:
        other = np.where(valid[..., None], value, 100.0).astype("float32")
        actual = attention(query, other, value_mask=valid)
    else:
        actual = attention(query, keras.layers.Masking()(value))
    weights = attention_weights(attention)
    expected = reference.multi_head_attention(query, value, weights, mask=valid[:, None, None])
    assert_close(actual, expected)


def test_a_decoder_does_not_see_later_tokens(rng):
    attention = make(rng)
    x = normal(rng, BATCH, KEYS, HIDDEN)

    def decode(x):
        return to_numpy(compiled(lambda: attention(x, x, use_causal_mask=True))())

    assert_close(decode(x[:, :4]), decode(x)[:, :4])


def test_dropout_is_active_in_training_only(rng):
    attention = make(rng, dropout=0.5, seed=3)
    query, value = make_inputs(rng)
    expected = reference.multi_head_attention(query, value, attention_weights(attention))
    assert_close(attention(query, value), expected)
    assert np.abs(to_numpy(attention(query, value, training=True)) - expected).max() > 1e-2


@with_values
def test_functional_model_of_any_length(rng, use_value_embedding):
    attention = make(rng, use_value_embedding=use_value_embedding)
    inputs = keras.Input((None, HIDDEN)), keras.Input((None, HIDDEN))
    pooled = ops.mean(attention(*inputs), axis=1)
    model = keras.Model(inputs, pooled)
    weights = attention_weights(attention)
    for lengths in ((5, 7), (11, 3)):
        query, value = make_inputs(rng, *lengths)
        expected = reference.multi_head_attention(query, value, weights).mean(axis=1)
        assert_close(model([query, value]), expected)
        assert_close(model.predict([query, value], verbose=0), expected)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph for any length")
@with_values
def test_one_graph_for_all_lengths(rng, use_value_embedding):
    import tensorflow as tf

    attention = make(rng, use_value_embedding=use_value_embedding)
    spec = tf.TensorSpec((None, None, HIDDEN))
    function = tf.function(
        lambda query, value: attention(query, value, use_causal_mask=True),
        input_signature=(spec, spec),
    )
    for lengths in ((5, 7), (11, 3)):
        query, value = make_inputs(rng, *lengths)
        assert_close(function(query, value), attention(query, value, use_causal_mask=True))


def shapes_of(program):
    """The shapes of everything that a program of JAX computes."""
    import jax

    for equation in program.eqns:
        yield from (tuple(variable.aval.shape) for variable in equation.outvars)
        parameters = list(equation.params.values())
        for parameter in jax.tree.leaves(parameters, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from shapes_of(inner)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="reads programs of JAX")
@with_values
def test_no_tensor_has_queries_keys_and_features(rng, use_value_embedding):
    import jax

    # Sizes that no other axis has, nor the number of distances.
    query_length, key_length, key_dim = 17, 23, 13
    attention = RelativeMultiHeadAttention(
        2, key_dim, max_distance=3, use_value_embedding=use_value_embedding
    )
    query, value = normal(rng, 2, query_length, 5), normal(rng, 2, key_length, 5)
    attention.build(query.shape, value.shape)
    weights = [weight.value for weight in attention.trainable_variables]

    def loss(weights, query, value):
        return attention.stateless_call(weights, [], query, value)[0].sum()

    for function in (loss, jax.grad(loss, argnums=(0, 1, 2))):
        shapes = list(shapes_of(jax.make_jaxpr(function)(weights, query, value).jaxpr))
        assert any({query_length, key_length} <= set(shape) for shape in shapes)
        distances = query_length + key_length - 1
        for size in (key_length, distances, distances + 1):
            assert not [s for s in shapes if {query_length, size, key_dim} <= set(s)]
        assert max(np.prod(shape) for shape in shapes) < query_length * key_length * key_dim


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", None, True])
def test_max_distance_must_be_a_positive_integer(value):
    with pytest.raises(ValueError, match=f"`max_distance` must be a positive int.*{value!r}"):
        RelativeMultiHeadAttention(NUM_HEADS, HEAD_DIM, value)


def test_there_is_one_sequence_axis(rng):
    with pytest.raises(ValueError, match="`attention_axes` must be left at `None`"):
        RelativeMultiHeadAttention(NUM_HEADS, HEAD_DIM, 3, attention_axes=2)
    with pytest.raises(ValueError, match=r"shape \(batch_size, length, features\).*2, 3, 5, 6"):
        RelativeMultiHeadAttention(NUM_HEADS, HEAD_DIM, 3)(*[normal(rng, 2, 3, 5, 6)] * 2)


def test_flash_attention_has_no_value_embeddings():
    with pytest.raises(ValueError, match=r"`flash_attention`.*`use_value_embedding=False`"):
        RelativeMultiHeadAttention(NUM_HEADS, HEAD_DIM, 3, flash_attention=True)
    RelativeMultiHeadAttention(
        NUM_HEADS, HEAD_DIM, 3, use_value_embedding=False, flash_attention=True
    )


def test_a_bias_that_does_not_broadcast_is_refused(rng):
    with pytest.raises(ValueError, match="`attention_bias` must be broadcastable"):
        make(rng)(*make_inputs(rng), attention_bias=np.zeros((KEYS, QUERIES), "float32"))


@pytest.mark.parametrize(
    "use_value_embedding, return_attention_scores, policies",
    [(True, False, HALF_POLICIES), (False, True, ("mixed_bfloat16",))],
)
def test_as_a_layer(rng, use_value_embedding, return_attention_scores, policies):
    attention = RelativeMultiHeadAttention(
        NUM_HEADS,
        HEAD_DIM,
        max_distance=MAX_DISTANCE,
        use_value_embedding=use_value_embedding,
        embedding_initializer=keras.initializers.RandomNormal(stddev=0.3, seed=1),
        scale=0.7,
        dropout=0.3,
        output_shape=11,
        use_gate=True,
        kernel_regularizer="l2",
        bias_initializer="ones",
        seed=3,
        name="attention",
    )
    check_layer(
        attention,
        *make_inputs(rng),
        attention_bias=normal(rng, BATCH, NUM_HEADS, QUERIES, KEYS),
        attention_mask=MASK,
        return_attention_scores=return_attention_scores,
        # Adds the same to the scores of all keys, which softmax removes.
        zero_gradient=["key/bias"],
        policies=policies,
    )
