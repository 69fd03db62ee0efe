"""Every way to compute attention gives the same outputs and gradients, in an encoder."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend
from keras_diet.layers.attention import lowering, plan
from tests.helpers import gradients, to_numpy, weighted_sum
from tests.layers.diet_encoders import (
    HIDDEN,
    make_encoder,
    make_inputs,
)

BACKEND = keras.backend.backend()
VALID = np.array([[True] * 5, [True] * 3 + [False] * 2])
BLOCK_SIZE = 3
any_backend = pytest.mark.any_backend
LOW_RANK = {"position_encoding": "diet_abs", "rank": 5}
RELATIVE = {"position_encoding": "diet_rel", "sharing": "head-wise"}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(plan, "BLOCK_SIZE", BLOCK_SIZE)


def assert_same_gradients(rng, encoder, others):
    """Compare outputs and gradients of encoders, each of them called in its turn."""
    x, segment_ids = make_inputs(rng)
    inputs = keras.Variable(x)
    # The gradient of the loss by these is the output. Outputs of padding do not matter.
    random = keras.Variable(rng.normal(size=x.shape) * VALID[..., None])

    def gradients_of(encoder):
        def loss():
            output = encoder(
                ops.convert_to_tensor(inputs), segment_ids=segment_ids, padding_mask=VALID
            )
            return weighted_sum(output, random)

        found = gradients(loss, [inputs, random, *encoder.trainable_variables])
        found[1] = found[1][VALID]
        return found

    expected = gradients_of(encoder)
    weights = [inputs, random, *encoder.trainable_variables]
    for other in others:
        other.set_weights(encoder.get_weights())
        for weight, found, wanted in zip(weights, gradients_of(other), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5, err_msg=weight.path)
            assert weight.path.endswith("key/bias") or np.abs(found).max() > 1e-4, weight.path


# The two layers of DIET-ABS have the same positions.
@pytest.mark.parametrize(
    "positions, num_layers, names",
    [
        (LOW_RANK, 2, ("features", "blockwise")),
        (RELATIVE, 1, ("blockwise",)),
    ],
    ids=["diet_abs", "diet_rel"],
)
def test_outputs_and_gradients_are_the_same(rng, positions, num_layers, names):
    full, *others = (
        make_encoder(rng, attention_implementation=name, num_layers=num_layers, **positions)
        for name in ("full", *names)
    )
    assert_same_gradients(rng, full, others)


@pytest.fixture
def columns(monkeypatch):
    """Counts the calls that append columns."""
    calls, append = [], lowering.append_columns

    def append_columns(*arguments):
        calls.append(arguments)
        return append(*arguments)

    monkeypatch.setattr(lowering, "append_columns", append_columns)
    return calls


def compute_as_on_tpus(monkeypatch):
    monkeypatch.setattr(_backend, "platform", lambda: "tpu")
    monkeypatch.setattr(plan, "kernel_takes_bias", lambda *arguments: False)


@any_backend
@pytest.mark.parametrize("positions", [LOW_RANK, RELATIVE], ids=str)
def test_segments_and_padding_may_be_added_as_on_tpus(rng, monkeypatch, columns, positions):
    def make(name):
        return make_encoder(rng, attention_implementation=name, num_layers=1, **positions)

    def encoders():
        compute_as_on_tpus(monkeypatch)
        columns.clear()
        yield make("full")
        assert not columns
        yield make("blockwise")
        assert columns

    assert_same_gradients(rng, make("full"), encoders())
    columns.clear()
    x, segment_ids = make_inputs(rng)
    encoder = make("auto")
    encoder(x, segment_ids=segment_ids, padding_mask=VALID, training=True)
    assert columns


def test_training_with_dropout(rng):
    """A step of `fit` as the backend compiles it, for a length that is not known before."""
    encoder = make_encoder(
        rng, position_encoding="diet_rel", attention_implementation="blockwise", dropout=0.1
    )
    inputs, segment_ids = keras.Input((None, HIDDEN)), keras.Input((None,), dtype="int32")
    model = keras.Model([inputs, segment_ids], encoder(inputs, segment_ids=segment_ids))
    model.compile("sgd", "mse", jit_compile=BACKEND == "jax")
    before = [to_numpy(weight).copy() for weight in encoder.trainable_variables]
    x, segment_ids = make_inputs(rng)
    assert np.isfinite(model.train_on_batch([x, segment_ids], x))
    for weight, old in zip(encoder.trainable_variables, before, strict=True):
        new = to_numpy(weight)
        assert np.isfinite(new).all()
        assert weight.path.endswith("key/bias") or np.abs(new - old).max() > 0, weight.path
