"""`DietEncoder`: padding, order of the tokens, Keras masks, dropout, lengths."""

import keras
import numpy as np
import pytest

from keras_diet._compat import get_keras_mask
from tests.helpers import assert_close, once, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    HIDDEN,
    MAX_LENGTH,
    POSITIONS,
    PROJECTED,
    PROJECTED_POSITIONS,
    VALID,
    expected_output,
    make_encoder,
    make_inputs,
    name_of,
)

TOKENS = np.array([[3, 1, 2, 2, 4], [2, 2, 1, 0, 0]])
norms = pytest.mark.parametrize("normalize_first", [False, True], ids=["post_norm", "pre_norm"])






@pytest.mark.parametrize("positions", PROJECTED_POSITIONS[2:4], ids=name_of)
def test_padded_tokens_change_no_projected_key(rng, positions):
    encoder = make_encoder(rng, **positions, segment_encoding="input", projection_dim=PROJECTED)
    x, segment_ids = make_inputs(rng)
    other_x = np.where(VALID[..., None], x, 100.0).astype("float32")
    output = to_numpy(encoder(x, segment_ids=segment_ids, padding_mask=VALID))
    other = to_numpy(encoder(other_x, segment_ids=segment_ids, padding_mask=VALID))
    assert_close(other[VALID], output[VALID], 1e-6)
    short = to_numpy(encoder(x[:, :3], segment_ids=segment_ids[:, :3]))
    assert_close(output[1, :3], short[1])


def test_keras_mask_excludes_padding_from_projected_keys(rng):
    encoder = make_encoder(rng, segment_encoding="none", projection_dim=PROJECTED)
    embedding = make_embedding()
    output = encoder(embedding(TOKENS))
    x = to_numpy(embedding(TOKENS))
    assert_close(to_numpy(output)[VALID], to_numpy(encoder(x, padding_mask=VALID))[VALID])
    np.testing.assert_array_equal(to_numpy(get_keras_mask(output)), VALID)














def make_embedding():
    """An embedding whose outputs carry a Keras mask."""
    initializer = keras.initializers.RandomNormal(stddev=1.0, seed=3)
    return keras.layers.Embedding(5, HIDDEN, initializer, mask_zero=True)


@norms
@pytest.mark.parametrize("position_encoding", ["diet_abs", "input"])
def test_keras_mask_is_the_padding_mask(rng, position_encoding, normalize_first):
    encoder = make_encoder(
        rng, position_encoding=position_encoding, normalize_first=normalize_first
    )
    embedding = make_embedding()
    output = encoder(embedding(TOKENS))
    x = to_numpy(embedding(TOKENS))
    assert_close(to_numpy(output)[VALID], to_numpy(encoder(x, padding_mask=VALID))[VALID])
    assert np.abs(to_numpy(output) - to_numpy(encoder(x)))[VALID].max() > 1e-3
    np.testing.assert_array_equal(to_numpy(get_keras_mask(output)), VALID)


def test_keras_mask_survives_the_call(rng):
    encoder = make_encoder(rng)
    x = make_embedding()(TOKENS)
    first, second = encoder(x), encoder(x)
    assert_close(to_numpy(second)[VALID], to_numpy(first)[VALID], 1e-6)


def test_padding_mask_takes_precedence_over_the_keras_mask(rng):
    encoder = make_encoder(rng)
    embedding = make_embedding()
    padding_mask = np.array([[True] * 4 + [False], [True] * 5])
    x = to_numpy(embedding(TOKENS))
    output = encoder(embedding(TOKENS), padding_mask=padding_mask)
    assert_close(output, encoder(x, padding_mask=padding_mask))


def test_keras_mask_in_a_functional_model(rng):
    encoder = make_encoder(rng)
    tokens = keras.Input((None,), dtype="int32")
    embedding = make_embedding()
    model = keras.Model(tokens, encoder(embedding(tokens)))
    expected = expected_output(encoder, to_numpy(embedding(TOKENS)), mask=VALID[:, None, None])
    assert_close(model.predict(TOKENS, verbose=0)[VALID], expected[VALID])
    assert_close(to_numpy(model(TOKENS))[VALID], expected[VALID])


@norms
def test_dropout_is_active_in_training_only(rng, normalize_first):
    arguments = {"normalize_first": normalize_first}
    encoder, plain = make_encoder(rng, dropout=0.5, **arguments), make_encoder(rng, **arguments)
    plain.set_weights(encoder.get_weights())
    x, segment_ids = make_inputs(rng)
    inputs = {"inputs": x, "segment_ids": segment_ids, "padding_mask": VALID}
    for training in (None, False):
        assert_close(encoder(**inputs, training=training), plain(**inputs), 1e-6)
    first, second = (to_numpy(encoder(**inputs, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 1e-2
    assert_close(plain(**inputs, training=True), plain(**inputs))


def make_model(encoder, pooled=False):
    """A functional model whose length is open."""
    x, segment_ids = keras.Input((None, HIDDEN)), keras.Input((None,), dtype="int32")
    output = encoder(x, segment_ids=segment_ids)
    assert output.shape == (None, None, HIDDEN)
    if pooled:
        output = keras.layers.GlobalAveragePooling1D()(output)
    return keras.Model([x, segment_ids], output)


# One of each kind.
some_positions = pytest.mark.parametrize(
    "positions", [POSITIONS[i] for i in (1, 3, 6, 15, 17)], ids=name_of
)


@pytest.mark.parametrize(
    "positions",
    [POSITIONS[1], POSITIONS[17], *once(*(POSITIONS[i] for i in (3, 6, 15)))],
    ids=name_of,
)
def test_functional_model_of_any_length(rng, positions):
    encoder = make_encoder(rng, **positions)
    model = make_model(encoder)
    for length in (3, MAX_LENGTH):
        x, segment_ids = make_inputs(rng, length)
        assert_close(model([x, segment_ids]), expected_output(encoder, x, segment_ids))


class Batches(keras.utils.PyDataset):
    """A dataset of the given batches."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return (self.batches[index],)


@pytest.mark.parametrize("positions", [POSITIONS[i] for i in (1, 17)], ids=name_of)
def test_predict_with_batches_of_different_lengths(rng, positions):
    encoder = make_encoder(rng, num_layers=1, **positions)
    model = make_model(encoder, pooled=True)
    batches = [make_inputs(rng, length) for length in (3, MAX_LENGTH)]
    expected = [expected_output(encoder, *batch).mean(axis=1) for batch in batches]
    assert_close(model.predict(Batches(batches), verbose=0), np.concatenate(expected))


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch has no XLA")
@pytest.mark.parametrize("positions", [POSITIONS[i] for i in (1, 3)], ids=name_of)
def test_xla(rng, positions):
    """Static shapes compile under XLA, in inference and in training."""
    encoder = make_encoder(rng, num_layers=1, **positions)
    x, segment_ids = make_inputs(rng)
    model = make_model(encoder)
    model.compile("sgd", "mse", jit_compile=True)
    expected = expected_output(encoder, x, segment_ids)
    assert_close(model.predict([x, segment_ids], verbose=0), expected)
    before = [to_numpy(weight) for weight in encoder.trainable_weights]
    model.train_on_batch([x, segment_ids], x)
    unchanged = [
        weight.path
        for weight, value in zip(encoder.trainable_weights, before, strict=True)
        if np.array_equal(to_numpy(weight), value) and not weight.path.endswith("key/bias")
    ]
    assert unchanged == []


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch has no XLA")
def test_xla_of_projected_keys(rng):
    arguments = {"segment_encoding": "input", "projection_dim": PROJECTED}
    encoder = make_encoder(rng, num_layers=1, **arguments)
    x, segment_ids = make_inputs(rng)
    model = make_model(encoder)
    model.compile(jit_compile=True)
    expected = expected_output(encoder, x, segment_ids)
    assert_close(model.predict([x, segment_ids], verbose=0), expected)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a tf.data pipeline")
@some_positions
def test_one_graph_for_a_dataset_of_different_lengths(rng, positions):
    import tensorflow as tf

    encoder = make_encoder(rng, num_layers=1, **positions)
    model = make_model(encoder, pooled=True)
    batches = [make_inputs(rng, length) for length in (3, MAX_LENGTH, 2)]
    spec = ((tf.TensorSpec((BATCH, None, HIDDEN)), tf.TensorSpec((BATCH, None), "int32")),)
    dataset = tf.data.Dataset.from_generator(
        lambda: ((batch,) for batch in batches), output_signature=spec
    )
    expected = [expected_output(encoder, *batch).mean(axis=1) for batch in batches]
    assert_close(model.predict(dataset, verbose=0), np.concatenate(expected))
