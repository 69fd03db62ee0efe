"""`DietBertBackbone` against the equations and against KerasHub's BERT.

`tests/models/test_backbones.py` has what both backbones keep.
"""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.models import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_backbone import gelu_approximate
from tests import reference
from tests.helpers import (
    assert_close,
    assert_weights_start_differently,
    block_weights,
    every_backend,
    gradients,
    once,
    to_numpy,
)
from tests.layers.diet_encoders import expected_biases
from tests.models.tasks import tiny_task
from tests.models.tiny import AT_INPUT, random_inputs, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend


def gelu(x):
    """BERT's approximation."""
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def expected_outputs(backbone, inputs):
    """The outputs by the paper's equations."""
    encoding, at_input = str(backbone.position_encoding), {}
    if "input" in encoding:
        layer = backbone.input_encoding.position_embedding
        at_input["position_embedding"] = to_numpy(layer.position_embeddings)
    if backbone.segment_encoding == "input":
        layer = backbone.input_encoding.segment_embedding
        at_input["segment_embedding"] = to_numpy(layer.embeddings)
        at_input["segment_ids"] = inputs["segment_ids"]
    x = reference.bert_inputs(
        to_numpy(backbone.token_embedding.embeddings),
        inputs["token_ids"],
        norm=backbone.embeddings_layer_norm.get_weights(),
        **at_input,
    )
    biases = expected_biases(backbone.encoder, x.shape[1], inputs["segment_ids"])
    mask = inputs["padding_mask"].astype("bool")[:, None, None]
    options = {"normalize_first": False, "epsilon": 1e-12, "activation": gelu}
    for block, bias in zip(backbone.encoder.transformer_layers, biases, strict=True):
        x = reference.encoder_block(x, block_weights(block), bias, mask, **options)
    kernel, bias = backbone.pooled_dense.get_weights()
    return {"sequence_output": x, "pooled_output": np.tanh(x[:, 0] @ kernel + bias)}


def assert_same_outputs(actual, expected):
    assert set(actual) == set(expected) == {"sequence_output", "pooled_output"}
    for name in expected:
        assert_close(actual[name], expected[name])


@every_backend
@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    "length, arguments",
    [
        (11, {"position_encoding": "diet_abs"}),
        (13, {"position_encoding": "diet_rel", "sharing": "layer-wise", "num_segments": 5}),
        # With these, `tests/cross_backend` compares the backends.
        *once(
            (1, {"position_encoding": "diet_abs", "rank": 7}),
            (11, {"projection_dim": 5, "segment_encoding": "input"}),
            (11, {"position_encoding": "diet_abs_input"}),
            (11, {"position_encoding": "shaw", "segment_encoding": "none"}),
        ),
    ],
    ids=str,
)
def test_outputs_are_those_of_the_equations(rng, length, arguments):
    backbone = randomize_weights(tiny_backbone(**arguments))
    num_segments = backbone.num_segments
    inputs = random_inputs(rng, length=length, num_segments=num_segments)
    assert length == 1 or len(np.unique(inputs["segment_ids"])) == num_segments
    assert_same_outputs(backbone.predict(inputs, verbose=0), expected_outputs(backbone, inputs))


def test_embed_without_segments_or_a_mask(rng):
    backbone = randomize_weights(tiny_backbone(**AT_INPUT, first_position=3))
    token_ids = random_inputs(rng)["token_ids"]
    found = [to_numpy(backbone.embed(token_ids, np.full((2, 11), i))) for i in range(2)]
    assert_close(backbone.embed(token_ids), found[0])
    assert np.abs(found[0] - found[1]).max() > 0.1
    # Without a mask, all tokens count.
    assert_close(backbone.embed(token_ids, padding_mask=np.ones((2, 11))), found[0])


def test_embeddings_are_projected_after_the_dropout(rng):
    backbone = randomize_weights(tiny_backbone(embedding_dim=11))
    backbone.embeddings_dropout.call = lambda inputs, training: 0.0 * inputs
    found = to_numpy(backbone.embed(random_inputs(rng)["token_ids"]))
    bias = to_numpy(backbone.embeddings_projection.bias)
    assert_close(found, np.broadcast_to(bias, found.shape))


# === KerasHub's BERT: `tests/models/test_from_bert.py` compares the outputs ===


@pytest.mark.usefixtures("keras_initializers")
@pytest.mark.parametrize(
    "make",
    [
        lambda: tiny_backbone(sharing="none"),
        lambda: tiny_backbone(**AT_INPUT),
        lambda: tiny_backbone(embedding_dim=19),
        lambda: tiny_task("masked_lm", with_preprocessor=False),
        lambda: tiny_task("classifier", with_preprocessor=False),
    ],
)
def test_initial_weights_are_berts(make):
    model = make()
    for weight in model.weights:
        values = to_numpy(weight)
        if weight.path.endswith(("bias", "beta")):
            assert np.all(values == 0.0), weight.path
        elif weight.path.endswith("gamma"):
            assert np.all(values == 1.0), weight.path
        else:
            # A normal distribution of deviation 0.02, cut at two deviations.
            assert np.abs(values).max() <= 0.04, weight.path
            if values.size > 100:
                assert values.std() == pytest.approx(0.02 * 0.8796, rel=0.2), weight.path
    assert_weights_start_differently(model)


@pytest.mark.parametrize("activation", [keras.activations.silu, gelu_approximate])
def test_an_activation_may_be_a_function(rng, activation):
    backbone = randomize_weights(tiny_backbone(activation=activation))
    copy = DietBertBackbone.from_config(json.loads(json.dumps(backbone.get_config())))
    copy.set_weights(backbone.get_weights())
    assert copy.get_config() == backbone.get_config()
    default = randomize_weights(tiny_backbone())
    inputs = random_inputs(rng)
    assert_same_outputs(copy(inputs), backbone(inputs))
    difference = copy(inputs)["sequence_output"] - default(inputs)["sequence_output"]
    assert (np.abs(to_numpy(difference)).max() > 0.01) == (activation is not gelu_approximate)


@every_backend
@pytest.mark.parametrize(
    "position_encoding", ["diet_abs", *once("t5", "shaw", "diet_rel", "input", "fire")]
)
def test_a_text_without_tokens_changes_no_other_text(rng, position_encoding):
    """All keys of its queries are masked. Its gradients must not become NaN, either."""
    backbone = randomize_weights(tiny_backbone(position_encoding=position_encoding))
    inputs = random_inputs(rng, batch_size=3)
    expected = to_numpy(backbone(inputs)["sequence_output"])[1:]
    inputs["padding_mask"][0] = 0

    def loss():
        return ops.sum(ops.square(backbone(inputs)["sequence_output"]))

    assert_close(to_numpy(backbone(inputs)["sequence_output"])[1:], expected)
    assert all(np.isfinite(each).all() for each in gradients(loss, backbone.trainable_variables))


@pytest.mark.parametrize("position_encoding", ["diet_abs", "t5", "shaw", "tupe_abs", "input"])
def test_names_of_weights_without_decay(position_encoding):
    """The names in the examples reach biases and normalizations, and no tables of biases."""
    backbone = randomize_weights(
        tiny_backbone(position_encoding=position_encoding, segment_encoding="per-head")
    )
    weights = backbone.trainable_variables
    before = [to_numpy(weight) for weight in weights]
    optimizer = keras.optimizers.AdamW(1.0, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.apply([ops.zeros(weight.shape) for weight in weights], weights)
    for weight, values in zip(weights, before, strict=True):
        is_decayed = weight.name not in ("bias", "gamma", "beta")
        assert_close(weight, values * (0.5 if is_decayed else 1.0))
