"""`cache_positions`: the copy returns the same outputs and shares nothing with the model."""

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
    make_inputs,
)

any_backend = pytest.mark.any_backend


# === Models ===


def small_encoder(**kwargs):
    return DietEncoder(1, NUM_HEADS, 11, max_sequence_length=MAX_LENGTH, **kwargs)


def functional(**kwargs):
    """A model of inputs and a padding mask, with one block."""
    x, padding_mask = keras.Input((None, HIDDEN)), keras.Input((None,), dtype="bool")
    encoder = small_encoder(segment_encoding="none", **kwargs)
    output = keras.layers.Dense(2, name="head")(encoder(x, padding_mask=padding_mask))
    return keras.Model([x, padding_mask], output)


def nested():
    """An encoder in a sequential model in a functional one, after positions at the input.

    The last layer is frozen.
    """
    x = keras.Input((None, HIDDEN))
    head = keras.Sequential([keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)])
    model = keras.Sequential([keras.layers.BatchNormalization(), small_encoder(), head])
    y = small_encoder(position_encoding="input")(x)
    return keras.Model(x, keras.layers.Dense(5, trainable=False)(model(y)))


def shared_layers():
    """A bias layer and an encoder that are called twice."""
    x = keras.Input((None, HIDDEN))
    bias, encoder = RelativePositionBias(NUM_HEADS, MAX_LENGTH), small_encoder()
    y = x
    for _ in range(2):
        attention = BiasedMultiHeadAttention(NUM_HEADS, 2)
        y = attention(encoder(y), x, attention_bias=bias(y))
    return keras.Model(x, y)


MODELS = {
    "functional": lambda: functional(position_encoding="tupe_rel"),
    "nested": nested,
    "shared": shared_layers,
}


@any_backend
@pytest.mark.parametrize("name", MODELS)
def test_models(rng, tmp_path, name):
    model = randomize(MODELS[name](), rng, scale=0.6)
    for weight in model.non_trainable_weights:
        weight.assign(np.abs(to_numpy(weight)))
    config = model.get_config()
    cached = cache_positions(model)
    assert type(cached) is type(model)
    assert model.get_config() == config
    assert not {id(weight) for weight in cached.weights} & {id(weight) for weight in model.weights}
    x, _ = make_inputs(rng)
    inputs = [x, VALID] if len(model.inputs) == 2 else x
    expected = to_numpy(model(inputs))
    assert_close(cached(inputs), expected, 1e-5)
    names = {weight.name for weight in cached.weights}
    assert "scores" in names
    assert not names & {"query_embedding", "relative_embedding", "position_embedding"}
    cached.save(tmp_path / "cached.keras")
    assert_close(keras.saving.load_model(tmp_path / "cached.keras")(inputs), expected, 1e-5)


@pytest.mark.any_backend("jax")
@pytest.mark.parametrize("trains_copy", [False, True], ids=["model", "copy"])
def test_training_changes_one_of_the_two(rng, trains_copy):
    """On JAX, training gives up the arrays of the trained model."""
    model = randomize(functional(position_encoding="diet_rel", dropout=0.1), rng, 0.6)
    cached = cache_positions(model)
    trained, other = (cached, model) if trains_copy else (model, cached)
    inputs = [make_inputs(rng)[0], VALID]
    expected = to_numpy(other(inputs))
    before = trained.get_weights()
    trained.compile(keras.optimizers.SGD(0.1), "mse")
    trained.fit(inputs, rng.normal(size=(BATCH, LENGTH, 2)), epochs=2, verbose=0)
    np.testing.assert_array_equal(to_numpy(other(inputs)), expected)
    pairs = zip(trained.weights, before, strict=True)
    same = {weight.name for weight, old in pairs if np.array_equal(to_numpy(weight), old)}
    # Softmax removes the bias of the keys.
    assert same - {"bias"} == ({"scores"} if trains_copy else set())
    if not trains_copy:
        assert_close(cache_positions(model)(inputs), model(inputs), 1e-6)


@any_backend
def test_cached_scores_are_no_features(rng):
    encoder = small_encoder(attention_implementation="features")
    x = rng.normal(size=(BATCH, LENGTH, HIDDEN)).astype("float32")
    output = encoder(x)
    cached = cache_positions(encoder)
    assert cached.attention_implementation == "auto"
    assert_close(cached(x), output)
