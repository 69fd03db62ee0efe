"""`DietTransformerBackbone` against the equations, and its conventions."""

import inspect
import json

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet.analysis.cross_attention import cross_attention_scores
from keras_diet.layers import RelativePositionBias
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


ARGUMENTS = [
    {},
    {"position_encoding": "diet_abs", "rank": 7, "sharing": "none", "normalize_first": False},
    {"position_encoding": "diet_rel", "sharing": "head-wise", "cross_attention_positions": False},
    {"position_encoding": "shaw", "max_distance": 4},
    {"position_encoding": "shaw", "max_distance": 4, "cross_attention_positions": False},
    {"position_encoding": "sinusoidal"},
    {"position_encoding": "input", "normalize_first": False},
    {"position_encoding": "diet_abs_input", "cross_attention_positions": False},
    {"position_encoding": "none"},
]


def name_of(arguments):
    return "-".join(map(str, arguments.values())) or "default"


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=name_of)
def test_outputs_are_those_of_the_equations(rng, arguments):
    backbone = randomize_weights(tiny_backbone(**arguments))
    inputs = random_inputs(rng)
    # JAX compiles a step of `predict` in less time than the operations of an eager call.
    outputs = backbone.predict_on_batch(inputs)
    assert_same_outputs(outputs, expected_outputs(backbone, inputs))
    for layer in (backbone.encoder_input_encoding, backbone.decoder_input_encoding):
        at_input = backbone.position_encoding in ("sinusoidal", "input", "diet_abs_input")
        assert (layer is not None) == at_input


@pytest.mark.any_backend
def test_activation(rng):
    backbone = randomize_weights(tiny_backbone(activation="tanh"))
    inputs = random_inputs(rng)
    assert_same_outputs(backbone(inputs), expected_outputs(backbone, inputs, np.tanh))


@pytest.mark.any_backend
@pytest.mark.parametrize("arguments", ARGUMENTS[:6], ids=name_of)
def test_every_weight_has_a_gradient(rng, arguments):
    """Except key biases, which softmax removes."""
    backbone = randomize_weights(tiny_backbone(**arguments))
    inputs = random_inputs(rng)
    loss = random_loss(lambda: list(backbone(inputs).values()), rng)
    weights = backbone.trainable_weights
    for weight, gradient in zip(weights, gradients(loss, weights), strict=True):
        unused = weight.path.endswith("key/bias")
        assert (np.abs(gradient).max() > 1e-4) != unused, weight.path


@pytest.mark.parametrize("lengths", [(1, 1), (3, 13), (13, 2)], ids=str)
def test_lengths_up_to_the_maximum(rng, lengths):
    backbone = randomize_weights(tiny_backbone(num_layers=1))
    inputs = random_inputs(rng, 3, *lengths)
    outputs = backbone.predict_on_batch(inputs)
    assert_same_outputs(outputs, expected_outputs(backbone, inputs))


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


@pytest.mark.any_backend
def test_a_bias_layer_of_the_library():
    bias = RelativePositionBias(3, 13, share_heads=True)
    backbone = tiny_backbone(position_encoding=bias, sharing="none")
    shapes = [w.shape for w in backbone.weights if w.path.endswith("relative_embedding")]
    assert shapes == [(25, 1)] * 6


# === Conventions ===


@pytest.mark.any_backend
def test_inputs_and_outputs_have_the_names_of_kerashub():
    bart = keras_hub.models.BartBackbone(31, 1, 3, 15, 23, max_sequence_length=13)
    backbone = tiny_backbone()
    assert set(backbone.input) == set(bart.input)
    assert set(backbone.output) == set(bart.output) == set(OUTPUTS)
    for name, tensor in bart.input.items():
        assert backbone.input[name].shape == tensor.shape
        assert backbone.input[name].dtype == tensor.dtype
    assert type(backbone.token_embedding) is keras.layers.ReversibleEmbedding


@pytest.mark.any_backend
def test_defaults_are_those_of_transformer_base():
    parameters = inspect.signature(DietTransformerBackbone).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    assert defaults == {
        "dropout": 0.1,
        "max_sequence_length": 256,
        "position_encoding": "diet_rel",
        "rank": None,
        "sharing": None,
        "cross_attention_positions": True,
        "normalize_first": True,
        "activation": "relu",
        "max_distance": None,
        "attention_implementation": "auto",
        "recompute": "none",
        "layer_norm_epsilon": 1e-6,
        "dtype": None,
        "name": None,
        "trainable": None,
    }


# Every value differs from its default.
CONFIG = {
    **SIZES,
    "layer_norm_epsilon": 0.003,
    "dropout": 0.3,
    "position_encoding": "shaw",
    "sharing": "head-wise",
    "cross_attention_positions": False,
    "normalize_first": False,
    "activation": "tanh",
    "max_distance": 4,
    "attention_implementation": "full",
    "dtype": "mixed_bfloat16",
    "name": "translator",
    "trainable": False,
}


@pytest.mark.any_backend
@pytest.mark.parametrize("changes", [{}, {"position_encoding": "diet_abs", "rank": 7}])
def test_configuration(changes):
    arguments = {**CONFIG, **changes}
    if changes:
        arguments["max_distance"] = None
    backbone = DietTransformerBackbone(**arguments)
    config = json.loads(json.dumps(backbone.get_config()))
    names = set(inspect.signature(DietTransformerBackbone).parameters)
    assert set(config) == names | {"mixed_precision"}
    assert config["mixed_precision"] == "mixed_bfloat16"
    plain = {name: value for name, value in arguments.items() if name != "dtype"}
    assert {name: config[name] for name in plain} == plain
    copy = DietTransformerBackbone.from_config(config)
    assert copy.get_config() == backbone.get_config()
    assert [w.path for w in copy.weights] == [w.path for w in backbone.weights]
    assert copy.trainable_weights == []
    rates = {
        layer.rate for layer in copy._flatten_layers() if isinstance(layer, keras.layers.Dropout)
    }
    assert rates == {0.3}


@pytest.mark.any_backend
@pytest.mark.usefixtures("keras_initializers")
def test_initial_embeddings_have_the_scale_of_the_positions():
    """`sqrt(d) E` has deviation 1, and logits of normalized hidden states too."""
    backbone = tiny_backbone(vocabulary_size=1009)
    embeddings = to_numpy(backbone.token_embedding.embeddings)
    assert embeddings.std() == pytest.approx(15**-0.5, rel=0.02)


def test_weights_have_the_same_order_on_all_backends():
    """Weights files have no order, but `get_weights` has one."""
    block = [
        *(f"self_attention/{name}" for name in ("query", "key", "value", "attention_output")),
        "self_attention_layer_norm",
    ]
    feedforward = [
        "feedforward_layer_norm",
        "feedforward_intermediate_dense",
        "feedforward_output_dense",
    ]
    backbone = tiny_backbone(num_layers=1, position_encoding="diet_abs_input")
    layers = list(dict.fromkeys(weight.path.rpartition("/")[0] for weight in backbone.weights))
    cross = [name.replace("self_attention", "cross_attention") for name in block]

    def of(side, names):
        return sorted(f"{side}/transformer_layer_0/{name}" for name in names)

    expected = {
        "token_embedding": ["token_embedding"],
        "decoder_input_encoding": ["decoder_input_encoding/position_embedding"],
        "encoder_input_encoding": ["encoder_input_encoding/position_embedding"],
        "encoder": [*of("encoder", [*block, *feedforward]), "encoder/output_layer_norm"],
        "decoder": [*of("decoder", [*block, *cross, *feedforward]), "decoder/output_layer_norm"],
    }
    groups = {}
    for path in layers:
        groups.setdefault(path.split("/")[0], []).append(path)
    # A comparison of the complete lists between backends is in `tests/cross_backend`.
    assert list(groups) == list(expected)
    for name, paths in expected.items():
        found = [path for path in groups[name] if "position_bias" not in path]
        assert sorted(found) == sorted(paths)


@pytest.mark.any_backend
@pytest.mark.parametrize("side, rate", [("encoder", 0.5), ("decoder", 0.5), ("both", 0.0)])
def test_dropout_is_active_in_training_only(rng, side, rate):
    backbone = randomize_weights(tiny_backbone(dropout=rate))
    inputs = random_inputs(rng)
    name = f"{'decoder' if side == 'both' else side}_sequence_output"
    outputs = [to_numpy(backbone(inputs, training=True)[name]) for _ in range(2)]
    assert np.array_equal(*outputs) == (rate == 0)
    outputs = [to_numpy(backbone(inputs, **mode)[name]) for mode in ({}, {"training": False})]
    assert np.array_equal(*outputs)


@pytest.mark.any_backend
def test_embeddings_have_dropout_in_training_only(rng):
    backbone = randomize_weights(tiny_backbone(dropout=0.3))
    token_ids = rng.integers(1, SIZES["vocabulary_size"], (19, 13))
    for training, rate in ((True, 0.3), (False, 0.0), (None, 0.0)):
        x = to_numpy(backbone.embed(token_ids, None, training=training))
        assert np.mean(x == 0) == pytest.approx(rate, abs=0.04)


# === Behaviour ===


@pytest.mark.parametrize("position_encoding", ["diet_rel", "shaw", "sinusoidal"])
def test_padding_changes_no_valid_output(rng, position_encoding):
    backbone = randomize_weights(tiny_backbone(position_encoding=position_encoding))
    inputs = random_inputs(rng)
    changed = dict(inputs)
    for side in ("encoder", "decoder"):
        valid = inputs[f"{side}_padding_mask"].astype("bool")
        changed[f"{side}_token_ids"] = np.where(valid, inputs[f"{side}_token_ids"], 29)
    outputs, others = backbone.predict_on_batch(inputs), backbone.predict_on_batch(changed)
    for side in ("encoder", "decoder"):
        valid = inputs[f"{side}_padding_mask"].astype("bool")
        found, other = (each[f"{side}_sequence_output"] for each in (outputs, others))
        assert_close(other[valid], found[valid], 1e-6)
        assert np.abs(other[~valid] - found[~valid]).max() > 0.1


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


@pytest.mark.any_backend
@pytest.mark.parametrize("position_encoding", ["diet_rel", "shaw", "diet_abs", "none"])
@pytest.mark.parametrize("cross", [True, False])
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


@pytest.mark.any_backend
def test_cross_attention_scores(rng):
    backbone = randomize_weights(tiny_backbone())
    inputs = random_inputs(rng)
    scores = cross_attention_scores(backbone, inputs)
    assert len(scores) == 2
    valid = inputs["encoder_padding_mask"].astype("bool")
    for of_layer in map(to_numpy, scores):
        assert of_layer.shape == (2, 3, TARGET_LENGTH, SOURCE_LENGTH)
        assert_close(of_layer.sum(axis=-1), np.ones((2, 3, TARGET_LENGTH)))
        assert not of_layer[0][..., ~valid[0]].any()


# === Precision ===


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
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
