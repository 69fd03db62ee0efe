"""What one attention layer does and the others do not: its rows, angles, sinusoids, projections."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet._compat import set_keras_mask
from keras_diet.layers import (
    AbsolutePositionBias,
    LinformerMultiHeadAttention,
    RelativeMultiHeadAttention,
    RotaryMultiHeadAttention,
    ScoreTerms,
)
from tests import reference
from tests.helpers import assert_close, gradients, to_numpy, weighted_sum
from tests.layers.attention.variants import (
    BATCH,
    HIDDEN,
    KEY_DIM,
    KEYS,
    MAX_LENGTH,
    NUM_HEADS,
    PROJECTED,
    QUERIES,
    SHAW,
    VALID,
    VALUE_DIM,
    expected,
    make,
    make_inputs,
    normal,
)

any_backend = pytest.mark.any_backend


@any_backend
def test_rows_of_shaw_s_embeddings(rng):
    """Row `k + max_distance` is for the key `k` tokens after the query."""
    attention = make("shaw", rng)
    for weight in attention.weights:
        weight.assign(np.zeros(weight.shape))
    attention.output_dense.kernel.assign(np.ones(attention.output_dense.kernel.shape))
    for distance, rows in ((2, [1, 1]), (-1, [0, 1])):
        embedding = np.zeros((2 * SHAW["max_distance"] + 1, VALUE_DIM))
        embedding[distance + SHAW["max_distance"], 1] = 1.0
        attention.value_embedding.assign(embedding)
        output = to_numpy(attention(*make_inputs(rng, 2, 4)))
        # The probability of one key of four, in each head.
        assert_close(output[:, :, 0], np.tile(np.array(rows) * NUM_HEADS / 4, (BATCH, 1)))


@any_backend
def test_vectors_of_distances_that_do_not_occur_have_no_gradient(rng):
    attention = make("shaw", rng)
    query, value = make_inputs(rng, 2, 3)
    random = normal(rng, BATCH, 2, HIDDEN)
    for gradient in gradients(
        lambda: weighted_sum(attention(query, value), random),
        [attention.key_embedding, attention.value_embedding],
    ):
        used = np.flatnonzero(np.abs(gradient).max(axis=1) > 1e-5)
        # From -1, the first key of the second query, to 2.
        assert used.tolist() == [distance + SHAW["max_distance"] for distance in range(-1, 3)]


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
@pytest.mark.parametrize("name", ["shaw", "shaw_keys", "linformer"])
def test_no_tensor_is_as_large_as_the_equations_say(rng, name):
    """Shaw needs no vector for each pair, and Linformer no score for each pair."""
    import jax

    # Sizes that no other axis has, nor the number of distances.
    query_length, key_length, key_dim = 17, 23, 13
    if name == "linformer":
        attention = LinformerMultiHeadAttention(2, 5, key_length, projection_dim=3)
        most, arguments = query_length * key_length, {"value_mask": np.ones((2, 23), "bool")}
    else:
        values = name == "shaw"
        attention = RelativeMultiHeadAttention(2, key_dim, 3, use_value_embedding=values)
        most, arguments = query_length * key_length * key_dim, {}
    query, value = normal(rng, 2, query_length, 5), normal(rng, 2, key_length, 5)
    attention.build(query.shape, value.shape)
    weights = [weight.value for weight in attention.trainable_variables]

    def loss(weights, query, value):
        return attention.stateless_call(weights, [], query, value, **arguments)[0].sum()

    for function in (loss, jax.grad(loss, argnums=(0, 1, 2))):
        shapes = list(shapes_of(jax.make_jaxpr(function)(weights, query, value).jaxpr))
        has_pairs = any({query_length, key_length} <= set(shape) for shape in shapes)
        assert has_pairs == (name != "linformer")
        assert max(np.prod(shape) for shape in shapes) < most


@any_backend
def test_the_reference_of_rotary_positions_is_the_matrix_of_the_paper(rng):
    """Equation 15 of Su et al., whose pairs are neighbors, for columns in another order."""
    vector, position = rng.normal(size=6), 5
    matrix = np.zeros((6, 6))
    for k in range(3):
        angle = position * 10_000.0 ** (-2 * k / 6)
        cosine, sine = np.cos(angle), np.sin(angle)
        matrix[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = [[cosine, -sine], [sine, cosine]]
    order = [0, 3, 1, 4, 2, 5]
    np.testing.assert_allclose(
        reference.turned(vector, position)[order], matrix @ vector[order], 1e-12
    )


@any_backend
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_float16"])
def test_angles_are_in_float32(rng, dtype):
    """bfloat16 holds whole numbers up to 256, float16 to 2048; position 3001 needs more."""
    attention = RotaryMultiHeadAttention(1, 2, max_wavelength=50, dtype=dtype)
    heads = np.zeros((1, 1, 1, 2))
    heads[..., 0] = 1.0
    heads = ops.cast(heads, attention.compute_dtype)
    turned = to_numpy(attention.rotate(heads, 3001))
    assert_close(turned[0, 0, 0], np.array([np.cos(3001), np.sin(3001)]), 4e-3)


@any_backend
def test_rotations_are_in_float32():
    """A product of half precision would be rounded before the sum."""
    attention = RotaryMultiHeadAttention(1, 2, max_wavelength=50, dtype="bfloat16")
    heads = ops.cast(np.full((1, 4, 1, 2), 1.0), "bfloat16")
    angles = np.arange(4.0)
    exact = np.stack([np.cos(angles) - np.sin(angles), np.sin(angles) + np.cos(angles)], axis=-1)
    rounded = to_numpy(ops.cast(ops.convert_to_tensor(exact.astype("float32")), "bfloat16"))
    np.testing.assert_array_equal(to_numpy(attention.rotate(heads))[0, :, 0], rounded)


@any_backend
def test_projected_sinusoids(rng):
    """The projection of known columns: the first sine and the first cosine of `i - j`."""
    attention = make("transformer_xl", rng)
    kernel = np.zeros((HIDDEN, NUM_HEADS, KEY_DIM), "float32")
    # Eleven numbers: six sines, then five cosines.
    kernel[0, 1, 2], kernel[6, 2, 3] = 1.0, 1.0
    attention.position_dense.kernel.assign(kernel)
    # Queries at 5 and 6, keys at 0, 1 and 2.
    vectors = to_numpy(attention.project_distances(2, 3, start_index=5))
    distances = np.array([6, 5, 4, 3])
    assert_close(vectors[:, 1, 2], np.sin(distances))
    assert_close(vectors[:, 2, 3], np.cos(distances))
    assert_close(np.abs(vectors[:, 0]).max(), 0.0)


@any_backend
def test_sinusoids_are_in_float32(rng):
    attention = make("transformer_xl", rng, dtype="bfloat16")
    kernel = np.zeros((HIDDEN, NUM_HEADS, KEY_DIM), "float32")
    kernel[0] = 1.0
    attention.position_dense.kernel.assign(kernel)
    vectors = to_numpy(attention.project_distances(1, 1, start_index=1001))
    assert_close(vectors[0, 0, 0], np.sin(1001), 4e-3)


@any_backend
def test_diet_abs_lin(rng):
    """Equation 4: the bias has a column for each projected key. Queries may begin later."""
    attention = make("linformer", rng)
    bias = AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, rank=5, key_length=PROJECTED)
    bias.build()
    query, value = make_inputs(rng)
    scores = reference.absolute_position_bias(*map(to_numpy, bias.weights), QUERIES, PROJECTED)
    want = expected(attention, query, value, bias=scores)
    found = attention(query, value, attention_bias=bias(query, np.zeros((1, PROJECTED))))
    assert_close(found, want)
    step = attention(query[:, 3:], value, attention_bias=bias, start_index=3)
    assert_close(step, want[:, 3:])


@any_backend
@pytest.mark.parametrize("padding", [np.nan, np.inf])
def test_padding_is_left_out_before_the_projection(rng, padding):
    attention = make("linformer", rng)
    query, value = make_inputs(rng)
    padded = np.where(VALID[..., None], value, padding).astype("float32")
    assert_close(
        attention(query, padded, value_mask=VALID), expected(attention, query, value, VALID)
    )
    terms = ScoreTerms(padding_mask=ops.convert_to_tensor(VALID))
    assert_close(
        attention(query, padded, score_terms=terms), expected(attention, query, value, VALID)
    )


@any_backend
@pytest.mark.parametrize("argument", ["value", "key"])
def test_masks_of_tensors_and_arguments_apply_together(rng, argument):
    attention = make("linformer", rng)
    (query, value), key = make_inputs(rng), normal(rng, BATCH, KEYS, HIDDEN)
    inputs = {name: ops.convert_to_tensor(x) for name, x in (("value", value), ("key", key))}
    given = np.tile(np.arange(KEYS) != 1, (BATCH, 1))
    want = expected(attention, query, value, VALID & given, key=key)
    set_keras_mask(inputs[argument], ops.convert_to_tensor(VALID))
    assert_close(attention(query, **inputs, **{f"{argument}_mask": given}), want)
