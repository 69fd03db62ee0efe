"""What both backbones keep: KerasHub's names, configurations, files, refusals."""

import inspect
import json

import keras
import keras_hub
import pytest

from keras_diet import layers as L
from keras_diet.models import DietBertBackbone, DietTransformerBackbone
from tests.helpers import assert_all_close
from tests.layers.bias_layers import Distances
from tests.models import tiny as bert
from tests.models.diet_transformer import tiny as translation
from tests.models.tiny import randomize_weights

pytestmark = pytest.mark.any_backend
FAMILIES = {"bert": bert, "translator": translation}


def specified(rng, family, **arguments):
    """A backbone with random weights, and inputs."""
    module = FAMILIES[family]
    return randomize_weights(module.tiny_backbone(**arguments)), module.random_inputs(rng)


@pytest.mark.parametrize("family", FAMILIES)
def test_names_are_those_of_kerashub(family):
    ours = FAMILIES[family].tiny_backbone()
    cls = {"bert": keras_hub.models.BertBackbone, "translator": keras_hub.models.BartBackbone}
    theirs = cls[family](**bert.SIZES)
    for one, other in ((ours.input, theirs.input), (ours.output, theirs.output)):
        assert one.keys() == other.keys()
        for name, tensor in one.items():
            assert (tensor.shape, tensor.dtype) == (other[name].shape, other[name].dtype)
    assert {name: x.name for name, x in ours.input.items()} == {name: name for name in ours.input}
    for attribute in ("vocabulary_size", "hidden_dim", "max_sequence_length"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    embedding = ours.token_embedding
    assert embedding.tie_weights
    # Layers of KerasHub have it in their config.
    copy = keras.layers.deserialize(keras.layers.serialize(embedding))
    assert type(copy) is type(embedding) is keras.layers.ReversibleEmbedding


# === Configuration and files ===

COMMON = {**bert.SIZES, "dropout": 0.3, "recompute": "block", "attention_implementation": "full"}
COMMON |= {"sharing": "head-wise", "dtype": "mixed_bfloat16", "name": "mine", "trainable": False}
HALVES = keras.initializers.serialize(keras.initializers.Constant(0.5))
OF_BERT = {
    **COMMON,
    **{"position_encoding": "diet_abs_input", "rank": 7, "num_segments": 5, "projection_dim": 5},
    **{"segment_encoding": "input", "activation": "relu", "cached_positions": False},
    **{"embedding_dim": 11, "normalize_embeddings": False, "first_position": 3},
    **{"pooler_activation": "relu", "dropped_token": 4, "head_dim": 6, "share_layers": True},
    # Of the encoder.
    **{"gated": True, "layer_norm_epsilon": 0.003, "initial_score_stddev": 0.3, "use_bias": False},
    **{"normalize_first": True, "normalize_inputs": True, "normalization": "rms_norm"},
    **{
        "activation_dropout": 0.2,
        "attention_dropout": 0.4,
        "attention_scale": 0.7,
        "bias_initializer": HALVES,
    },
    **dict.fromkeys(("attention_windows", "max_distance", "max_wavelength", "rope_scaling")),
}
BLOCKWISE = {"position_encoding": "diet_rel", "rank": None, "projection_dim": None}
BLOCKWISE |= {"attention_implementation": "blockwise", "cached_positions": True}
BLOCKWISE |= {"first_position": None, "attention_windows": [3, None]}
BLOCKWISE |= {"share_layers": False, "normalize_inputs": False}
OF_TRANSLATOR = {
    **COMMON,
    **{"position_encoding": "shaw", "rank": None, "max_distance": 4, "activation": "tanh"},
    **{"cross_attention_positions": False, "normalize_first": False, "layer_norm_epsilon": 0.003},
    "initial_score_stddev": None,
}
WITH_RANK = {"position_encoding": "diet_abs", "rank": 7, "max_distance": None}
WITH_RANK |= {"initial_score_stddev": 0.3}


@pytest.mark.parametrize(
    "cls, arguments",
    [
        (DietBertBackbone, OF_BERT),
        (DietBertBackbone, {**OF_BERT, **BLOCKWISE}),
        (DietTransformerBackbone, OF_TRANSLATOR),
        (DietTransformerBackbone, {**OF_TRANSLATOR, **WITH_RANK}),
    ],
)
def test_every_argument_survives_the_configuration_and_reaches_the_stacks(cls, arguments):
    """The table has no default, except where arguments exclude each other."""
    assert set(inspect.signature(cls).parameters) - {"kwargs"} <= set(arguments)
    backbone = cls(**arguments)
    config = json.loads(json.dumps(backbone.get_config()))
    copy = cls.from_config(config)
    saved = {name: value for name, value in arguments.items() if name != "dtype"}
    for model in (backbone, copy):
        assert model.get_config() == {**config, "mixed_precision": "mixed_bfloat16"}
        assert {name: config[name] for name in saved} == saved
        assert model.dtype_policy.name == "mixed_bfloat16"
        assert model.trainable_weights == []
    assert [(w.path, w.shape) for w in copy.weights] == [
        (w.path, w.shape) for w in backbone.weights
    ]
    for stack in (copy.encoder, getattr(copy, "decoder", copy.encoder)):
        of_stack = stack.get_config()
        names = set(saved) & set(of_stack) - {"name", "trainable"}
        assert {name: of_stack[name] for name in names} == {name: saved[name] for name in names}
        assert of_stack["activation_dropout"] == (0.2 if cls is DietBertBackbone else 0.3)
    assert copy.embeddings_dropout.rate == 0.3


@pytest.mark.parametrize(
    "family, layer, sharing, count",
    [
        ("bert", L.AbsolutePositionBias(3, 17, rank=2), "none", 2),
        ("translator", Distances(3, 13), "layer-wise", 3),
    ],
    ids=["bert", "translator"],
)
def test_a_bias_layer_survives_files(rng, tmp_path, family, layer, sharing, count):
    backbone, inputs = specified(rng, family, position_encoding=layer, sharing=sharing)
    found = [each for each in backbone._flatten_layers() if type(each) is type(layer)]
    assert len({id(bias.weights[0]) for bias in found}) == count
    backbone.save(tmp_path / "backbone.keras")
    copy = keras.saving.load_model(tmp_path / "backbone.keras")
    assert copy.position_encoding.get_config() == layer.get_config()
    assert json.dumps(copy.get_config()) == json.dumps(backbone.get_config())
    assert_all_close(copy(inputs), backbone(inputs), 1e-6)


# === Refusals: `tests/layers/transformer/test_refusals.py` has those of the stacks ===

SIZE = "must be a positive integer"
REFUSED = [
    *(("bert", name, 0, SIZE) for name in ("num_heads", "vocabulary_size", "hidden_dim")),
    ("bert", "max_sequence_length", 0, SIZE),
    ("bert", "first_position", 3, "needs learned positions at the input"),
    ("bert", "hidden_dim", 16, "must be divisible by `num_heads`"),
    ("bert", "dropout", 1.5, r"must be a number in \[0, 1\]"),
    ("bert", "segment_encoding", "per_head", "must be one of"),
    *(("translator", name, 0, SIZE) for name in ("vocabulary_size", "hidden_dim")),
]


@pytest.mark.parametrize("family, name, value, message", REFUSED)
def test_refusals(family, name, value, message):
    with pytest.raises(ValueError, match=f"{message}.*{name}={value!r}"):
        FAMILIES[family].tiny_backbone(**{name: value})
