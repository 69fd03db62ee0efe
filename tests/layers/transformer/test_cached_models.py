"""`cache_positions` of functional, sequential and nested models, and what it refuses."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    BiasedMultiHeadAttention,
    DietEncoder,
    RelativePositionBias,
    cache_positions,
)
from tests.helpers import assert_close, randomize, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    LENGTH,
    MAX_LENGTH,
    NUM_HEADS,
    VALID,
    Distances,
    make_inputs,
    make_model,
)


def functional(rng):
    return make_model(rng, position_encoding="tupe_rel")


def sequential(rng):
    layers = [keras.layers.BatchNormalization(), DietEncoder(1, NUM_HEADS, 11), pooled_head()]
    model = keras.Sequential(layers, name="sequential")
    model.build((None, None, HIDDEN))
    return model


def nested(rng):
    x = keras.Input((None, HIDDEN))
    inner = sequential(rng)
    return keras.Model(x, keras.layers.Dense(5)(inner(keras.layers.Dense(HIDDEN)(x))))


def shared_layers(rng):
    """A bias layer and an encoder that are called twice."""
    x = keras.Input((None, HIDDEN))
    bias, encoder = RelativePositionBias(NUM_HEADS, MAX_LENGTH), DietEncoder(1, NUM_HEADS, 11)
    y = x
    for _ in range(2):
        attention = BiasedMultiHeadAttention(NUM_HEADS, 2)
        y = attention(encoder(y), x, attention_bias=bias(y))
    return keras.Model(x, y)


def positions_at_the_input_and_in_scores(rng):
    x = keras.Input((None, HIDDEN))
    sizes = {"num_heads": NUM_HEADS, "intermediate_dim": 11, "max_sequence_length": MAX_LENGTH}
    y = DietEncoder(1, position_encoding="input", **sizes)(x)
    return keras.Model(x, DietEncoder(1, position_encoding="diet_rel", **sizes)(y))


def pooled_head():
    return keras.Sequential([keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)])


@pytest.mark.parametrize(
    "make",
    [functional, sequential, nested, shared_layers, positions_at_the_input_and_in_scores],
)
def test_models(rng, tmp_path, make):
    model = randomize(make(rng), rng)
    for weight in model.non_trainable_weights:
        weight.assign(np.abs(to_numpy(weight)))
    cached = cache_positions(model)
    assert type(cached) is type(model)
    assert not {id(weight) for weight in cached.weights} & {id(weight) for weight in model.weights}
    x, _ = make_inputs(rng)
    inputs = [x, VALID] if make is functional else x
    expected = to_numpy(model(inputs))
    assert_close(cached(inputs), expected, 1e-5)
    names = {weight.name for weight in cached.weights}
    assert "scores" in names
    assert not names & {"query_embedding", "relative_embedding", "position_embedding"}
    cached.save(tmp_path / "cached.keras")
    assert_close(keras.saving.load_model(tmp_path / "cached.keras")(inputs), expected, 1e-5)


def test_saved_encoder_with_a_custom_bias(rng, tmp_path):
    bias = Distances(NUM_HEADS, MAX_LENGTH, name="distances")
    cached = cache_positions(make_model(rng, position_encoding=bias))
    cached.save(tmp_path / "cached.keras")
    loaded = keras.saving.load_model(tmp_path / "cached.keras")
    inputs = [make_inputs(rng)[0], VALID]
    assert_close(loaded(inputs), cached(inputs), 1e-6)


# === What cannot be cached ===


class Holder(keras.layers.Layer):
    """A custom layer with an encoder."""

    def __init__(self, encoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder

    def call(self, inputs):
        return self.encoder(inputs)


class HolderModel(keras.Model):
    """A custom model with an encoder."""

    def __init__(self, encoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder

    def call(self, inputs):
        return self.encoder(inputs)


def in_model(layer):
    x = keras.Input((LENGTH, HIDDEN))
    return keras.Model(x, layer(x))


def built(layer):
    layer.build((BATCH, LENGTH, HIDDEN))
    return layer


def small_encoder(**kwargs):
    return DietEncoder(1, NUM_HEADS, 11, **kwargs)




