"""`DietBertBackbone` against the equations, against KerasHub's BERT, and its conventions."""

import inspect
import json

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet import layers as L
from keras_diet.models import DietBertBackbone
from keras_diet.models.diet_bert.diet_bert_backbone import gelu_approximate
from tests import reference
from tests.helpers import assert_close, once, to_numpy
from tests.models.tiny import SIZES, random_inputs, randomize_weights, tiny_backbone

# Linformer's attention, with segments that projected keys can have.
PROJECTION = {"projection_dim": 5, "segment_encoding": "input"}
SEGMENT_ENCODINGS = ("per-head", "input", "none")
BEST_SHARING = {"diet_abs": "layer-wise", "diet_rel": "none"}


def expected_outputs(backbone, inputs):
    """The outputs by the paper's equations; asserts that each weight has its place in them."""
    weights = {weight.path: to_numpy(weight) for weight in backbone.weights}

    def take(path, shape):
        weight = weights.pop(path)
        assert weight.shape == tuple(shape), f"{path} has shape {weight.shape}"
        return weight

    hidden_dim, num_heads = backbone.hidden_dim, backbone.num_heads
    length = inputs["token_ids"].shape[1]
    at_input = {}
    if backbone.position_encoding == "input":
        shape = (backbone.max_sequence_length, hidden_dim)
        path = "input_encoding/position_embedding/embeddings"
        at_input["position_embedding"] = take(path, shape)
    if backbone.segment_encoding == "input":
        shape = (backbone.num_segments, hidden_dim)
        path = "input_encoding/segment_embedding/embeddings"
        at_input["segment_embedding"] = take(path, shape)
        at_input["segment_ids"] = inputs["segment_ids"]
    norm = [take(f"embeddings_layer_norm/{name}", (hidden_dim,)) for name in ("gamma", "beta")]
    token_embedding = take("token_embedding/embeddings", (backbone.vocabulary_size, hidden_dim))
    x = reference.bert_inputs(token_embedding, inputs["token_ids"], **at_input, norm=norm)

    biases = _expected_position_biases(backbone, take, length)
    if backbone.segment_encoding == "per-head":
        shape = (num_heads, backbone.num_segments, backbone.num_segments)
        for i in range(backbone.num_layers):
            embedding = take(f"encoder/segment_bias_{i}/segment_embedding", shape)
            segments = reference.segment_bias(embedding, inputs["segment_ids"])
            biases[i] = segments if biases[i] is None else biases[i] + segments

    mask = inputs["padding_mask"].astype("bool")[:, None, None, :]
    blocks = [_block_weights(backbone, take, i) for i in range(backbone.num_layers)]
    x = reference.encoder(x, blocks, num_heads, biases, mask)
    kernel = take("pooled_dense/kernel", (hidden_dim, hidden_dim))
    pooled = np.tanh(x[:, 0] @ kernel + take("pooled_dense/bias", (hidden_dim,)))
    assert not weights, f"not in the equations: {list(weights)}"
    return {"sequence_output": x, "pooled_output": pooled}


def _expected_position_biases(backbone, take, length):
    """The scores of each layer by equation 1 or 3, from weights as `sharing` says."""
    num_layers, num_heads = backbone.num_layers, backbone.num_heads
    if backbone.position_encoding not in BEST_SHARING:
        return [None] * num_layers
    sharing = backbone.sharing or BEST_SHARING[backbone.position_encoding]
    names = ["position_bias"]
    if sharing != "layer-wise":
        names = [f"position_bias_{i}" for i in range(num_layers)]
    heads = 1 if sharing == "head-wise" else num_heads
    n = backbone.max_sequence_length
    biases = []
    for name in names:
        if backbone.position_encoding == "diet_abs":
            rank = backbone.rank or backbone.hidden_dim // num_heads
            query = take(f"encoder/{name}/query_embedding", (n, heads, rank))
            key = take(f"encoder/{name}/key_embedding", (n, heads, rank))
            bias = reference.absolute_position_bias(query, key, length, length, 0, num_heads)
        else:
            table = take(f"encoder/{name}/relative_embedding", (2 * n - 1, heads))
            bias = reference.relative_position_bias(table, length, length, 0, num_heads)
        biases.append(bias)
    return biases if len(biases) == num_layers else biases * num_layers


def _block_weights(backbone, take, index):
    d, d_ff, num_heads = backbone.hidden_dim, backbone.intermediate_dim, backbone.num_heads
    prefix = f"encoder/transformer_layer_{index}"
    head_dim = d // num_heads
    attention = {}
    for name in ("query", "key", "value"):
        path = f"{prefix}/self_attention/{name}"
        attention[f"{name}_kernel"] = take(f"{path}/kernel", (d, num_heads, head_dim))
        attention[f"{name}_bias"] = take(f"{path}/bias", (num_heads, head_dim))
    path = f"{prefix}/self_attention/attention_output"
    attention["output_kernel"] = take(f"{path}/kernel", (num_heads, head_dim, d))
    attention["output_bias"] = take(f"{path}/bias", (d,))
    return {
        "attention": attention,
        "attention_norm_gamma": take(f"{prefix}/self_attention_layer_norm/gamma", (d,)),
        "attention_norm_beta": take(f"{prefix}/self_attention_layer_norm/beta", (d,)),
        "intermediate_kernel": take(f"{prefix}/feedforward_intermediate_dense/kernel", (d, d_ff)),
        "intermediate_bias": take(f"{prefix}/feedforward_intermediate_dense/bias", (d_ff,)),
        "output_kernel": take(f"{prefix}/feedforward_output_dense/kernel", (d_ff, d)),
        "output_bias": take(f"{prefix}/feedforward_output_dense/bias", (d,)),
        "output_norm_gamma": take(f"{prefix}/feedforward_layer_norm/gamma", (d,)),
        "output_norm_beta": take(f"{prefix}/feedforward_layer_norm/beta", (d,)),
    }


def assert_same_outputs(actual, expected, tolerance=1e-5):
    assert set(actual) == set(expected) == {"sequence_output", "pooled_output"}
    for name in expected:
        assert_close(actual[name], expected[name], tolerance)


# === The equations ===


@pytest.mark.parametrize(
    ("position_encoding", "sharing", "segment_encoding"),
    [
        ("diet_abs", None, "per-head"),
        ("diet_rel", "layer-wise", "per-head"),
        # With these, `tests/cross_backend` compares the backends.
        *once(
            ("diet_abs", "none", "input"),
            ("diet_rel", None, "none"),
            ("diet_rel", "head-wise", "per-head"),
            ("input", None, "input"),
            ("none", None, "per-head"),
        ),
    ],
)
def test_outputs_are_those_of_the_equations(rng, position_encoding, sharing, segment_encoding):
    backbone = tiny_backbone(
        position_encoding=position_encoding, sharing=sharing, segment_encoding=segment_encoding
    )
    randomize_weights(backbone)
    inputs = random_inputs(rng)
    assert len(np.unique(inputs["segment_ids"])) == 2
    assert_same_outputs(backbone(inputs), expected_outputs(backbone, inputs))


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("encoding", "segment_encoding"),
    [
        ("diet_abs_input", "per-head"),
        ("sinusoidal", "input"),
        ("tupe_rel", "input"),
        ("t5", "per-head"),
        ("shaw", "none"),
    ],
)
def test_the_encoder_reads_the_sum_of_embeddings(rng, encoding, segment_encoding):
    """Other tests compare the encoder with the reference."""
    backbone = tiny_backbone(position_encoding=encoding, segment_encoding=segment_encoding)
    randomize_weights(backbone)
    inputs = random_inputs(rng)
    at_input = {}
    if encoding == "diet_abs_input":
        layer = backbone.input_encoding.position_embedding
        at_input["position_embedding"] = to_numpy(layer.position_embeddings)
    elif encoding == "sinusoidal":
        at_input["position_embedding"] = reference.sinusoidal_positions(11, 15)
    if segment_encoding == "input":
        layer = backbone.input_encoding.segment_embedding
        at_input["segment_embedding"] = to_numpy(layer.embeddings)
    norm = [to_numpy(weight) for weight in backbone.embeddings_layer_norm.weights]
    token_embedding = to_numpy(backbone.token_embedding.embeddings)
    zeros = np.zeros_like(inputs["segment_ids"])
    for segment_ids in (inputs["segment_ids"], None):
        if segment_encoding == "input":
            # Without segments, all tokens belong to the first one.
            at_input["segment_ids"] = zeros if segment_ids is None else segment_ids
        expected = reference.bert_inputs(
            token_embedding, inputs["token_ids"], **at_input, norm=norm
        )
        assert_close(backbone.embed(inputs["token_ids"], segment_ids), expected)
    x = backbone.embed(inputs["token_ids"], inputs["segment_ids"])
    segment_ids = inputs["segment_ids"] if segment_encoding == "per-head" else None
    x = backbone.encoder(x, segment_ids=segment_ids, padding_mask=inputs["padding_mask"])
    assert_close(x, backbone(inputs)["sequence_output"])


@pytest.mark.usefixtures("compiled_steps")
@pytest.mark.parametrize(
    ("position_encoding", "length"),
    [
        ("diet_rel", SIZES["max_sequence_length"]),
        *once(("input", SIZES["max_sequence_length"]), ("diet_abs", 1)),
    ],
)
def test_lengths_up_to_the_maximum(rng, position_encoding, length):
    rank = 7 if position_encoding == "diet_abs" else None
    backbone = tiny_backbone(position_encoding=position_encoding, rank=rank, num_segments=5)
    randomize_weights(backbone)
    inputs = random_inputs(rng, length=length, num_segments=5)
    outputs = backbone.predict(inputs, verbose=0)
    assert_same_outputs(outputs, expected_outputs(backbone, inputs))


# === KerasHub's BERT ===


def bert_and_diet_bert(**arguments):
    """KerasHub's BERT with random weights, and the DietBert that should be the same."""
    sizes = {**SIZES, "dropout": 0.0, **arguments}
    bert = randomize_weights(keras_hub.models.BertBackbone(**sizes))
    diet_bert = DietBertBackbone(**sizes, position_encoding="input", segment_encoding="input")
    return bert, diet_bert


@pytest.mark.parametrize(("length", "num_segments"), [(13, 5), *once((1, 2))])
def test_with_input_encodings_it_is_bert(rng, length, num_segments):
    bert, diet_bert = bert_and_diet_bert(num_segments=num_segments)
    assert [w.shape for w in diet_bert.weights] == [w.shape for w in bert.weights]
    diet_bert.set_weights(bert.get_weights())
    inputs = random_inputs(rng, length=length, num_segments=num_segments)
    assert_same_outputs(diet_bert.predict(inputs, verbose=0), bert.predict(inputs, verbose=0))


@pytest.mark.any_backend
def test_conventions_are_those_of_bert():
    bert, diet_bert = bert_and_diet_bert(dropout=0.2)
    for ours, theirs in ((diet_bert.input, bert.input), (diet_bert.output, bert.output)):
        assert set(ours) == set(theirs)
        for name in theirs:
            assert (ours[name].shape, ours[name].dtype) == (theirs[name].shape, theirs[name].dtype)
            assert ours[name].name == theirs[name].name or ours is diet_bert.output
    for attribute in ("vocabulary_size", "hidden_dim", "max_sequence_length", "cls_token_index"):
        assert getattr(diet_bert, attribute) == getattr(bert, attribute)
    assert diet_bert.cls_token_index == 0
    assert type(diet_bert.token_embedding) is keras.layers.ReversibleEmbedding
    assert diet_bert.token_embedding.embeddings.shape == bert.token_embedding.embeddings.shape
    assert diet_bert.token_embedding.tie_weights == bert.token_embedding.tie_weights

    def rates(model):
        layers = model._flatten_layers()
        rates = [layer.rate for layer in layers if isinstance(layer, keras.layers.Dropout)]
        # BERT drops no hidden units of feed-forward networks.
        return [rate for rate in rates if rate]

    assert rates(diet_bert) == rates(bert)
    assert set(rates(bert)) == {0.2}
    layers = diet_bert._flatten_layers()
    norms = [layer for layer in layers if isinstance(layer, keras.layers.LayerNormalization)]
    assert len(norms) == 1 + 2 * SIZES["num_layers"]
    assert {norm.epsilon for norm in norms} == {1e-12}


@pytest.mark.any_backend
@pytest.mark.usefixtures("keras_initializers")
@pytest.mark.parametrize("position_encoding", ["diet_abs", "input"])
def test_initial_weights_are_berts(position_encoding):
    backbone = tiny_backbone(
        sharing=None if position_encoding == "input" else "none",
        position_encoding=position_encoding,
        segment_encoding="input" if position_encoding == "input" else "per-head",
    )
    drawn = []
    for weight in backbone.weights:
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
            drawn.append(values.flatten()[:5].round(9))
    assert len(np.unique([values[:3] for values in drawn], axis=0)) == len(drawn)


def test_attention_has_dropout_in_training(rng):
    backbone = tiny_backbone(dropout=0.5)
    attention = [block.self_attention for block in backbone.encoder.transformer_layers]
    inside = {id(layer) for each in attention for layer in each._flatten_layers()}
    for layer in backbone._flatten_layers():
        if isinstance(layer, keras.layers.Dropout) and id(layer) not in inside:
            layer.rate = 0.0
    inputs = random_inputs(rng)
    randomize_weights(backbone)
    outputs = [to_numpy(backbone(inputs, training=True)["sequence_output"]) for _ in range(2)]
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-2
    first, second = (to_numpy(backbone(inputs)["sequence_output"]) for _ in range(2))
    np.testing.assert_array_equal(first, second)


# === Behaviour ===


@pytest.mark.parametrize(
    "arguments",
    [
        {"position_encoding": "diet_abs"},
        *once(
            {"position_encoding": "diet_abs", **PROJECTION},
            {"position_encoding": "tupe_rel", "segment_encoding": "none"},
            {"position_encoding": "shaw"},
            {"position_encoding": "input", "segment_encoding": "input"},
        ),
    ],
    ids=lambda arguments: "-".join(map(str, arguments.values())),
)
def test_padded_tokens_change_no_valid_output(rng, arguments):
    backbone = randomize_weights(tiny_backbone(**arguments))
    inputs = random_inputs(rng)
    outputs = backbone(inputs)
    valid = inputs["padding_mask"].astype("bool")
    changed = dict(inputs)
    changed["token_ids"] = np.where(valid, inputs["token_ids"], 29)
    changed["segment_ids"] = np.where(valid, inputs["segment_ids"], 1)
    changed_outputs = backbone(changed)
    sequence, changed_sequence = (
        to_numpy(result["sequence_output"]) for result in (outputs, changed_outputs)
    )
    assert_close(changed_sequence[valid], sequence[valid], 1e-6)
    assert_close(changed_outputs["pooled_output"], outputs["pooled_output"], 1e-6)
    assert np.abs(changed_sequence[~valid] - sequence[~valid]).max() > 0.1


@pytest.mark.any_backend
@pytest.mark.parametrize("segment_encoding", SEGMENT_ENCODINGS)
def test_when_segments_matter(rng, segment_encoding):
    backbone = randomize_weights(tiny_backbone(segment_encoding=segment_encoding))
    inputs = random_inputs(rng)
    valid = inputs["padding_mask"].astype("bool")

    def change(first, second):
        outputs = (
            to_numpy(backbone({**inputs, "segment_ids": ids.astype("int32")})["sequence_output"])
            for ids in (first, second)
        )
        return np.abs(np.subtract(*outputs)[valid]).max()

    both = np.broadcast_to(np.arange(11) // 5 % 2, valid.shape)
    zeros = np.zeros(valid.shape)
    # Scores of a single segment are constant along the keys, and softmax removes them.
    only_one = change(zeros, zeros + 1)
    assert only_one > 0.1 if segment_encoding == "input" else only_one < 1e-5
    for other in (zeros, 1 - both):
        changed = change(both, other)
        assert changed == 0.0 if segment_encoding == "none" else changed > 0.1


# === Precision ===


@pytest.mark.parametrize(
    ("encoding", "dtype"),
    [
        ("tupe_rel", "mixed_float16"),
        *once(("diet_abs", "bfloat16"), ("input", "mixed_float16"), ("shaw", "bfloat16")),
    ],
)
def test_dtype_reaches_every_sublayer(rng, encoding, dtype):
    segment_encoding = "input" if encoding == "input" else "per-head"
    arguments = {"position_encoding": encoding, "segment_encoding": segment_encoding}
    backbone = tiny_backbone(num_layers=1, dtype=dtype, **arguments)
    policy = keras.dtype_policies.get(dtype)
    for layer in backbone._flatten_layers():
        # Softmax is computed in float32, and inputs are integers.
        if not isinstance(layer, keras.layers.Softmax | keras.layers.InputLayer):
            assert layer.compute_dtype == policy.compute_dtype, layer.path
            assert layer.variable_dtype == policy.variable_dtype, layer.path
    assert {weight.dtype for weight in backbone.weights} == {policy.variable_dtype}

    inputs = random_inputs(rng)
    inputs["padding_mask"][0, 1:] = 0
    for name, output in randomize_weights(backbone)(inputs).items():
        assert keras.backend.standardize_dtype(output.dtype) == policy.compute_dtype
        assert backbone.output[name].dtype == policy.compute_dtype
        assert np.all(np.isfinite(to_numpy(output)))


# === Configuration and files ===

NOT_DEFAULT = {
    **SIZES,
    "recompute": "block",
    "dropout": 0.3,
    "num_segments": 5,
    "position_encoding": "diet_abs",
    "rank": 7,
    "sharing": "head-wise",
    "segment_encoding": "input",
    "projection_dim": 5,
    "attention_implementation": "full",
    "activation": "relu",
    "cached_positions": False,
    "dtype": "mixed_bfloat16",
    "name": "reader",
    "trainable": False,
}


@pytest.mark.any_backend
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


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments",
    [
        NOT_DEFAULT,
        {
            **NOT_DEFAULT,
            "position_encoding": "diet_rel",
            "rank": None,
            "projection_dim": None,
            "attention_implementation": "blockwise",
            "cached_positions": True,
        },
    ],
)
def test_every_argument_survives_the_configuration(arguments):
    assert set(arguments) == set(inspect.signature(DietBertBackbone).parameters)
    backbone = DietBertBackbone(**arguments)
    config = backbone.get_config()
    copy = DietBertBackbone.from_config(json.loads(json.dumps(config)))
    for model in (backbone, copy):
        assert model.dtype_policy.name == "mixed_bfloat16"
        assert model.trainable_weights == []
        assert model.get_config() == config
        for name in set(arguments) - {"dtype"}:
            assert getattr(model, name) == arguments[name] == config[name]
    assert copy.encoder.recompute == arguments["recompute"]
    assert [w.shape for w in copy.weights] == [w.shape for w in backbone.weights]
    assert [w.path for w in copy.weights] == [w.path for w in backbone.weights]


@pytest.mark.any_backend
@pytest.mark.parametrize("sharing", [None, "none"])
def test_a_bias_layer_survives_the_configuration_and_files(rng, tmp_path, sharing):
    bias = L.AbsolutePositionBias(3, 17, rank=2)
    backbone = randomize_weights(tiny_backbone(position_encoding=bias, sharing=sharing))
    config = json.loads(json.dumps(backbone.get_config()))
    copy = DietBertBackbone.from_config(config)
    assert copy.position_encoding is not backbone.position_encoding
    assert copy.position_encoding.max_length == 17
    assert json.loads(json.dumps(copy.get_config())) == config
    backbone.save_weights(tmp_path / "backbone.weights.h5")
    copy.load_weights(tmp_path / "backbone.weights.h5")
    backbone.save(tmp_path / "backbone.keras")
    inputs = random_inputs(rng)
    for loaded in (copy, keras.saving.load_model(tmp_path / "backbone.keras")):
        assert_same_outputs(loaded(inputs), backbone(inputs), 1e-6)


# === Refusals ===

BIAS = L.RelativePositionBias
REFUSED = [
    *(
        ({name: 0}, f"`{name}` must be a positive integer.*{name}=0")
        for name in (*SIZES, "num_segments", "rank")
    ),
    ({"num_layers": None}, "`num_layers` must be a positive integer"),
    ({"hidden_dim": 16}, "`hidden_dim`.*`num_heads`.*hidden_dim=16, num_heads=3"),
    ({"dropout": 1.5}, r"`dropout` must be a number in \[0, 1\].*1.5"),
    ({"position_encoding": "sinusoids"}, "`position_encoding` must be.*'diet_abs'.*sinusoids"),
    ({"position_encoding": BIAS}, "`position_encoding` must be one of"),
    ({"position_encoding": BIAS(5, 13)}, "`position_encoding` must have.*num_heads=5"),
    ({"position_encoding": BIAS(3, 13), "rank": 8}, "`rank` is not supported.*a bias layer"),
    ({"position_encoding": BIAS(3, 13), "sharing": "head-wise"}, "`sharing` must be one of"),
    ({"position_encoding": "input", "rank": 8}, "`rank` is not supported.*'input'.*rank=8"),
    ({"position_encoding": "diet_rel", "rank": 8}, "`rank` is not sup.*'diet_rel'.*rank=8"),
    ({"sharing": "layerwise"}, "`sharing` must be.*'layer-wise'.*'layerwise'"),
    ({"position_encoding": "input", "sharing": "none"}, "`sharing` is not supported.*'input'"),
    ({"position_encoding": "shaw", "sharing": "none"}, "`sharing` must be.*'head-wise'"),
    ({"segment_encoding": "per_head"}, "`segment_encoding` must be.*'per-head'.*'per_head'"),
    ({"projection_dim": 5}, "`segment_encoding` must be.*projection_dim=5"),
    ({**PROJECTION, "projection_dim": 0}, "`projection_dim` must be a positive.*=0"),
    ({**PROJECTION, "position_encoding": "t5"}, "`projection_dim` is not supported.*'t5'"),
    ({"attention_implementation": "flash"}, "`attention_implementation` must.*'flash'"),
    ({"attention_implementation": "features", "position_encoding": "diet_rel"}, "'features'"),
    ({"recompute": "all"}, "`recompute` must be one of 'none'.*'all'"),
]


@pytest.mark.any_backend
@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_backbone(**arguments)
