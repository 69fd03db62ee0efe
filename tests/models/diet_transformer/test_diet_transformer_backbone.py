"""`DietTransformerBackbone` against the equations, and its conventions.

`tests/models/test_backbones.py` has what both backbones keep.
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.models import DietTransformerBackbone
from tests import reference
from tests.helpers import (
    assert_close,
    block_weights,
    decoder_block_weights,
    gradients,
    random_loss,
    to_numpy,
)
from tests.layers.bias_layers import Distances, expected_scores
from tests.models.diet_transformer.tiny import (
    TARGET_LENGTH,
    random_inputs,
    tiny_backbone,
)
from tests.models.tiny import randomize_weights

OUTPUTS = ("encoder_sequence_output", "decoder_sequence_output")


def relu(x):
    return np.maximum(x, 0)


def expected_outputs(backbone, inputs, activation=relu):
    """The outputs by the equations."""
    embedding = to_numpy(backbone.token_embedding.embeddings).astype("float64")

    def embed(side):
        token_ids = inputs[f"{side}_token_ids"]
        x = embedding[token_ids] * np.sqrt(backbone.hidden_dim)
        if backbone.position_encoding == "sinusoidal":
            return x + reference.sinusoidal_positions(token_ids.shape[1], backbone.hidden_dim)
        if backbone.position_encoding in ("input", "diet_abs_input"):
            layer = getattr(backbone, f"{side}_input_encoding").position_embedding
            return x + to_numpy(layer.position_embeddings)[: token_ids.shape[1]]
        return x

    def scores(biases, index, *lengths):
        if not biases:
            return None
        return expected_scores(biases[0 if len(biases) == 1 else index], *lengths)

    options = {
        "normalize_first": backbone.normalize_first,
        "epsilon": 1e-6,
        "activation": activation,
    }
    masks = {
        side: inputs[f"{side}_padding_mask"].astype("bool")[:, None, None]
        for side in ("encoder", "decoder")
    }
    encoder, decoder = backbone.encoder, backbone.decoder
    source_length, length = (masks[side].shape[-1] for side in masks)
    source = reference.encoder(
        embed("encoder"),
        [block_weights(block) for block in encoder.transformer_layers],
        backbone.num_heads,
        [scores(encoder.position_biases, i, source_length) for i in range(backbone.num_layers)],
        masks["encoder"],
        final_norm=encoder.output_layer_norm.get_weights() if backbone.normalize_first else None,
        **options,
    )
    target = embed("decoder")
    for i, block in enumerate(decoder.transformer_layers):
        target = reference.decoder_block(
            target,
            source,
            decoder_block_weights(block),
            scores(decoder.position_biases, i, length),
            scores(decoder.cross_position_biases, i, length, source_length),
            masks["decoder"],
            masks["encoder"],
            **options,
        )
    if backbone.normalize_first:
        target = reference.layer_norm(target, *decoder.output_layer_norm.get_weights(), 1e-6)
    return dict(zip(OUTPUTS, (source, target), strict=True))


def assert_same_outputs(actual, expected, tolerance=1e-5):
    assert set(actual) == set(expected) == set(OUTPUTS)
    for name in OUTPUTS:
        assert_close(actual[name], expected[name], tolerance)


any_backend = pytest.mark.any_backend
# Encodings, arrangements of blocks, and lengths of sources and targets.
SPECIFICATIONS = {
    "default": {},
    "diet_abs": {"position_encoding": "diet_abs", "rank": 7, "normalize_first": False},
    "diet_abs apart": {"position_encoding": "diet_abs", "sharing": "none"},
    "not across": {"sharing": "head-wise", "cross_attention_positions": False},
    "shaw": {"position_encoding": "shaw", "max_distance": 4, "activation": "tanh"},
    "shaw not across": {"position_encoding": "shaw", "cross_attention_positions": False},
    "sinusoidal": {"position_encoding": "sinusoidal", "lengths": (1, 1)},
    "input": {"position_encoding": "input", "normalize_first": False, "lengths": (3, 13)},
    "diet_abs_input": {"position_encoding": "diet_abs_input", "lengths": (13, 2)},
    "none": {"position_encoding": "none"},
    "layer": {"sharing": "layer-wise"},
}
ON_ALL_BACKENDS = ("default", "shaw", "input")


def specified(name, rng):
    """A backbone with random weights, and inputs."""
    arguments = dict(SPECIFICATIONS[name])
    inputs = random_inputs(rng, 2, *arguments.pop("lengths", ()))
    if name == "layer":
        arguments["position_encoding"] = Distances(3, 13)
    return randomize_weights(tiny_backbone(**arguments)), inputs


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[any_backend] * (n not in ON_ALL_BACKENDS)) for n in SPECIFICATIONS],
)
def test_outputs_are_those_of_the_equations(rng, name):
    backbone, inputs = specified(name, rng)
    # JAX compiles a step of `predict` in less time than the operations of an eager call.
    outputs = backbone.predict_on_batch(inputs)
    activation = np.tanh if backbone.activation is keras.activations.tanh else relu
    assert_same_outputs(outputs, expected_outputs(backbone, inputs, activation))


@any_backend
@pytest.mark.parametrize("name", ["default", "diet_abs", "shaw", "input"])
def test_every_weight_has_a_gradient(rng, name):
    """Except key biases, which softmax removes."""
    backbone, inputs = specified(name, rng)
    loss = random_loss(lambda: list(backbone(inputs).values()), rng)
    weights = backbone.trainable_weights
    for weight, gradient in zip(weights, gradients(loss, weights), strict=True):
        unused = weight.path.endswith("key/bias")
        assert (np.abs(gradient).max() > 1e-4) != unused, weight.path


# === Conventions ===


@any_backend
def test_defaults_are_those_of_transformer_base():
    config = DietTransformerBackbone(31, 1, 3, 15, 23).get_config()
    expected = {
        **{"dropout": 0.1, "max_sequence_length": 256, "position_encoding": "diet_rel"},
        **{"cross_attention_positions": True, "normalize_first": True, "activation": "relu"},
        **{"layer_norm_epsilon": 1e-6, "attention_implementation": "auto", "recompute": "none"},
        **{"rank": None, "sharing": None, "max_distance": None, "trainable": True},
    }
    assert {name: config[name] for name in expected} == expected


@any_backend
@pytest.mark.usefixtures("keras_initializers")
def test_initial_embeddings_have_the_scale_of_the_positions():
    """`sqrt(d) E` has deviation 1, and logits of normalized hidden states too."""
    embeddings = to_numpy(tiny_backbone(vocabulary_size=1009).token_embedding.embeddings)
    assert embeddings.std() == pytest.approx(15**-0.5, rel=0.02)


@any_backend
def test_embeddings_are_dropped_in_training(rng):
    backbone = tiny_backbone(dropout=0.3)
    token_ids = rng.integers(1, 31, (19, 13))
    for training, rate in ((True, 0.3), (False, 0.0), (None, 0.0)):
        x = to_numpy(backbone.embed(token_ids, None, training=training))
        assert np.mean(x == 0) == pytest.approx(rate, abs=0.04)


def test_steps_equal_the_full_pass(rng):
    backbone = randomize_weights(tiny_backbone(position_encoding="diet_abs_input"))
    inputs = random_inputs(rng)
    inputs["decoder_padding_mask"][:] = 1
    expected = backbone.predict_on_batch(inputs)
    source_mask = ops.convert_to_tensor(inputs["encoder_padding_mask"])
    source = backbone.encode(ops.convert_to_tensor(inputs["encoder_token_ids"]), source_mask)
    memory = backbone.decoder.start_memory(2, TARGET_LENGTH, source, source_mask)
    token_ids = ops.convert_to_tensor(inputs["decoder_token_ids"])
    outputs = []
    for start, end in ((0, 2), (2, 3), (3, 7)):
        output, memory = backbone.decode_step(token_ids[:, start:end], memory, start)
        outputs.append(output)
    assert_close(source, expected["encoder_sequence_output"])
    assert_close(ops.concatenate(outputs, axis=1), expected["decoder_sequence_output"])
