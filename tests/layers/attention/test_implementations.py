"""Every way to compute attention gives the same outputs and gradients, in an encoder."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers.attention import plan
from tests.helpers import gradients, to_numpy, weighted_sum
from tests.layers.diet_encoders import HIDDEN, VALID, make_encoder, make_inputs

LOW_RANK = {"position_encoding": "diet_abs", "rank": 5}
RELATIVE = {"position_encoding": "diet_rel", "sharing": "head-wise"}
WINDOWS = {
    **{
        "position_encoding": "rotary",
        "attention_windows": (None, 3),
        "max_wavelength": (7.0, 90.0),
    },
    **{"gated": True, "normalization": "rms_norm", "attention_scale": 0.7, "use_bias": False},
}


# A document ends inside of a block.
DOCUMENTS = np.array([[1, 1, 2, 2, 2], [3, 3, 3, 3, 3]], "int32")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(plan, "BLOCK_SIZE", 3)


# The two layers of DIET-ABS have the same positions.
@pytest.mark.parametrize(
    "positions, num_layers, names, documents",
    [
        (LOW_RANK, 2, ("features", "blockwise"), None),
        (LOW_RANK, 1, ("blockwise",), DOCUMENTS),
        (RELATIVE, 1, ("blockwise",), DOCUMENTS),
        (WINDOWS, 2, ("blockwise",), None),
    ],
    ids=["diet_abs", "diet_abs, documents", "diet_rel, documents", "windows"],
)
def test_outputs_and_gradients_are_the_same(rng, positions, num_layers, names, documents):
    encoder, *others = (
        make_encoder(rng, attention_implementation=name, num_layers=num_layers, **positions)
        for name in ("full", *names)
    )
    x, segment_ids = make_inputs(rng)
    # The gradient of the loss by `random` is the output. Outputs of padding do not matter.
    inputs, random = keras.Variable(x), keras.Variable(rng.normal(size=x.shape) * VALID[..., None])

    def gradients_of(encoder):
        def loss():
            x = ops.convert_to_tensor(inputs)
            output = encoder(x, segment_ids=segment_ids, padding_mask=VALID, document_ids=documents)
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


def test_training_with_dropout(rng):
    """A step of `fit` as the backend compiles it, for a length that is not known before."""
    encoder = make_encoder(
        rng, position_encoding="diet_rel", attention_implementation="blockwise", dropout=0.1
    )
    inputs, segment_ids = keras.Input((None, HIDDEN)), keras.Input((None,), dtype="int32")
    model = keras.Model([inputs, segment_ids], encoder(inputs, segment_ids=segment_ids))
    model.compile("sgd", "mse", jit_compile=keras.backend.backend() == "jax")
    before = [to_numpy(weight).copy() for weight in encoder.trainable_variables]
    x, segment_ids = make_inputs(rng)
    assert np.isfinite(model.train_on_batch([x, segment_ids], x))
    for weight, old in zip(encoder.trainable_variables, before, strict=True):
        new = to_numpy(weight)
        assert np.isfinite(new).all()
        assert weight.path.endswith("key/bias") or np.abs(new - old).max() > 0, weight.path
