"""What one attention layer does and the others do not: its rows, angles, sinusoids, projections."""

import numpy as np
import pytest
from keras import ops

from keras_diet._compat import set_keras_mask
from keras_diet.layers import (
    RotaryMultiHeadAttention,
    ScoreTerms,
)
from tests.helpers import assert_close, to_numpy
from tests.layers.attention.variants import (
    BATCH,
    HIDDEN,
    KEYS,
    VALID,
    expected,
    make,
    make_inputs,
    normal,
)

any_backend = pytest.mark.any_backend


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
