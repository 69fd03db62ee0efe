"""Dropout of the hidden units of feed-forward networks."""

import numpy as np
import pytest

from keras_diet.layers import (
    BiasedTransformerDecoder,
    BiasedTransformerEncoder,
    DietDecoder,
    DietEncoder,
)
from tests.helpers import assert_close, to_numpy

# At this rate, no unit is kept.
ALL = 0.999999
STACK = {"num_layers": 2, "num_heads": 3, "intermediate_dim": 11, "max_sequence_length": 9}
BLOCK = {"num_heads": 3, "intermediate_dim": 11}
MAKE = {
    "encoder block": lambda **kwargs: BiasedTransformerEncoder(**BLOCK, **kwargs),
    "decoder block": lambda **kwargs: BiasedTransformerDecoder(**BLOCK, **kwargs),
    "encoder": lambda **kwargs: DietEncoder(**STACK, **kwargs),
    "decoder": lambda **kwargs: DietDecoder(**STACK, **kwargs),
}


@pytest.mark.parametrize("name", MAKE)
def test_only_the_hidden_units_are_dropped(name, rng):
    x = rng.normal(size=(2, 5, 6)).astype("float32")
    inputs = (x, 2 * x) if "decoder" in name else (x,)
    layer = MAKE[name](activation_dropout=ALL, bias_initializer="random_normal")
    dropped, whole = layer(*inputs, training=True), layer(*inputs, training=False)
    restored = layer.from_config(layer.get_config())
    assert restored.activation_dropout == ALL
    restored.build(*(value.shape for value in inputs))
    restored.set_weights(layer.get_weights())
    for weight in restored.weights:
        if "feedforward_output_dense/kernel" in weight.path:
            weight.assign(np.zeros(weight.shape))
    assert_close(dropped, restored(*inputs, training=False))
    assert np.abs(to_numpy(dropped) - to_numpy(whole)).max() > 0.01
    plain = MAKE[name](bias_initializer="random_normal")
    plain(*inputs)
    plain.set_weights(layer.get_weights())
    assert_close(plain(*inputs, training=True), whole)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", MAKE)
def test_rate_is_checked(name):
    with pytest.raises(ValueError, match=r"`activation_dropout`.*Received: activation_dropout=1.5"):
        MAKE[name](activation_dropout=1.5)
