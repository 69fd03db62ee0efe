"""Masks that Keras attaches to tensors: attention reads them, and leaves them to other layers."""

import keras
import numpy as np
import pytest

from keras_diet import layers
from tests.helpers import to_numpy

TOKENS = np.array([[5, 6, 7, 0, 0, 0], [5, 6, 7, 8, 9, 10]])
MASK = TOKENS > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.BiasedMultiHeadAttention(2, 8),
        lambda: layers.RotaryMultiHeadAttention(2, 8),
        lambda: layers.LinformerMultiHeadAttention(2, 8, projection_dim=3, sequence_length=6),
        lambda: layers.BiasedTransformerEncoder(32, 2),
    ],
)
def test_two_layers_read_one_masked_tensor(make):
    embedding, one, two = keras.layers.Embedding(20, 16, mask_zero=True), make(), make()
    embedding.build()
    embedding.embeddings.assign(100 * np.random.default_rng(3).normal(size=(20, 16)))
    inputs = keras.Input((6,), dtype="int32")
    x = embedding(inputs)
    arguments = () if isinstance(one, layers.BiasedTransformerEncoder) else (x,)
    model = keras.Model(inputs, [one(x, *arguments), two(x, *arguments)])
    changed = keras.ops.where(MASK[..., None], embedding(TOKENS), -70.0)
    for layer, actual in zip((one, two), model(TOKENS), strict=True):
        name = "value_mask" if arguments else "padding_mask"
        expected = layer(*[changed] * (1 + len(arguments)), **{name: MASK})
        np.testing.assert_allclose(to_numpy(actual)[MASK], to_numpy(expected)[MASK], atol=2e-4)


@pytest.mark.parametrize("recompute", ["block", "attention"])
@pytest.mark.parametrize("is_decoder", [False, True])
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
