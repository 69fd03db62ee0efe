"""Masks that Keras attaches to tensors in models of a user."""

import keras
import numpy as np
import pytest

from keras_diet import layers
from tests.helpers import assert_close, randomize

TOKENS = np.array([[5, 6, 7, 0, 0, 0], [5, 6, 7, 8, 9, 10]])


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
