"""Malformed arguments and inputs of backbones, and of functions that change models."""

import functools

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

from keras_diet import layers as L
from keras_diet import models as M
from tests.malformed.refusals import assert_refused, cases
from tests.models.tiny import random_inputs, tiny_backbone

pytestmark = pytest.mark.any_backend

# A refused call does not change a model, so the cases share models.
bb = functools.cache(tiny_backbone)
INPUTS = random_inputs(np.random.default_rng(3), batch_size=3, length=11)
hub = functools.cache(
    lambda: keras_hub.models.BertBackbone(31, 1, 3, 15, 23, max_sequence_length=13)
)


ARGUMENTS = {
    "vocab 0": (
        {"vocabulary_size": 0},
        "`vocabulary_size` must be a positive integer. ... Received: vocabulary_size=0",
    ),
    "vocab str": (
        {"vocabulary_size": "31"},
        "`vocabulary_size` must be a positive integer. ... Received: vocabulary_size='31'",
    ),
    "vocab float": (
        {"vocabulary_size": 31.5},
        "`vocabulary_size` must be a positive integer. ... Received: vocabulary_size=31.5",
    ),
    "layers 0": (
        {"num_layers": 0},
        "`num_layers` must be a positive integer. ... Received: num_layers=0",
    ),
    "layers None": (
        {"num_layers": None},
        "`num_layers` must be a positive integer. ... Received: num_layers=None",
    ),
    "layers list": (
        {"num_layers": [2]},
        "`num_layers` must be a positive integer. ... Received: num_layers=[2]",
    ),
    "position_encoding: layer of Keras": (
        {"position_encoding": keras.layers.Dense(11)},
        "`position_encoding` must be a bias layer, which returns ... Received: <Dense name=",
    ),
    "position_encoding: layer of KerasHub": (
        {"position_encoding": keras_hub.layers.SinePositionEncoding()},
        "`position_encoding` must be a bias ... Received: <SinePositionEncoding name=",
    ),
    "heads not dividing": (
        {"num_heads": 4},
        "`hidden_dim` must be divisible by ... Received: hidden_dim=15, num_heads=4",
    ),
    "heads True": (
        {"num_heads": True},
        "`num_heads` must be a positive integer. ... Received: num_heads=True",
    ),
    "hidden negative": (
        {"hidden_dim": -15},
        "`hidden_dim` must be a positive integer. ... Received: hidden_dim=-15",
    ),
    "intermediate 0": (
        {"intermediate_dim": 0},
        "`intermediate_dim` must be a positive integer. ... Received: intermediate_dim=0",
    ),
    "dropout 1.5": (
        {"dropout": 1.5},
        "`dropout` must be a number in [0, 1]. ... Received: dropout=1.5",
    ),
    "dropout negative": (
        {"dropout": -0.1},
        "`dropout` must be a number in [0, 1]. ... Received: dropout=-0.1",
    ),
    "dropout str": (
        {"dropout": "0.1"},
        "`dropout` must be a number in [0, 1]. ... Received: dropout='0.1'",
    ),
    "dropout None": (
        {"dropout": None},
        "`dropout` must be a number in [0, 1]. ... Received: dropout=None",
    ),
    "dropout nan": (
        {"dropout": float("nan")},
        "`dropout` must be a number in [0, 1]. ... Received: dropout=nan",
    ),
    "max_len 0": (
        {"max_sequence_length": 0},
        "`max_sequence_length` must be a positive ... Received: max_sequence_length=0",
    ),
    "max_len 13.0": (
        {"max_sequence_length": 13.0},
        "`max_sequence_length` must be a positive ... Received: max_sequence_length=13.0",
    ),
    "segments 0": (
        {"num_segments": 0},
        "`num_segments` must be a positive integer. ... Received: num_segments=0",
    ),
    "segments 0 input": (
        {"num_segments": 0, "segment_encoding": "input"},
        "`num_segments` must be a positive integer. ... Received: num_segments=0",
    ),
    "segments 0 none": (
        {"num_segments": 0, "segment_encoding": "none"},
        "`num_segments` must be a positive integer. ... Received: num_segments=0",
    ),
    "encoding typo": (
        {"position_encoding": "diet-abs"},
        "`position_encoding` must be one of ... Received: position_encoding='diet-abs'",
    ),
    "encoding None": (
        {"position_encoding": None},
        "`position_encoding` must be one of ... Received: position_encoding=None",
    ),
    "encoding class": (
        {"position_encoding": L.AlibiPositionBias},
        "`position_encoding` must be one of ... Received: position_encoding=<class",
    ),
    "encoding layer heads": (
        {"position_encoding": L.RelativePositionBias(5, 13)},
        "`position_encoding` must have ... Received: a bias layer with num_heads=5",
    ),
    "rank 0": ({"rank": 0}, "`rank` must be a positive integer. ... Received: rank=0"),
    "rank float": ({"rank": 2.5}, "`rank` must be a positive integer. ... Received: rank=2.5"),
    "rank negative": ({"rank": -3}, "`rank` must be a positive integer. ... Received: rank=-3"),
    "rank with rel": (
        {"rank": 4, "position_encoding": "diet_rel"},
        "`rank` is not supported with position_encoding='diet_rel'. ... Received: rank=4",
    ),
    "sharing typo": (
        {"sharing": "layerwise"},
        "`sharing` must be one of 'layer-wise', ... Received: sharing='layerwise'",
    ),
    "sharing True": (
        {"sharing": True},
        "`sharing` must be one of 'layer-wise', 'none', ... Received: sharing=True",
    ),
    "sharing with input": (
        {"position_encoding": "input", "sharing": "none"},
        "`sharing` is not supported with ... Received: sharing='none'",
    ),
    "segment_encoding typo": (
        {"segment_encoding": "per_head"},
        "`segment_encoding` must be one of ... Received: segment_encoding='per_head'",
    ),
    "segment_encoding None": (
        {"segment_encoding": None},
        "`segment_encoding` must be one of ... Received: segment_encoding=None",
    ),
    "segment_encoding True": (
        {"segment_encoding": True},
        "`segment_encoding` must be one of ... Received: segment_encoding=True",
    ),
    "projection 0": (
        {"projection_dim": 0, "segment_encoding": "none"},
        "`projection_dim` must be a positive integer. ... Received: projection_dim=0",
    ),
    "projection with heads": (
        {"projection_dim": 4},
        "With `projection_dim`, `segment_encoding` must ... Received: projection_dim=4,",
    ),
    "projection rel": (
        {"projection_dim": 4, "segment_encoding": "none", "position_encoding": "diet_rel"},
        "`projection_dim` is not supported with ... Received: projection_dim=4",
    ),
    "projection str": (
        {"projection_dim": "4", "segment_encoding": "none"},
        "`projection_dim` must be a positive integer. ... Received: projection_dim='4'",
    ),
    "implementation typo": (
        {"attention_implementation": "flash"},
        "`attention_implementation` must ... Received: attention_implementation='flash'",
    ),
    "implementation None": (
        {"attention_implementation": None},
        "`attention_implementation` must be ... Received: attention_implementation=None",
    ),
    "implementation features with rel": (
        {"attention_implementation": "features", "position_encoding": "diet_rel"},
        "attention_implementation='featur ... Received: BiasedMultiHeadAttention with the",
    ),
    "dtype int": (
        {"dtype": "int8"},
        "Cannot convert `policy` into a valid pair (`mode`, ... Received: policy=int8",
    ),
    "cached 'yes'": (
        {"cached_positions": "yes"},
        "`cached_positions` must be one of False, ... Received: cached_positions='yes'",
    ),
    "name int": (
        {"name": 7},
        "Argument `name` must be a string ... Received: name=7 (of type <class 'int'>)",
    ),
    "name slash": (
        {"name": "a/b"},
        "Argument `name` must be a string ... Received: name=a/b (of type <class 'str'>)",
    ),
}


@cases(ARGUMENTS)
def test_arguments(sent, message):
    assert_refused(lambda: tiny_backbone(**sent), message)


CALLS = {
    "embed: id too large": (
        lambda: bb().embed(np.array([[30, 31]])),
        "`token_ids` must hold integers in [0, vocabulary_size) = [0, 31). ... from 30 to 31",
    ),
    "embed: negative id": (
        lambda: bb().embed(ops.convert_to_tensor([[5, -1]])),
        "`token_ids` must hold integers in [0, ... Received: ... values from -1 to 5",
    ),
    "embed: fraction": (
        lambda: bb().embed(np.array([[2.0, 3.5]])),
        "`token_ids` must hold integers in [0, ... Received: dtype=float64, values from 2.0",
    ),
    "embed: one example": (
        lambda: bb().embed(np.array([2, 3])),
        "`token_ids` must have the shape (batch_size, length). ... Received: shape=(2,)",
    ),
    "embed: list": (
        lambda: bb().embed([[2, 3]]),
        "`token_ids` must be an array or a tensor. ... Received: list",
    ),
    "positional three": (
        lambda: bb()(INPUTS["token_ids"], INPUTS["segment_ids"], INPUTS["padding_mask"]),
        "`x` must be a dictionary with the keys ... Received: ndarray of shape (3, 11)",
    ),
    "bytes": (
        lambda: bb()({**INPUTS, "token_ids": b"abc"}),
        "`x['token_ids']` must be an array or a tensor. ... Received: bytes",
    ),
    "complex": (
        lambda: bb()({**INPUTS, "token_ids": INPUTS["token_ids"].astype("complex64")}),
        "`x['token_ids']` must hold integers in [0, ... Received: dtype=complex64",
    ),
    "length 0": (
        lambda: bb()({k: v[:, :0] for k, v in INPUTS.items()}),
        "`x['token_ids']` must hold at least one value for ... Received: shape=(3, 0)",
    ),
    "inf": (
        lambda: bb()({**INPUTS, "token_ids": np.full((3, 11), np.inf)}),
        "`x['token_ids']` must hold ... Received: dtype=float64, values from inf to",
    ),
    "object dtype": (
        lambda: bb()({**INPUTS, "token_ids": INPUTS["token_ids"].astype(object)}),
        "`x['token_ids']` must hold integers in [0, ... Received: dtype=object",
    ),
    "object None": (
        lambda: bb()({**INPUTS, "token_ids": np.full((3, 11), None)}),
        "`x['token_ids']` must hold integers in [0, ... Received: dtype=object",
    ),
    "datetime": (
        lambda: bb()({**INPUTS, "token_ids": np.full((3, 11), np.datetime64("2020-01-01"))}),
        "`x['token_ids']` must hold integers in [0, ... Received: dtype=datetime64[D]",
    ),
    "transposed mask": (
        lambda: bb()({**INPUTS, "padding_mask": INPUTS["padding_mask"].T}),
        "'token_ids', 'segment_ids', ... Received: token_ids of shape (3, 11),",
    ),
    "4D mask": (
        lambda: bb()({**INPUTS, "padding_mask": INPUTS["padding_mask"][:, None, None]}),
        "`x['padding_mask']` must have the shape ... Received: shape=(3, 1, 1, 11)",
    ),
    "set": (
        lambda: bb()({1, 2}),
        "`x` must be a dictionary with the keys 'token_ids', ... Received: set",
    ),
    "None": (
        lambda: bb()(None),
        "`x` must be a dictionary with the keys 'token_ids', ... Received: NoneType",
    ),
    "generator": (
        lambda: bb()(v for v in INPUTS.values()),
        "`x` must be a dictionary with the keys 'token_ids', ... Received: generator",
    ),
    "HF BatchEncoding attention_mask": (
        lambda: bb()(
            {
                "input_ids": INPUTS["token_ids"],
                "token_type_ids": INPUTS["segment_ids"],
                "attention_mask": INPUTS["padding_mask"],
            }
        ),
        "`x` must have the keys ... Received: 'input_ids', 'token_type_ids',",
    ),
}


@cases(CALLS)
def test_calls(sent, message):
    assert_refused(sent, message)


CHANGES = {
    "LoRA: rank 0": (
        lambda: tiny_backbone(num_layers=1).enable_lora(0),
        "`rank` must be a positive integer. ... Received: rank=0",
    ),
    "LoRA: rank float": (
        lambda: tiny_backbone(num_layers=1).enable_lora(2.5),
        "`rank` must be a positive integer. ... Received: rank=2.5",
    ),
    "LoRA: name unknown": (
        lambda: tiny_backbone(num_layers=1).enable_lora(2, ["q_proj"]),
        "`target_layer_names` must be one of ... Received: target_layer_names='q_proj'",
    ),
    "LoRA: name string": (
        lambda: tiny_backbone(num_layers=1).enable_lora(2, "query"),
        "`target_layer_names` must be one of ... Received: target_layer_names='q'",
    ),
    "LoRA: empty list": (
        lambda: tiny_backbone(num_layers=1).enable_lora(2, []),
        "`target_layer_names` must name at least one ... Received: target_layer_names=[]",
    ),
    "extend: shorter": (
        lambda: M.extend_positions(bb(), 7),
        "`max_sequence_length` must be larger than ... Received: max_sequence_length=7",
    ),
    "extend: same": (
        lambda: M.extend_positions(bb(), 13),
        "`max_sequence_length` must be larger than ... Received: max_sequence_length=13",
    ),
    "extend: float": (
        lambda: M.extend_positions(bb(), 26.0),
        "`max_sequence_length` must be a positive ... Received: max_sequence_length=26.0",
    ),
    "extend: method": (
        lambda: M.extend_positions(bb(), 26, "linear"),
        "`method` must be one of 'interpolate', 'repeat'. ... Received: method='linear'",
    ),
    "extend: layer": (
        lambda: M.extend_positions(keras.layers.Dense(3), 26),
        "`model` must be a `keras_diet.models.DietBertBackbone` or a ... Received: Dense",
    ),
    "extend: None": (
        lambda: M.extend_positions(None, 26),
        "`model` must be a `keras_diet.models.DietBertBackbone` ... Received: NoneType",
    ),
    "extend: kerashub": (
        lambda: M.extend_positions(
            keras_hub.models.BertBackbone(31, 1, 3, 15, 23, max_sequence_length=13), 26
        ),
        "`model` must be a ... Received: BertBackbone",
    ),
    "add_segments: twice": (
        lambda: M.add_segments(bb()),
        "`model` has segments ... Received: a model with segment_encoding='per-head'",
    ),
    "add_segments: 0": (
        lambda: M.add_segments(tiny_backbone(segment_encoding="none", num_layers=1), 0),
        "`num_segments` must be a positive integer. ... Received: num_segments=0",
    ),
    "add_segments: projection": (
        lambda: M.add_segments(
            tiny_backbone(segment_encoding="none", num_layers=1, projection_dim=4)
        ),
        "With `projection_dim`, `segment_encoding` must ... Received: projection_dim=4,",
    ),
    "add_segments: encoder": (
        lambda: M.add_segments(L.DietEncoder(1, 3, 23)),
        "`model` must be a ... Received: DietEncoder",
    ),
    "cache: unbuilt bias": (
        lambda: L.cache_positions(L.RelativePositionBias(3, 5)),
        "must be built before its scores are cached. ... Received: built=False",
    ),
    "cache: t5 no max": (
        lambda: L.cache_positions(L.BucketedRelativePositionBias(3)),
        "The scores of layer ... Received: max_length=None",
    ),
    "cache: None": (
        lambda: L.cache_positions(None),
        "`model` has no positional scores to cache: none of its ... Received: None",
    ),
    "cache: dense": (
        lambda: L.cache_positions(keras.layers.Dense(3)),
        "`model` has no positional ... Received: <Dense name=dense",
    ),
    "cache: str": (
        lambda: L.cache_positions("diet_abs"),
        "`model` has no positional scores to cache: none of its ... Received: diet_abs",
    ),
    "register: name taken": (
        lambda: L.register_position_encoding("t5", L.PositionEncoding()),
        "`name` is taken by an encoding of keras_diet. ... Received: name='t5'",
    ),
    "register: name empty": (
        lambda: L.register_position_encoding("", L.PositionEncoding()),
        "`name` must be a string that is not empty. ... Received: name=''",
    ),
    "register: layer class": (
        lambda: L.register_position_encoding("mine", L.AlibiPositionBias),
        "`encoding` must be a `PositionEncoding`. ... Received: encoding=<class",
    ),
    "register: preset missing folder": (
        lambda: M.register_preset("my_one", "/nonexistent"),
        "`address` must be the folder of a preset ... Received: address='/nonexistent'",
    ),
    "from_bert: None": (
        lambda: M.DietBertBackbone.from_bert(None),
        "`bert` must be a `keras_hub.models.BertBackbone`, a ... Received: bert=None",
    ),
    "from_bert: int": (
        lambda: M.DietBertBackbone.from_bert(3),
        "`bert` must be a `keras_hub.models.BertBackbone`, a task ... Received: bert=3",
    ),
    "from_bert: typo": (
        lambda: M.DietBertBackbone.from_bert("bert_base_enn"),
        "`bert` must be the address of a ... Received: bert='bert_base_enn', which",
    ),
    "from_bert: diet": (
        lambda: M.DietBertBackbone.from_bert(bb()),
        "`bert` must be a ... Received: bert=<DietBertBackbone",
    ),
    "from_bert: encoding": (
        lambda: M.DietBertBackbone.from_bert(hub(), position_encoding="rope"),
        "`position_encoding` must be one of ... Received: position_encoding='rope'",
    ),
    "preset: none": (
        lambda: M.DietBertBackbone.from_preset("no_such_preset"),
        "`preset` must be a folder, an ... Received: preset='no_such_preset', which does not",
    ),
    "preset: None": (
        lambda: M.DietBertBackbone.from_preset(None),
        "`preset` must be a folder, an address, or a ... Received: preset=None",
    ),
    "preset: int": (
        lambda: M.DietBertBackbone.from_preset(3),
        "`preset` must be a folder, an address, or a registered ... Received: preset=3",
    ),
}


@cases(CHANGES)
def test_changes(sent, message):
    assert_refused(sent, message)
