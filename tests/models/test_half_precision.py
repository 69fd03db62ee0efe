"""Compiled inference and training in half precision, with bias layers of other dtypes too."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import BiasedMultiHeadAttention
from keras_diet.models import DietBertMaskedLM
from tests.helpers import assert_close, to_numpy
from tests.models.tiny import (
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)


class Float32Bias(keras.layers.Layer):
    """A user's bias layer that computes in float32, whatever the model does."""

    def __init__(self, num_heads):
        super().__init__(dtype="float32")
        self.num_heads = num_heads

    def call(self, inputs):
        length = ops.shape(inputs)[1]
        return -ops.ones((1, self.num_heads, length, length))


@pytest.mark.usefixtures("compiled_steps")
def test_predict_and_fit_are_finite(rng):
    inputs, labels, weights = random_masked_inputs(rng)
    masked_lm = DietBertMaskedLM(tiny_backbone(num_layers=1, dtype="mixed_float16"))
    masked_lm.compile("sgd")
    history = masked_lm.fit(inputs, labels, sample_weight=weights, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert np.isfinite(to_numpy(masked_lm.predict(inputs, verbose=0))).all()


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    ("encoding", "dtype", "tolerance"),
    [("diet_abs", "mixed_float16", 0.02), ("diet_rel", "mixed_bfloat16", 0.1)],
)
def test_predictions_are_those_of_float32(rng, encoding, dtype, tolerance):
    backbone = randomize_weights(tiny_backbone(position_encoding=encoding))
    inputs = random_inputs(rng)
    expected = backbone(inputs)
    half = tiny_backbone(position_encoding=encoding, dtype=dtype)
    half.set_weights(backbone.get_weights())
    for name, outputs in half.predict(inputs, verbose=0).items():
        assert_close(np.float32(outputs), expected[name], tolerance)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_bias_layer_of_another_dtype(rng, dtype):
    backbone = tiny_backbone(dtype=dtype, position_encoding=Float32Bias(3))
    outputs = backbone(random_inputs(rng))
    assert np.isfinite(to_numpy(outputs["sequence_output"])).all()


@pytest.mark.any_backend
def test_bias_layer_of_wrong_heads_is_named(rng):
    with pytest.raises(ValueError, match=r"must have scores for 3 heads.*num_heads=2"):
        tiny_backbone(position_encoding=Float32Bias(2))(random_inputs(rng))


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
