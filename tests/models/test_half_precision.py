"""Half precision where it is delicate: bias layers of other dtypes, and large products."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention
from tests.helpers import once, to_numpy
from tests.models.tiny import random_inputs, tiny_backbone


class Float32Bias(keras.layers.Layer):
    """A user's bias layer that computes in float32, whatever the model does."""

    def __init__(self, num_heads):
        super().__init__(dtype="float32")
        self.num_heads = num_heads

    def call(self, inputs):
        length = ops.shape(inputs)[1]
        return -ops.ones((1, self.num_heads, length, length))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", *once("mixed_float16")])
def test_bias_layer_of_another_dtype(rng, dtype):
    backbone = tiny_backbone(dtype=dtype, position_encoding=Float32Bias(3))
    outputs = backbone(random_inputs(rng))
    assert np.isfinite(to_numpy(outputs["sequence_output"])).all()


@pytest.mark.parametrize("scores", [True, False])
@pytest.mark.parametrize("scale", [40.0, 100.0])
def test_large_products_do_not_overflow_float16(rng, scale, scores):
    attention = BiasedMultiHeadAttention(1, 64, dtype="float16")
    x = rng.normal(size=(1, 5, 64)).astype("float16")
    attention(x, x)
    identity = np.eye(64)[:, None, :]
    attention.query_dense.kernel.assign(scale * identity)
    attention.key_dense.kernel.assign(scale * identity)
    mask = np.array([[[1, 1, 1, 1, 0]]])
    bias = np.zeros((1, 1, 5, 5), dtype="float16")
    outputs = attention(
        x, x, attention_bias=bias, attention_mask=mask, return_attention_scores=scores
    )
    for output in outputs if scores else [outputs]:
        assert np.isfinite(to_numpy(output)).all()
