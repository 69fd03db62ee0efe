"""`DietTransformerBackbone` against the equations, and its conventions."""

import inspect
import json

import keras
import keras_hub
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
    SIZES,
    SOURCE_LENGTH,
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

    def norm(layer):
        return [to_numpy(weight) for weight in layer.weights]

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
        final_norm=norm(encoder.output_layer_norm) if backbone.normalize_first else None,
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
        target = reference.layer_norm(target, *norm(decoder.output_layer_norm), 1e-6)
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
}
ON_ALL_BACKENDS = ("default", "shaw", "input")


def specified(name, rng):
    """A backbone with random weights, and inputs."""
    arguments = dict(SPECIFICATIONS[name])
    inputs = random_inputs(rng, 2, *arguments.pop("lengths", ()))
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


@any_backend
def test_custom_bias_layers_are_not_shared(rng):
    layer = Distances(3, 13)
    backbone = randomize_weights(tiny_backbone(position_encoding=layer, sharing="layer-wise"))
    biases = [
        *backbone.encoder.position_biases,
        *backbone.decoder.position_biases,
        *backbone.decoder.cross_position_biases,
    ]
    assert [type(bias) for bias in biases] == [Distances] * 3
    assert len({id(bias.slopes) for bias in biases}) == 3
    assert sum(weight.path.endswith("slopes") for weight in backbone.weights) == 3
    inputs = random_inputs(rng)
    with_names = backbone.predict_on_batch(inputs)
    copy = DietTransformerBackbone.from_config(json.loads(json.dumps(backbone.get_config())))
    assert isinstance(copy.position_encoding, Distances)
    assert [weight.name for weight in copy.weights] == [weight.name for weight in backbone.weights]
    copy.set_weights(backbone.get_weights())
    assert_same_outputs(copy.predict_on_batch(inputs), with_names, 1e-6)
    # The slopes of each of the three matter.
    for bias in biases:
        slopes = to_numpy(bias.slopes)
        bias.slopes.assign(slopes + 1)
        found = backbone.predict_on_batch(inputs)["decoder_sequence_output"]
        assert np.abs(found - with_names["decoder_sequence_output"]).max() > 1e-2
        bias.slopes.assign(slopes)


# === Conventions ===


@any_backend
def test_inputs_and_outputs_have_the_names_of_kerashub():
    bart = keras_hub.models.BartBackbone(31, 1, 3, 15, 23, max_sequence_length=13)
    backbone = tiny_backbone()
    assert set(backbone.input) == set(bart.input)
    assert set(backbone.output) == set(bart.output) == set(OUTPUTS)
    for name, tensor in bart.input.items():
        assert backbone.input[name].shape == tensor.shape
        assert backbone.input[name].dtype == tensor.dtype
    assert type(backbone.token_embedding) is keras.layers.ReversibleEmbedding


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
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"vocabulary_size": 0}, "`vocabulary_size` must be a positive integer"),
        ({"hidden_dim": None}, "`hidden_dim` must be a positive integer"),
        ({"max_sequence_length": 0}, "`max_sequence_length` must be a positive integer"),
        ({"num_heads": 4}, "must be divisible by `num_heads`. Received: hidden_dim=15"),
        ({"dropout": 1.5}, "between 0 and 1|must be a number in"),
    ],
    ids=str,
)
def test_arguments_out_of_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_backbone(**arguments)


@any_backend
def test_configuration():
    """Every value differs from its default."""
    arguments = {
        **SIZES,
        **{"layer_norm_epsilon": 0.003, "dropout": 0.3, "sharing": "head-wise"},
        **{"position_encoding": "shaw", "max_distance": 4, "cross_attention_positions": False},
        **{"normalize_first": False, "activation": "tanh", "attention_implementation": "full"},
        **{"recompute": "block", "name": "translator", "trainable": False},
    }
    backbone = DietTransformerBackbone(**arguments, dtype="mixed_bfloat16")
    config = json.loads(json.dumps(backbone.get_config()))
    names = set(inspect.signature(DietTransformerBackbone).parameters)
    assert set(config) == names
    assert {name: config[name] for name in arguments} == arguments
    copy = DietTransformerBackbone.from_config(config)
    assert copy.get_config() == backbone.get_config()
    assert [w.path for w in copy.weights] == [w.path for w in backbone.weights]
    assert copy.trainable_weights == []
    layers = [*copy.encoder.transformer_layers, *copy.decoder.transformer_layers]
    assert {layer.dropout for layer in layers} == {layer.activation_dropout for layer in layers}
    assert {layer.dropout for layer in layers} == {copy.embeddings_dropout.rate} == {0.3}
    assert tiny_backbone(position_encoding="diet_abs", rank=7).get_config()["rank"] == 7


@any_backend
@pytest.mark.usefixtures("keras_initializers")
def test_initial_embeddings_have_the_scale_of_the_positions():
    """`sqrt(d) E` has deviation 1, and logits of normalized hidden states too."""
    embeddings = to_numpy(tiny_backbone(vocabulary_size=1009).token_embedding.embeddings)
    assert embeddings.std() == pytest.approx(15**-0.5, rel=0.02)


@any_backend
def test_dropout_is_active_in_training_only(rng):
    backbone = randomize_weights(tiny_backbone(dropout=0.3))
    inputs = random_inputs(rng)
    for name in OUTPUTS:
        one, other = (to_numpy(backbone(inputs, training=True)[name]) for _ in range(2))
        assert not np.array_equal(one, other)
        one, other = (
            to_numpy(backbone(inputs, **mode)[name]) for mode in ({}, {"training": False})
        )
        assert np.array_equal(one, other)
    token_ids = rng.integers(1, SIZES["vocabulary_size"], (19, 13))
    for training, rate in ((True, 0.3), (False, 0.0), (None, 0.0)):
        x = to_numpy(backbone.embed(token_ids, None, training=training))
        assert np.mean(x == 0) == pytest.approx(rate, abs=0.04)


# === Behaviour ===


@any_backend
@pytest.mark.parametrize("name", ["default", "shaw", "diet_abs_input"])
def test_padding_changes_no_valid_output(rng, name):
    backbone, _ = specified(name, rng)
    inputs = random_inputs(rng)
    masks = {side: inputs[f"{side}_padding_mask"].astype("bool") for side in ("encoder", "decoder")}
    changed = dict(inputs)
    for side, valid in masks.items():
        changed[f"{side}_token_ids"] = np.where(valid, inputs[f"{side}_token_ids"], 29)
    outputs, others = backbone.predict_on_batch(inputs), backbone.predict_on_batch(changed)
    for side, valid in masks.items():
        found, other = (each[f"{side}_sequence_output"] for each in (outputs, others))
        assert_close(other[valid], found[valid], 1e-6)
        assert np.abs(other[~valid] - found[~valid]).max() > 0.1


@any_backend
def test_targets_see_only_the_past_and_all_of_the_source(rng):
    backbone = randomize_weights(tiny_backbone())
    inputs = random_inputs(rng)
    before = backbone.predict_on_batch(inputs)["decoder_sequence_output"]
    for side, place, unchanged in (("decoder", 3, 3), ("encoder", 7, 0)):
        token_ids = inputs[f"{side}_token_ids"].copy()
        token_ids[:, place] = token_ids[:, place] % 30 + 1
        changed = backbone.predict_on_batch({**inputs, f"{side}_token_ids": token_ids})
        difference = np.abs(changed["decoder_sequence_output"] - before).max(axis=(0, 2))
        assert (difference[:unchanged] < 1e-6).all()
        assert (difference[unchanged:5] > 1e-3).all()


@any_backend
@pytest.mark.parametrize(
    "position_encoding, cross",
    [("diet_rel", True), ("shaw", False), ("none", True)],
)
def test_when_the_order_of_keys_from_the_encoder_matters(rng, position_encoding, cross):
    """Without positions in cross-attention, the outputs of the encoder are a set."""
    backbone = randomize_weights(
        tiny_backbone(position_encoding=position_encoding, cross_attention_positions=cross)
    )
    target = rng.normal(size=(2, TARGET_LENGTH, 15)).astype("float32")
    source = rng.normal(size=(2, SOURCE_LENGTH, 15)).astype("float32")
    outputs = [to_numpy(backbone.decoder(target, x)) for x in (source, source[:, ::-1].copy())]
    has_order = cross and position_encoding != "none"
    assert (np.abs(outputs[0] - outputs[1]).max() > 1e-2) == has_order


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


# === Precision ===


@any_backend
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])
def test_dtype_reaches_every_sublayer(rng, dtype):
    backbone = tiny_backbone(num_layers=1, position_encoding="diet_abs_input", dtype=dtype)
    policy = keras.dtype_policies.get(dtype)
    for layer in backbone._flatten_layers():
        if not isinstance(layer, keras.layers.Softmax | keras.layers.InputLayer):
            assert layer.compute_dtype == policy.compute_dtype, layer.path
    assert {weight.dtype for weight in backbone.weights} == {policy.variable_dtype}
    exact = randomize_weights(tiny_backbone(num_layers=1, position_encoding="diet_abs_input"))
    backbone.set_weights(exact.get_weights())
    inputs = random_inputs(rng)
    outputs, expected = backbone(inputs), exact(inputs)
    for name in OUTPUTS:
        assert keras.backend.standardize_dtype(outputs[name].dtype) == policy.compute_dtype
        assert np.abs(to_numpy(outputs[name]) - to_numpy(expected[name])).max() < 0.2
