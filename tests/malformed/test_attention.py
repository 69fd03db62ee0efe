"""Malformed biases, masks and arguments of attention layers."""

import keras
import numpy as np

from keras_diet import layers as L
from tests.malformed.refusals import assert_refused, cases

X = np.random.default_rng(0).normal(size=(2, 7, 15)).astype("float32")
Y = np.random.default_rng(1).normal(size=(2, 5, 15)).astype("float32")


def att(make=None, **arguments):
    layer = make or (lambda: L.BiasedMultiHeadAttention(3, 5))
    return lambda: layer()(**{"query": X, "value": X, **arguments})


def lin():
    return L.LinformerMultiHeadAttention(3, 5, 7, 4)


def rel():
    return L.RelativeMultiHeadAttention(3, 5, 4)


bias = np.zeros((1, 3, 7, 7), "float32")
q7 = np.zeros((1, 7, 3, 4), "float32")


ATTENTION = {
    "heads 0": (
        lambda: L.BiasedMultiHeadAttention(0, 5),
        "Received an invalid value for argument `num_heads`, ... Received: num_heads=0",
    ),
    "heads str": (
        lambda: L.BiasedMultiHeadAttention("3", 5),
        "Received an invalid value for argument `num_heads`, ... Received: num_heads=3",
    ),
    "key_dim negative": (
        lambda: L.BiasedMultiHeadAttention(3, -5),
        "Received an invalid value for argument `key_dim`, ... Received: key_dim=-5",
    ),
    "key_dim float": (
        lambda: L.BiasedMultiHeadAttention(3, 2.5)(X, X),
        "Received an invalid value for argument `key_dim`, ... Received: key_dim=2.5",
    ),
    "scale 0": (
        lambda: L.BiasedMultiHeadAttention(3, 5, scale=0),
        "`scale` must be a positive, finite number. ... Received: scale=0",
    ),
    "scale negative": (
        lambda: L.BiasedMultiHeadAttention(3, 5, scale=-1.0),
        "`scale` must be a positive, finite number. ... Received: scale=-1.0",
    ),
    "scale nan": (
        lambda: L.BiasedMultiHeadAttention(3, 5, scale=float("nan")),
        "`scale` must be a positive, finite number. ... Received: scale=nan",
    ),
    "dropout": (
        lambda: L.BiasedMultiHeadAttention(3, 5, dropout=1.5),
        "`dropout` must be a number in [0, 1]. ... Received: dropout=1.5",
    ),
    "dropout str": (
        lambda: L.BiasedMultiHeadAttention(3, 5, dropout="0.1"),
        "`dropout` must be a number in [0, 1]. ... Received: dropout='0.1'",
    ),
    "value_dim 0": (
        lambda: L.BiasedMultiHeadAttention(3, 5, value_dim=0),
        "Received an invalid value for argument `value_dim`, ... Received: value_dim=0",
    ),
    "value_dim negative": (
        lambda: L.BiasedMultiHeadAttention(3, 5, value_dim=-1)(X, X),
        "Received an invalid value for argument `value_dim`, ... Received: value_dim=-1",
    ),
    "window 0": (
        lambda: L.BiasedMultiHeadAttention(3, 5, sliding_window=0),
        "`sliding_window` must be `None` or a positive ... Received: sliding_window=0",
    ),
    "window str": (
        lambda: L.BiasedMultiHeadAttention(3, 5, sliding_window="3"),
        "`sliding_window` must be `None` or a positive ... Received: sliding_window=3",
    ),
    "window negative": (
        lambda: L.BiasedMultiHeadAttention(3, 5, sliding_window=-2)(X, X),
        "`sliding_window` must be `None` or a positive ... Received: sliding_window=-2",
    ),
    "bias int": (
        att(attention_bias=np.zeros((7, 7), "int32")),
        "`attention_bias` must be a floating point tensor that ... Received: dtype=int32",
    ),
    "bias bool": (
        att(attention_bias=np.ones((7, 7), bool)),
        "`attention_bias` must be a floating point tensor that ... Received: dtype=bool",
    ),
    "bias heads": (
        att(attention_bias=np.zeros((1, 4, 7, 7), "float32")),
        "`attention_bias` must be broadcastable to the ... Received: shape=(1, 4, 7, 7)",
    ),
    "bias batch": (
        att(attention_bias=np.zeros((5, 3, 7, 7), "float32")),
        "`attention_bias` must be broadcastable to the ... Received: shape=(5, 3, 7, 7)",
    ),
    "bias keys": (
        att(attention_bias=np.zeros((7, 6), "float32")),
        "`attention_bias` must be broadcastable to the ... Received: shape=(7, 6)",
    ),
    "bias 5D": (
        att(attention_bias=np.zeros((1, 1, 1, 7, 7), "float32")),
        "`attention_bias` must be broadcastable to ... Received: shape=(1, 1, 1, 7, 7)",
    ),
    "bias (B,T,S)": (
        att(attention_bias=np.zeros((2, 7, 7), "float32")),
        "`attention_bias` must be broadcastable to the ... Received: shape=(2, 7, 7)",
    ),
    "bias str": (
        att(attention_bias="alibi"),
        "`attention_bias` must be a tensor or a bias layer. ... Received: str",
    ),
    "bias function": (
        att(attention_bias=lambda q, k: 0),
        "`attention_bias` must be a tensor or a bias layer. ... Received: function",
    ),
    "bias class": (
        att(attention_bias=L.AlibiPositionBias),
        "`attention_bias` must be a tensor or a bias layer. ... Received: type",
    ),
    "bias number": (
        att(attention_bias=0.5),
        "`attention_bias` must be a tensor or a bias layer. ... Received: float",
    ),
    "bias layer heads": (
        att(attention_bias=L.AlibiPositionBias(5)),
        "`attention_bias` must have scores ... Received: a bias layer with num_heads=5",
    ),
    "bias layer short": (
        att(attention_bias=L.RelativePositionBias(3, 4)),
        "The query is longer than `max_length` ... Received: length=7, max_length=4",
    ),
    "bias list of arrays": (
        att(attention_bias=[bias, bias]),
        "`attention_bias` must be a tensor or a bias layer. ... Received: list",
    ),
    "bias tuple": (
        att(attention_bias=(bias,)),
        "`attention_bias` must be a tensor or a bias layer. ... Received: tuple",
    ),
    "bias complex": (
        att(attention_bias=bias.astype("complex64")),
        "`attention_bias` must be a floating point tensor ... Received: dtype=complex64",
    ),
    "features one": (
        att(attention_features=(q7,)),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "features int": (
        att(attention_features=(q7.astype(int), q7.astype(int))),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "features rank": (
        att(attention_features=(q7, q7[..., :3])),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "features lists": (
        att(attention_features=(q7.tolist(), q7.tolist())),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "features array": (
        att(attention_features=q7),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "features None in": (
        att(attention_features=(q7, None)),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "features 3D": (
        att(attention_features=(q7[0], q7[0])),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "features str": (
        att(attention_features="x"),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "mask float": (
        att(attention_mask=np.full((2, 7, 7), -1000000000.0, "float32")),
        "`attention_mask` must be True or 1 ... Received: values from -1000000000.0 to",
    ),
    "mask fractional": (
        att(attention_mask=np.full((2, 7, 7), 0.5, "float32")),
        "`attention_mask` must be True or 1 for ... Received: values from 0.5 to 0.5",
    ),
    "mask twos": (
        att(attention_mask=np.full((2, 7, 7), 2)),
        "`attention_mask` must be True or 1 for tokens ... Received: values from 2 to 2",
    ),
    "mask keys": (
        att(attention_mask=np.ones((2, 7, 6), bool)),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=(2, 7, 6)",
    ),
    "mask 2D (B,T)": (
        att(attention_mask=np.ones((2, 7), bool)),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=(2, 7)",
    ),
    "mask 5D": (
        att(attention_mask=np.ones((1, 1, 2, 7, 7), bool)),
        "`attention_mask` must have the shape ... Received: shape=(1, 1, 2, 7, 7)",
    ),
    "mask 4D heads": (
        att(attention_mask=np.ones((2, 4, 7, 7), bool)),
        "`attention_mask` must have the shape ... Received: shape=(2, 4, 7, 7)",
    ),
    "mask batch": (
        att(attention_mask=np.ones((5, 7, 7), bool)),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=(5, 7, 7)",
    ),
    "mask str": (
        att(attention_mask="causal"),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=()",
    ),
    "mask nan": (
        att(attention_mask=np.full((2, 7, 7), np.nan)),
        "`attention_mask` must be True or 1 for ... Received: values from nan to nan",
    ),
    "value_mask length": (
        att(value_mask=np.ones((2, 6), bool)),
        "`value_mask` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "value_mask batch": (
        att(value_mask=np.ones((5, 7), bool)),
        "`value_mask` must have the shape (batch_size, ... Received: shape=(5, 7)",
    ),
    "value_mask 3D": (
        att(value_mask=np.ones((2, 7, 7), bool)),
        "`value_mask` must have the shape (batch_size, ... Received: shape=(2, 7, 7)",
    ),
    "value_mask additive": (
        att(value_mask=np.where(np.arange(7) < 3, 0, -1000000000.0)[None].repeat(2, 0)),
        "`value_mask` must be True or 1 ... Received: values from -1000000000.0 to 0.0",
    ),
    "value_mask 1D": (
        att(value_mask=np.ones(7, bool)),
        "`value_mask` must have the shape (batch_size, length), ... Received: shape=(7,)",
    ),
    "key_mask length": (
        att(key_mask=np.ones((2, 3), bool)),
        "`key_mask` must have the shape (batch_size, length), ... Received: shape=(2, 3)",
    ),
    "query 2D": (
        att(query=X[0]),
        "`query` and `value` must have ... Received: query of dtype float32 and shape",
    ),
    "query int": (
        att(query=X.astype(int)),
        "`query` and `value` must have ... Received: query of dtype int",
    ),
    "value batch": (
        att(value=np.zeros((3, 7, 15), "float32")),
        "`query` and `value` must have ... Received: query of dtype float32 and shape",
    ),
    "key length": (
        att(key=Y),
        "All dimensions of `value` and `key`, ... Received: value_shape=(2, 7, 15) and",
    ),
    "query complex": (
        att(query=X.astype("complex64")),
        "`query` and `value` must have ... Received: query of dtype complex64 and",
    ),
    "start negative": (
        att(start_index=-1, attention_bias=L.RelativePositionBias(3, 9)),
        "`start_index` must not be negative. ... Received: start_index=-1",
    ),
    "start str": (
        att(start_index="3", attention_bias=L.RelativePositionBias(3, 9)),
        "`start_index` must be a single integer. ... Received: start_index=3",
    ),
    "start float": (
        att(start_index=1.5, attention_bias=L.RelativePositionBias(3, 9)),
        "`start_index` must be a single integer. ... Received: start_index=1.5",
    ),
    "start too far": (
        att(start_index=3, attention_bias=L.RelativePositionBias(3, 9)),
        "The query is longer than `max_length` ... Received: length=10, max_length=9",
    ),
    "start float no bias causal": (
        att(start_index=1.5, use_causal_mask=True),
        "`start_index` must be a single integer. ... Received: start_index=1.5",
    ),
    "start negative causal": (
        att(start_index=-3, use_causal_mask=True),
        "`start_index` must not be negative. ... Received: start_index=-3",
    ),
    "start vector": (
        att(start_index=np.array([1, 2]), attention_bias=L.RelativePositionBias(3, 9)),
        "`start_index` must be a single integer. ... Received: start_index=",
    ),
    "block 0": (
        att(block_size=0),
        "`block_size` must be a positive integer. ... Received: block_size=0",
    ),
    "block float": (
        att(block_size=2.5),
        "`block_size` must be a positive integer. ... Received: block_size=2.5",
    ),
    "block scores": (
        att(block_size=2, return_attention_scores=True),
        "`block_size` needs one sequence ... Received: block_size=2, one sequence axis,",
    ),
    "causal str": (
        att(use_causal_mask="yes"),
        "`use_causal_mask` must be one of False, ... Received: use_causal_mask='yes'",
    ),
    "terms dict": (
        att(score_terms={"bias": bias}),
        "`score_terms` must be a `keras_diet.layers.ScoreTerms`. ... Received: dict",
    ),
    "terms and bias": (
        att(score_terms=L.ScoreTerms(), attention_bias=bias),
        "`score_terms` replaces the arguments attention_bias. ... Received: both",
    ),
    "terms mask": (
        att(score_terms=L.ScoreTerms(attention_mask=np.ones((2, 7, 6), bool))),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=(2, 7, 6)",
    ),
    "terms list bias": (
        att(score_terms=L.ScoreTerms(bias=[[0.0]])),
        "`attention_bias` must be a tensor or a bias layer. ... Received: list",
    ),
    "terms padding shape": (
        att(score_terms=L.ScoreTerms(padding_mask=np.ones((2, 6), bool))),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "hook str": (
        att(attention_hook="hook"),
        "`attention_hook` must be a `keras_diet.layers.AttentionHook`. ... Received: str",
    ),
    "hook fn": (
        att(attention_hook=lambda q: q),
        "`attention_hook` must be a ... Received: function",
    ),
    "terms bias shape": (
        att(score_terms=L.ScoreTerms(bias=np.zeros((1, 4, 7, 7), "float32"))),
        "`attention_bias` must be broadcastable to the ... Received: shape=(1, 4, 7, 7)",
    ),
    "terms features shape": (
        att(score_terms=L.ScoreTerms(features=((q7, q7[:, :5]),))),
        "`attention_features` must be a pair of floating point tensors: query features",
    ),
    "lin proj 0": (
        lambda: L.LinformerMultiHeadAttention(3, 5, 7, 0),
        "`projection_dim` must be a positive integer. ... Received: projection_dim=0",
    ),
    "lin len str": (
        lambda: L.LinformerMultiHeadAttention(3, 5, "7", 4),
        "`sequence_length` must be a positive integer. ... Received: sequence_length='7'",
    ),
    "lin mask": (
        att(lin, attention_mask=np.ones((2, 7, 7), bool)),
        "`attention_mask` is not supported by ... Received: attention_mask=<class",
    ),
    "lin causal": (
        att(lin, use_causal_mask=True),
        "`use_causal_mask` is not supported by ... Received: use_causal_mask=True",
    ),
    "lin longer": (
        att(lin, value=np.zeros((2, 8, 15), "float32")),
        "The key is longer than ... Received: length=8, sequence_length=7",
    ),
    "lin bias keys": (
        att(lin, attention_bias=bias),
        "`attention_bias` must be broadcastable to the ... Received: shape=(1, 3, 7, 7)",
    ),
    "lin value_mask": (
        att(lin, value_mask=np.ones((2, 6), bool)),
        "`value_mask` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "lin value_mask additive": (
        att(lin, value_mask=np.full((2, 7), -1000000000.0)),
        "`value_mask` must be True or 1 for ... Received: values from -1000000000.0 to",
    ),
    "lin 4D": (
        att(lin, query=X[:, None], value=X[:, None]),
        "`query` and `value` must have the ... Received: query_shape=(2, 1, 7, 15),",
    ),
    "lin window": (
        lambda: L.LinformerMultiHeadAttention(3, 5, 7, 4, sliding_window=2),
        "`sliding_window` is not supported by Linformer, ... Received: sliding_window=2",
    ),
    "lin list": (
        att(lin, attention_bias=[[0.0]]),
        "`attention_bias` must be a tensor or a bias layer. ... Received: list",
    ),
    "rel 0": (
        lambda: L.RelativeMultiHeadAttention(3, 5, 0),
        "`max_distance` must be a positive integer. ... Received: max_distance=0",
    ),
    "rel None": (
        lambda: L.RelativeMultiHeadAttention(3, 5, None),
        "`max_distance` must be a positive integer. ... Received: max_distance=None",
    ),
    "rotary odd": (
        lambda: L.RotaryMultiHeadAttention(3, 5),
        "`key_dim` must be even, because rotary ... Received: key_dim=5",
    ),
    "rotary wavelength 0": (
        lambda: L.RotaryMultiHeadAttention(3, 4, max_wavelength=0),
        "`max_wavelength` must be a positive ... Received: max_wavelength=0",
    ),
    "rotary axes": (
        lambda: L.RotaryMultiHeadAttention(3, 4, attention_axes=(2,)),
        "`attention_axes` must be left at `None` in ... Received: attention_axes=(2,)",
    ),
    "transformer xl block": (
        att(lambda: L.TransformerXLMultiHeadAttention(3, 5), block_size=2),
        "This layer computes attention for all queries at ... Received: block_size=2,",
    ),
    "transformer xl axes": (
        lambda: L.TransformerXLMultiHeadAttention(3, 5, attention_axes=(2,)),
        "`attention_axes` must be left at `None` in ... Received: attention_axes=(2,)",
    ),
    "rel flash": (
        lambda: L.RelativeMultiHeadAttention(3, 5, 4, flash_attention=True),
        "Flash attention does not support value ... Received: flash_attention=True with",
    ),
    "rel block": (
        att(rel, block_size=2),
        "This layer computes attention for all queries at ... Received: block_size=2,",
    ),
    "bias of Keras": (
        att(attention_bias=keras.layers.Dense(7)),
        "`attention_bias` must be a bias layer, which returns ... Received: <Dense name=",
    ),
    "plan text": (
        att(attention_plan="scores"),
        "`attention_plan` must be an `AttentionPlan` ... Received: attention_plan='scores'",
    ),
    "rel plan dict": (
        att(rel, attention_plan={"program": "scores"}),
        "`attention_plan` must be an `AttentionPlan` ... Received: attention_plan={'program'",
    ),
    "lin plan text": (
        att(lin, attention_plan="scores"),
        "`attention_plan` must be an `AttentionPlan` ... Received: attention_plan='scores'",
    ),
    "rel axes": (
        lambda: L.RelativeMultiHeadAttention(3, 5, 4, attention_axes=(2,)),
        "`attention_axes` must be left at `None` in ... Received: attention_axes=(2,)",
    ),
    "rel bias": (
        att(rel, attention_bias=np.zeros((7, 6), "float32")),
        "`attention_bias` must be broadcastable to the ... Received: shape=(7, 6)",
    ),
    "rel mask": (
        att(rel, attention_mask=np.ones((2, 7, 6), bool)),
        "`attention_mask` must have the shape (batch_size, ... Received: shape=(2, 7, 6)",
    ),
}


@cases(ATTENTION)
def test_attention(sent, message):
    assert_refused(sent, message)
