"""`compute_output_shape` of attention layers, which wrappers such as `TimeDistributed` call."""

import numpy as np
import pytest

from keras_diet import layers

QUERY, KEY, NUM_HEADS = (2, 5, 12), (2, 7, 12), 3
ATTENTION = {
    "biased": lambda: layers.BiasedMultiHeadAttention(NUM_HEADS, 4),
    "linformer": lambda: layers.LinformerMultiHeadAttention(NUM_HEADS, 4, 13, 6),
    "shaw": lambda: layers.RelativeMultiHeadAttention(NUM_HEADS, 4, max_distance=3),
    "rotary": lambda: layers.RotaryMultiHeadAttention(NUM_HEADS, 4),
    "transformer_xl": lambda: layers.TransformerXLMultiHeadAttention(NUM_HEADS, 4),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_has_the_shape_of_the_query(name):
    layer = ATTENTION[name]()
    assert tuple(layer.compute_output_shape(QUERY, KEY)) == QUERY
    assert tuple(layer(np.zeros(QUERY), np.zeros(KEY)).shape) == QUERY
