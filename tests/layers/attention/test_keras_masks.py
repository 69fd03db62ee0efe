"""Masks that Keras attaches to tensors: in recomputed blocks, and in models of a user."""

import keras
import numpy as np
import pytest

from keras_diet import layers
from tests.helpers import assert_close, once, randomize, to_numpy

TOKENS = np.array([[5, 6, 7, 0, 0, 0], [5, 6, 7, 8, 9, 10]])


@pytest.mark.parametrize(
    ("recompute", "is_decoder"), [("block", True), *once(("attention", True), ("block", False))]
)
def test_recomputation_of_masked_inputs(recompute, is_decoder):
    results = []
    for each in ("none", recompute):
        keras.utils.set_random_seed(11)
        inputs = keras.Input((6,), dtype="int32")
        x = keras.layers.Embedding(20, 16, mask_zero=True)(inputs)
        if is_decoder:
            x = layers.DietDecoder(1, 2, 32, max_sequence_length=7, recompute=each)(x, x)
        else:
            x = layers.DietEncoder(1, 2, 32, max_sequence_length=7, recompute=each)(x)
        model = keras.Model(inputs, x)
        model.compile(keras.optimizers.SGD(0.7), "mse")
        loss = model.train_on_batch(TOKENS, np.full((2, 6, 16), 0.3, "float32"))
        results.append((loss, [to_numpy(weight) for weight in model.weights]))
    (expected_loss, expected), (loss, actual) = results
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    for got, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-6)


@keras.saving.register_keras_serializable("keras_diet_tests")
class Block(keras.layers.Layer):
    """A layer of a user. Without `compute_output_shape`, Keras calls it with 83 tokens."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.bias = layers.RelativePositionBias(2, max_length=7)
        self.attention = layers.BiasedMultiHeadAttention(2, 3)
        self.supports_masking = True

    def build(self, shape):
        self.bias.build()
        self.attention.build(shape, shape)

    def call(self, inputs):
        return inputs + self.attention(inputs, inputs, attention_bias=self.bias)

    def compute_output_shape(self, shape):
        return shape


def attend(x):
    bias = layers.RelativePositionBias(2, max_length=7)(x)
    return layers.BiasedMultiHeadAttention(2, 3)(x, x, attention_bias=bias)


@pytest.mark.filterwarnings("error:.*mask")
@pytest.mark.parametrize("layer", [attend, lambda x: Block()(x)], ids=["functional", "custom"])
def test_models_of_a_user_with_open_lengths(rng, tmp_path, layer):
    tokens = keras.Input((None,), dtype="int32")
    x = layer(layer(keras.layers.Embedding(20, 6, mask_zero=True)(tokens)))
    model = keras.Model(tokens, keras.layers.GlobalAveragePooling1D()(x))
    outputs = randomize(model, rng, 1.0).predict(TOKENS, verbose=0)
    assert_close(model.predict(TOKENS[:1, :3], verbose=0), outputs[:1])
    # Positions count.
    assert np.abs(model.predict(TOKENS[:1, 2::-1], verbose=0) - outputs[:1]).max() > 1e-2
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_close(loaded.predict(TOKENS, verbose=0), outputs)
