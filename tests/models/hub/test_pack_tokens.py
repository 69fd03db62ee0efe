"""`pack_tokens` makes what KerasHub's layer makes."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models.hub.pack_tokens import pack_tokens
from tests.helpers import to_numpy


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("length", [3, 5, 6, 11])
@pytest.mark.parametrize("one_text", [True, False])
def test_sequences_are_those_of_the_layer(start, end, length, one_text):
    packer = keras_hub.layers.StartEndPacker(
        sequence_length=8, start_value=[2, 3], end_value=0, pad_value=9, return_padding_mask=True
    )
    tokens = np.array([5, 6, 7, 4]) if one_text else [[5, 6, 7, 4], [], [8]]
    expected = packer(tokens, sequence_length=length, add_start_value=start, add_end_value=end)
    actual = pack_tokens(tokens, packer, length, start=start, end=end)
    for one, other in zip(actual, expected, strict=True):
        assert keras.ops.is_tensor(one)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
