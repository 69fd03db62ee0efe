"""`cache_positions`: the copy returns the same outputs and shares nothing with the model."""

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    BiasedMultiHeadAttention,
    BucketedRelativePositionBias,
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
    make_encoder,
    make_inputs,
)

any_backend = pytest.mark.any_backend


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_scores_are_in_float32(rng, policy):
    encoder = make_encoder(rng, dtype=policy)
    cached = cache_positions(encoder)
    (bias,) = cached.position_biases
    assert bias.scores.dtype == "float32" != encoder.compute_dtype
    x, segment_ids = make_inputs(rng)
    output = cached(x, segment_ids=segment_ids)
    assert keras.backend.standardize_dtype(output.dtype) == encoder.compute_dtype
    assert_close(output, encoder(x, segment_ids=segment_ids), 1e-2)


# === Models ===


def small_encoder(**kwargs):
    return DietEncoder(1, NUM_HEADS, 11, max_sequence_length=MAX_LENGTH, **kwargs)


def functional(**kwargs):
    """A model of inputs and a padding mask, with one block."""
    x, padding_mask = keras.Input((None, HIDDEN)), keras.Input((None,), dtype="bool")
    encoder = small_encoder(segment_encoding="none", **kwargs)
    output = keras.layers.Dense(2, name="head")(encoder(x, padding_mask=padding_mask))
    return keras.Model([x, padding_mask], output)


def sequential():
    head = keras.Sequential([keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)])
    model = keras.Sequential([keras.layers.BatchNormalization(), small_encoder(), head])
    model.build((None, None, HIDDEN))
    return model


def nested():
    x = keras.Input((None, HIDDEN))
    return keras.Model(x, keras.layers.Dense(5)(sequential()(keras.layers.Dense(HIDDEN)(x))))


def shared_layers():
    """A bias layer and an encoder that are called twice."""
    x = keras.Input((None, HIDDEN))
    bias, encoder = RelativePositionBias(NUM_HEADS, MAX_LENGTH), small_encoder()
    y = x
    for _ in range(2):
        attention = BiasedMultiHeadAttention(NUM_HEADS, 2)
        y = attention(encoder(y), x, attention_bias=bias(y))
    return keras.Model(x, y)


def positions_at_the_input_and_in_scores():
    x = keras.Input((None, HIDDEN))
    y = small_encoder(position_encoding="input")(x)
    return keras.Model(x, small_encoder(position_encoding="diet_rel")(y))


MODELS = {
    "functional": lambda: functional(position_encoding="tupe_rel"),
    **{
        make.__name__: make
        for make in (sequential, nested, shared_layers, positions_at_the_input_and_in_scores)
    },
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


def weights_by_path(model):
    return {weight.path: to_numpy(weight) for weight in model.weights}


@pytest.mark.parametrize("trains_copy", [False, True], ids=["model", "copy"])
def test_training_changes_one_of_the_two(rng, trains_copy):
    """On JAX, training gives up the arrays of the trained model."""
    model = randomize(functional(position_encoding="diet_rel", dropout=0.1), rng, 0.6)
    cached = cache_positions(model)
    trained, other = (cached, model) if trains_copy else (model, cached)
    inputs = [make_inputs(rng)[0], VALID]
    expected, unchanged = to_numpy(other(inputs)), weights_by_path(other)
    before = weights_by_path(trained)
    trained.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=keras.backend.backend() == "jax")
    trained.fit(inputs, rng.normal(size=(BATCH, LENGTH, 2)), epochs=2, verbose=0)
    np.testing.assert_array_equal(to_numpy(other(inputs)), expected)
    for path, value in weights_by_path(other).items():
        np.testing.assert_array_equal(value, unchanged[path])
    after = weights_by_path(trained)
    same = {path.split("/")[-1] for path in after if np.array_equal(after[path], before[path])}
    # Softmax removes the bias of the keys.
    assert same - {"bias"} == ({"scores"} if trains_copy else set())
    if not trains_copy:
        assert_close(cache_positions(model)(inputs), model(inputs), 1e-6)


# === What cannot be cached ===


class Holder(keras.layers.Layer):
    """A custom layer with an encoder."""

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


NOTHING, ONCE = "no positional scores to cache", "cached once"
REFUSED = {
    "encoder that is not built": (small_encoder, "built=False"),
    "model without positions": (lambda: in_model(keras.layers.Dense(2)), NOTHING),
    "positions at the input": (lambda: built(small_encoder(position_encoding="input")), ONCE),
    "bias of any length": (
        lambda: built(BucketedRelativePositionBias(3)),
        "`max_length` must be a positive integer.*None",
    ),
    "cached bias": (lambda: cache_positions(built(RelativePositionBias(3, 7))), NOTHING),
    "cached encoder": (lambda: cache_positions(built(small_encoder())), "cached_positions=True"),
    "model of a cached encoder": (
        lambda: in_model(cache_positions(built(small_encoder()))),
        "cached_positions=True",
    ),
    "custom layer": (lambda: Holder(built(small_encoder())), NOTHING),
}


@any_backend
@pytest.mark.parametrize("make, message", REFUSED.values(), ids=list(REFUSED))
def test_refused(make, message):
    model = make()
    # Keras reports an error in a configuration as a `TypeError`.
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        cache_positions(model)
