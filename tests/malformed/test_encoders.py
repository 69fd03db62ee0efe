"""Malformed inputs, masks and arguments of `DietEncoder` and its blocks."""

import functools

import keras
import numpy as np

from keras_diet import layers as L
from tests.malformed.refusals import assert_refused, cases

X = np.random.default_rng(0).normal(size=(2, 7, 15)).astype("float32")
Y = np.random.default_rng(1).normal(size=(2, 5, 15)).astype("float32")


@functools.cache
def enc(**arguments):
    return L.DietEncoder(1, 3, 23, max_sequence_length=9, **arguments)


encin = functools.partial(enc, segment_encoding="input")
enclin = functools.partial(enc, segment_encoding="none", projection_dim=4)
blk = functools.cache(lambda: L.BiasedTransformerEncoder(23, 3))


def e(make=enc, x=X, **arguments):
    return lambda: make()(x, **arguments)


ENCODERS = {
    "position encoding of Keras": (
        lambda: L.DietEncoder(1, 3, 23, position_encoding=keras.layers.Dense(7)),
        "`position_encoding` must be a bias layer, which returns ... Received: <Dense name=",
    ),
    "inputs of a backbone": (
        e(x={"token_ids": X, "padding_mask": X[:, :, 0]}),
        "`inputs` must be a tensor of shape (batch_size, length, ... Received: dict. Pass the",
    ),
    "dict of one tensor": (
        e(x={"sequence_output": X}),
        "`inputs` must be a tensor of shape (batch_size, length, ... Received: dict. Pass the",
    ),
    "list of tensors": (
        e(x=[X, X]),
        "`inputs` must be a tensor of shape (batch_size, length, ... Received: list. Pass the",
    ),
    "block attention bias of Keras": (
        e(blk, attention_bias=keras.layers.Dense(7)),
        "`attention_bias` must be a bias layer, which returns ... Received: <Dense name=",
    ),
    "block plan text": (
        e(blk, attention_plan="scores"),
        "`attention_plan` must be an `AttentionPlan` ... Received: attention_plan='scores'",
    ),
    "num_layers str": (
        lambda: L.DietEncoder("2", 3, 23),
        "`num_layers` must be a positive integer. ... Received: num_layers='2'",
    ),
    "dropout": (
        lambda: L.DietEncoder(1, 3, 23, dropout=1.5)(X),
        "`dropout` must be a number in [0, 1]. ... Received: dropout=1.5",
    ),
    "dropout early": (
        lambda: L.DietEncoder(1, 3, 23, dropout=-1),
        "`dropout` must be a number in [0, 1]. ... Received: dropout=-1",
    ),
    "epsilon": (
        lambda: L.DietEncoder(1, 3, 23, layer_norm_epsilon=-1.0),
        "`layer_norm_epsilon` must be a positive, ... Received: layer_norm_epsilon=-1.0",
    ),
    "epsilon str": (
        lambda: L.DietEncoder(1, 3, 23, layer_norm_epsilon="x"),
        "`layer_norm_epsilon` must be a positive, ... Received: layer_norm_epsilon='x'",
    ),
    "norm str": (
        lambda: L.DietEncoder(1, 3, 23, normalize_first="no"),
        "`normalize_first` must be one of False, True. ... Received: normalize_first='no'",
    ),
    "encode_inputs str": (
        lambda: L.DietEncoder(1, 3, 23, encode_inputs="no"),
        "`encode_inputs` must be one of False, True. ... Received: encode_inputs='no'",
    ),
    "hidden": (
        lambda: L.DietEncoder(1, 4, 23)(X),
        "`hidden_dim` must be divisible by ... Received: hidden_dim=15, num_heads=4",
    ),
    "rank negative": (
        lambda: L.DietEncoder(1, 3, 23, rank=-2),
        "`rank` must be a positive integer. ... Received: rank=-2",
    ),
    "proj negative": (
        lambda: L.DietEncoder(1, 3, 23, projection_dim=-4, segment_encoding="none"),
        "`projection_dim` must be a positive integer. ... Received: projection_dim=-4",
    ),
    "segs str": (
        lambda: L.DietEncoder(1, 3, 23, num_segments="2"),
        "`num_segments` must be a positive integer. ... Received: num_segments='2'",
    ),
    "x long": (
        e(x=np.zeros((2, 10, 15), "float32")),
        "The sequence is longer than ... Received: length=10, max_sequence_length=9",
    ),
    "x int": (
        e(x=np.ones((2, 7, 15), int)),
        "`inputs` must be floating point numbers. ... Received: dtype=int",
    ),
    "segments shape": (
        e(segment_ids=np.zeros((2, 6), int)),
        "`segment_ids` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "segments out of range": (
        e(segment_ids=np.full((2, 7), 2)),
        "`segment_ids` must be integers in [0, ... Received: ids from 2 to 2",
    ),
    "segments fractional": (
        e(segment_ids=np.full((2, 7), 0.5)),
        "`segment_ids` must be integers in [0, ... Received: ids from 0.5 to 0.5",
    ),
    "segments list": (
        e(segment_ids=[[0] * 7] * 2),
        "`segment_ids` must have the shape (batch_size, length) of ... Received: list",
    ),
    "segments 1D": (
        e(segment_ids=np.zeros(7, int)),
        "`segment_ids` must have the shape (batch_size, length) ... Received: shape=(7,)",
    ),
    "segments 3D": (
        e(segment_ids=np.zeros((2, 7, 1), int)),
        "`segment_ids` must have the shape (batch_size, ... Received: shape=(2, 7, 1)",
    ),
    "segments ignored": (
        e(enclin, segment_ids=np.zeros((2, 7), int)),
        "`segment_ids` would be ignored. ... Received: segment_ids with",
    ),
    "segments in out of range": (
        e(encin, segment_ids=np.full((2, 7), 2)),
        "`segment_ids` must be integers in [0, ... Received: ids from 2 to 2",
    ),
    "segments str": (
        e(segment_ids="a"),
        "`segment_ids` must have the shape (batch_size, length) of the ... Received: str",
    ),
    "segments scalar": (
        e(segment_ids=0),
        "`segment_ids` must have the shape (batch_size, length) of the ... Received: int",
    ),
    "segments (1,T)": (
        e(segment_ids=np.zeros((1, 7), int)),
        "`segment_ids` must have the shape (batch_size, ... Received: shape=(1, 7)",
    ),
    "padding mask shape": (
        e(padding_mask=np.ones((2, 6), bool)),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "padding mask batch": (
        e(padding_mask=np.ones((3, 7), bool)),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(3, 7)",
    ),
    "padding mask additive": (
        e(padding_mask=np.where(np.arange(7) < 3, 0.0, -1000000000.0)[None].repeat(2, 0)),
        "`padding_mask` must be True or 1 ... Received: values from -1000000000.0 to 0.0",
    ),
    "padding mask fractional": (
        e(padding_mask=np.full((2, 7), 0.5)),
        "`padding_mask` must be True or 1 for ... Received: values from 0.5 to 0.5",
    ),
    "padding mask 3D": (
        e(padding_mask=np.ones((2, 7, 7), bool)),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(2, 7, 7)",
    ),
    "padding mask 4D": (
        e(padding_mask=np.ones((2, 1, 1, 7), bool)),
        "`padding_mask` must have the shape ... Received: shape=(2, 1, 1, 7)",
    ),
    "padding mask 1D": (
        e(padding_mask=np.ones(7, bool)),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(7,)",
    ),
    "padding mask (B,1)": (
        e(padding_mask=np.ones((2, 1), bool)),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(2, 1)",
    ),
    "padding mask nan": (
        e(padding_mask=np.full((2, 7), np.nan)),
        "`padding_mask` must be True or 1 for ... Received: values from nan to nan",
    ),
    "padding mask text": (
        e(padding_mask="x"),
        "`padding_mask` must have the shape (batch_size, length), ... Received: shape=()",
    ),
    "padding mask lengths": (
        e(padding_mask=np.array([3, 7])),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(2,)",
    ),
    "padding mask twos": (
        e(padding_mask=np.full((2, 7), 2)),
        "`padding_mask` must be True or 1 for tokens to ... Received: values from 2 to 2",
    ),
    "attention mask shape": (
        e(attention_mask=np.ones((2, 7, 6), bool)),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=(2, 7, 6)",
    ),
    "attention mask additive": (
        e(attention_mask=np.full((2, 7, 7), -1000000000.0)),
        "`attention_mask` must be True or 1 ... Received: values from -1000000000.0 to",
    ),
    "attention mask 2D": (
        e(attention_mask=np.ones((2, 7), bool)),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=(2, 7)",
    ),
    "attention mask batch": (
        e(attention_mask=np.ones((5, 7, 7), bool)),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=(5, 7, 7)",
    ),
    "attention mask lin": (
        e(enclin, attention_mask=np.ones((2, 7, 7), bool)),
        "`attention_mask` is not supported with ... Received: attention_mask with",
    ),
    "attention mask str": (
        e(attention_mask="causal"),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=()",
    ),
    "causal lin": (
        e(enclin, use_causal_mask=True),
        "`use_causal_mask` is not supported with ... Received: use_causal_mask with",
    ),
    "causal str": (
        e(use_causal_mask="no"),
        "`use_causal_mask` must be one of False, True. ... Received: use_causal_mask='no'",
    ),
    "hook str": (
        e(attention_hook="x"),
        "`attention_hook` must be a `keras_diet.layers.AttentionHook`. ... Received: str",
    ),
    "lin padding mask shape": (
        e(enclin, padding_mask=np.ones((2, 6), bool)),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "lin padding mask additive": (
        e(enclin, padding_mask=np.full((2, 7), -1000000000.0)),
        "`padding_mask` must be True or 1 for ... Received: values from -1000000000.0 to",
    ),
    "block padding mask shape": (
        e(blk, padding_mask=np.ones((2, 6), bool)),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "block bias list": (
        e(blk, attention_bias=[[0.0]]),
        "`attention_bias` must be a tensor or a bias layer. ... Received: list",
    ),
    "block bias shape": (
        e(blk, attention_bias=np.zeros((1, 4, 7, 7), "float32")),
        "`attention_bias` must be broadcastable to the ... Received: shape=(1, 4, 7, 7)",
    ),
    "block padding mask additive": (
        e(blk, padding_mask=np.full((2, 7), -1000000000.0)),
        "`padding_mask` must be True or 1 for ... Received: values from -1000000000.0 to",
    ),
    "block heads": (
        lambda: L.BiasedTransformerEncoder(23, 3, self_attention=L.BiasedMultiHeadAttention(5, 3)),
        "`num_heads` must be equal to ... Received: num_heads=3,",
    ),
    "block dropout": (
        lambda: L.BiasedTransformerEncoder(23, 3, dropout=3),
        "`dropout` must be a number in [0, 1]. ... Received: dropout=3",
    ),
    "block attention str": (
        lambda: L.BiasedTransformerEncoder(23, 3, self_attention="x"),
        "`self_attention` must be an attention layer or ... Received: self_attention='x'",
    ),
    "block mask additive": (
        e(blk, attention_mask=np.full((2, 7, 7), -1000000000.0)),
        "`attention_mask` must be True or 1 ... Received: values from -1000000000.0 to",
    ),
    "block epsilon": (
        lambda: L.BiasedTransformerEncoder(23, 3, layer_norm_epsilon=-1),
        "`layer_norm_epsilon` must be a positive, ... Received: layer_norm_epsilon=-1",
    ),
}


@cases(ENCODERS)
def test_encoders(sent, message):
    assert_refused(sent, message)
