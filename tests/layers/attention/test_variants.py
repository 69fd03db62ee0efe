"""One contract for all attention layers: the reference, decoding, masks, gradients, saving."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_diet._compat import get_keras_mask, set_keras_mask
from keras_diet.layers import RelativePositionBias, RotaryMultiHeadAttention
from tests.helpers import (
    assert_close,
    assert_weights_start_differently,
    check_layer,
    compiled,
    gradients,
    once,
    randomize,
    to_numpy,
    weighted_sum,
)
from tests.layers.attention.variants import (
    BATCH,
    CAUSAL,
    HIDDEN,
    KEY_DIM,
    KEYS,
    MAX_LENGTH,
    NUM_HEADS,
    PAIRS,
    QUERIES,
    VALID,
    VARIANTS,
    WITH_PAIRS,
    expected,
    make,
    make_inputs,
    normal,
)

all_variants = pytest.mark.parametrize("name", VARIANTS)
any_backend = pytest.mark.any_backend


def assert_equals_reference(attention, query, value, arguments, **terms):
    """Compare the output of a kernel, where there is one, and the output with its scores."""
    want, want_scores = expected(attention, query, value, return_scores=True, **terms)
    assert_close(compiled(lambda: attention(query, value, **arguments))(), want)
    output, scores = compiled(
        lambda: attention(query, value, return_attention_scores=True, **arguments)
    )()
    assert_close(output, want)
    assert_close(scores, want_scores)


@pytest.mark.parametrize(
    "name, terms",
    [
        *((name, "plain") for name in VARIANTS),
        *((name, "bias and padding") for name in VARIANTS),
        *((name, "all masks") for name in WITH_PAIRS),
    ],
)
def test_equals_reference(rng, name, terms):
    attention = make(name, rng, scale=0.7)
    query, value = make_inputs(rng)
    bias = normal(rng, 1, NUM_HEADS, QUERIES, VARIANTS[name].num_keys or KEYS)
    arguments, of_reference = {
        "plain": ({}, {}),
        "bias and padding": (
            {"attention_bias": bias, "value_mask": VALID},
            {"bias": bias, "valid": VALID},
        ),
        "all masks": (
            {"attention_bias": bias, "attention_mask": PAIRS, "use_causal_mask": True},
            {"bias": bias, "mask": PAIRS[:, None] & CAUSAL},
        ),
    }[terms]
    assert_equals_reference(attention, query, value, arguments, scale=0.7, **of_reference)


@any_backend
@all_variants
@settings(deadline=None, max_examples=5, derandomize=True)
@given(lengths=st.tuples(st.integers(1, MAX_LENGTH), st.integers(1, MAX_LENGTH)))
def test_any_lengths_equal_reference(name, lengths):
    rng = np.random.default_rng(lengths)
    attention = make(name, rng)
    query, value = make_inputs(rng, *lengths)
    arguments, terms = {}, {}
    if name != "linformer":
        arguments = {"use_causal_mask": True}
        terms = {"mask": np.tri(*lengths, dtype="bool")}
    assert_equals_reference(attention, query, value, arguments, **terms)


@any_backend
@pytest.mark.parametrize(
    "name, mask",
    [
        *((name, "value_mask") for name in VARIANTS),
        ("biased", "key_mask"),
        ("linformer", "key_mask"),
    ],
)
def test_separate_keys_and_padding_of_any_content(rng, name, mask):
    attention = make(name, rng)
    (query, value), key = make_inputs(rng), normal(rng, BATCH, KEYS, HIDDEN)
    want = expected(attention, query, value, VALID, key=key)
    # Linformer leaves padding out before the projection.
    content = np.float32(np.nan if name == "linformer" else 100)
    padded_value, padded_key = (np.where(VALID[..., None], x, content) for x in (value, key))
    assert_close(attention(query, padded_value, padded_key, **{mask: VALID}), want)
    assert np.abs(to_numpy(attention(query, value, key)) - want).max() > 1e-2


@any_backend
@all_variants
def test_keras_masks_are_applied_and_passed_on(rng, name):
    attention = make(name, rng)
    x = np.where(VALID[..., None], normal(rng, BATCH, KEYS, HIDDEN), 0).astype("float32")
    masked = keras.layers.Masking()(x)
    # It also leaves the masks to a second layer.
    for output in (attention(masked, masked), attention(masked, masked)):
        assert_close(to_numpy(output)[VALID], expected(attention, x, x, VALID)[VALID])
        np.testing.assert_array_equal(to_numpy(get_keras_mask(output)), VALID)
    # The mask of a query leaves out its own rows only.
    query, value = make_inputs(rng, KEYS, KEYS)
    query = np.where(VALID[..., None], query, 0).astype("float32")
    output = attention(keras.layers.Masking()(query), value)
    assert_close(to_numpy(output)[VALID], expected(attention, query, value)[VALID])
    assert np.isfinite(to_numpy(output)).all()


@pytest.mark.parametrize(
    "name, as_tensor",
    [
        *((name, True) for name in ("biased", "shaw")),
        *once(*((name, True) for name in WITH_PAIRS if name not in ("biased", "shaw"))),
        *once(*((name, False) for name in WITH_PAIRS)),
    ],
)
def test_a_step_is_a_row_of_the_full_pass(rng, name, as_tensor):
    attention = make(name, rng, sliding_window=4)
    x = normal(rng, BATCH, KEYS, HIDDEN)
    start = ops.convert_to_tensor(4, "int32") if as_tensor else 4
    bias = RelativePositionBias(NUM_HEADS, MAX_LENGTH)
    bias.build()
    arguments = {"attention_bias": randomize(bias, rng), "use_causal_mask": True}
    full = to_numpy(attention(x, x, **arguments))
    assert_close(attention(x[:, 4:6], x, start_index=start, **arguments), full[:, 4:6])
    # A decoder projects keys once.
    keys = attention.project_keys(x)
    step = attention(x[:, 4:6], None, projected_keys=keys, start_index=start, **arguments)
    assert_close(step, full[:, 4:6])
    # The position of the query matters.
    assert np.abs(to_numpy(attention(x[:, 4:6], x, **arguments)) - full[:, 4:6]).max() > 1e-2


@all_variants
def test_gradients_equal_finite_differences(rng, name):
    """Of the layer itself, which equals the reference."""
    attention, (query, value) = make(name, rng), make_inputs(rng)
    random = normal(rng, BATCH, QUERIES, HIDDEN)
    bias = normal(rng, 1, NUM_HEADS, QUERIES, VARIANTS[name].num_keys or KEYS)
    variables = [*attention.trainable_weights, keras.Variable(bias)]

    def loss():
        bias = ops.convert_to_tensor(variables[-1])
        return weighted_sum(attention(query, value, attention_bias=bias, value_mask=VALID), random)

    for variable, gradient in zip(variables, gradients(loss, variables), strict=True):
        before, losses = to_numpy(variable).copy(), []
        direction = rng.choice([-1.0, 1.0], size=before.shape).astype("float32")
        for step in (0.003, -0.003):
            variable.assign(before + step * direction)
            losses.append(float(to_numpy(loss())))
        variable.assign(before)
        slope = (losses[0] - losses[1]) / 0.006
        assert abs(np.sum(gradient * direction) - slope) < 2e-2 * (1 + abs(slope)), variable.path


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a graph for any length")
@all_variants
def test_one_graph_for_all_lengths(rng, name):
    import tensorflow as tf

    attention = make(name, rng)
    spec = tf.TensorSpec((None, None, HIDDEN))
    arguments = {} if name == "linformer" else {"use_causal_mask": True}
    function = tf.function(
        lambda query, value: attention(query, value, **arguments), input_signature=(spec, spec)
    )
    for lengths in ((5, 7), (11, 3)):
        query, value = make_inputs(rng, *lengths)
        assert_close(function(query, value), attention(query, value, **arguments))


@any_backend
@all_variants
@pytest.mark.usefixtures("keras_initializers")
def test_weights(name):
    """They start differently, and begin with the weights of Keras's layer."""
    attention, plain = make(name, output_shape=HIDDEN), make("biased", output_shape=HIDDEN)
    new = len(attention.weights) - len(plain.weights)
    assert new == VARIANTS[name].new_weights
    assert_weights_start_differently(attention)
    for weight in attention.weights:
        if weight.path.endswith(("embedding", "_bias")) and "dense" not in weight.path:
            assert 0.01 < to_numpy(weight).std() < 0.03


INITIALIZER = keras.initializers.RandomNormal(stddev=0.3, seed=1)
OWN_ARGUMENTS = {
    "shaw": {"embedding_initializer": INITIALIZER},
    "shaw_keys": {"embedding_initializer": INITIALIZER},
    "transformer_xl": {"position_bias_initializer": INITIALIZER},
}


@pytest.mark.parametrize(
    "name, returns_scores", [("biased", True), *once(*((name, False) for name in VARIANTS))]
)
def test_as_a_layer(rng, name, returns_scores):
    variant = VARIANTS[name]
    attention = variant.kind(
        NUM_HEADS,
        KEY_DIM,
        value_dim=None if name in ("biased", "rotary") else 6,
        scale=0.7,
        dropout=0.3,
        output_shape=13,
        use_gate=True,
        kernel_initializer=INITIALIZER,
        bias_initializer="ones",
        kernel_regularizer="l2",
        bias_regularizer="l1",
        activity_regularizer="l2",
        kernel_constraint="max_norm",
        bias_constraint="non_neg",
        seed=3,
        name="attention",
        **({} if name == "linformer" else {"sliding_window": 4}),
        **variant.arguments,
        **OWN_ARGUMENTS.get(name, {}),
    )
    masks = {"value_mask": VALID} if name == "linformer" else {"attention_mask": PAIRS}
    check_layer(
        attention,
        *make_inputs(rng),
        attention_bias=normal(rng, BATCH, NUM_HEADS, QUERIES, variant.num_keys or KEYS),
        return_attention_scores=returns_scores,
        zero_gradient=variant.zero_gradient,
        **masks,
    )
    for layer in attention._flatten_layers():
        if isinstance(layer, keras.layers.EinsumDense):
            assert None not in (layer.kernel_regularizer, layer.kernel_constraint), layer.path
            if layer.bias is not None:
                assert None not in (layer.bias_regularizer, layer.bias_constraint), layer.path


# === What one layer does and the others do not ===


@any_backend
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_float16"])
def test_rotations_are_in_float32(dtype):
    """bfloat16 holds whole numbers up to 256, float16 to 2048. Products would be rounded too."""
    attention = RotaryMultiHeadAttention(1, 2, max_wavelength=50, dtype=dtype)
    heads = ops.ones((1, 4, 1, 2), attention.compute_dtype)
    angles = np.arange(3001.0, 3005.0)
    exact = np.stack([np.cos(angles) - np.sin(angles), np.sin(angles) + np.cos(angles)], axis=-1)
    rounded = to_numpy(ops.cast(exact.astype("float32"), attention.compute_dtype))
    np.testing.assert_array_equal(to_numpy(attention.rotate(heads, angles))[0, :, 0], rounded)


@any_backend
def test_defaults_of_yarn():
    """`tests/models/test_trained_encoders.py` has other scalings of angles, and arguments."""
    transformers = pytest.importorskip("transformers")
    scaling = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 140}
    config = transformers.GteConfig(hidden_size=8, num_attention_heads=1)
    config.rope_parameters = {**scaling, "rope_theta": 256.0}
    theirs, factor = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["yarn"](config)
    attention = RotaryMultiHeadAttention(1, 8, max_wavelength=256.0, rope_scaling=scaling)
    heads = np.tile([1.0] * 4 + [0.0] * 4, (1, 11, 1, 1)).astype("float32")
    angles = np.arange(11)[:, None] * theirs.numpy()
    expected = factor * np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
    assert_close(attention.rotate(heads, np.arange(11))[0, :, 0], expected)


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
