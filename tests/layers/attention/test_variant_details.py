"""What one attention layer does and the others do not: its angles, and the masks of its tokens."""

import numpy as np
import pytest
from keras import ops

from keras_diet._compat import set_keras_mask
from keras_diet.layers import RotaryMultiHeadAttention
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
def test_rotations_are_in_float32(dtype):
    """bfloat16 holds whole numbers up to 256, float16 to 2048. Products would be rounded too."""
    attention = RotaryMultiHeadAttention(1, 2, max_wavelength=50, dtype=dtype)
    heads = ops.ones((1, 4, 1, 2), attention.compute_dtype)
    angles = np.arange(3001.0, 3005.0)
    exact = np.stack([np.cos(angles) - np.sin(angles), np.sin(angles) + np.cos(angles)], axis=-1)
    rounded = to_numpy(ops.cast(exact.astype("float32"), attention.compute_dtype))
    np.testing.assert_array_equal(to_numpy(attention.rotate(heads, angles))[0, :, 0], rounded)


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
