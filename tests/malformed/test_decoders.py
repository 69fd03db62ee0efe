"""Malformed inputs, masks, memories and arguments of `DietDecoder` and its blocks."""

import functools

import numpy as np

from keras_diet import layers as L
from tests.malformed.refusals import assert_refused, cases

X = np.random.default_rng(0).normal(size=(2, 5, 15)).astype("float32")
SOURCE = np.random.default_rng(1).normal(size=(2, 7, 13)).astype("float32")


def built(layer):
    layer(X, SOURCE)
    return layer


dec = functools.cache(lambda: built(L.DietDecoder(1, 3, 23, max_sequence_length=9)))
blk = functools.cache(lambda: built(L.BiasedTransformerDecoder(23, 3)))


def d(make=dec, x=X, source=SOURCE, **arguments):
    return lambda: make()(x, source, **arguments)


def step(make=dec, x=X[:, :2], start_index=1, **arguments):
    def call():
        memory = make().start_memory(2, 6, SOURCE)
        return make()(x, memory=memory, start_index=start_index, **arguments)

    return call


def start(make=dec, source=SOURCE, **arguments):
    return lambda: make().start_memory(2, 6, source, **arguments)


ADDITIVE = -1000000000.0


DECODERS = {
    "dropout": (
        lambda: L.DietDecoder(1, 3, 23, dropout=1.5),
        "`dropout` must be a number in [0, 1]. ... Received: dropout=1.5",
    ),
    "epsilon": (
        lambda: L.DietDecoder(1, 3, 23, layer_norm_epsilon=-1.0),
        "`layer_norm_epsilon` must be a positive, ... Received: layer_norm_epsilon=-1.0",
    ),
    "norm str": (
        lambda: L.DietDecoder(1, 3, 23, normalize_first="no"),
        "`normalize_first` must be one of False, True. ... Received: normalize_first='no'",
    ),
    "cross str": (
        lambda: L.DietDecoder(1, 3, 23, cross_attention_positions="no"),
        "`cross_attention_positions` must be one of ... cross_attention_positions='no'",
    ),
    "bias layer heads": (
        lambda: L.DietDecoder(1, 3, 23, position_encoding=L.AlibiPositionBias(5)),
        "`position_encoding` must have scores for 3 heads. ... num_heads=5",
    ),
    "x int": (
        d(x=np.ones((2, 5, 15), int)),
        "`inputs` must be floating point numbers. ... Received: dtype=int",
    ),
    "x 2D": (d(x=X[0]), "expected ndim=3, found ndim=2"),
    "x width": (d(x=X[..., :14]), "expected axis -1 of input shape to have value 15"),
    "source int": (
        d(source=np.ones((2, 7, 13), int)),
        "`encoder_outputs` must be floating point numbers of shape ... Received: dtype=int",
    ),
    "source 2D": (
        d(source=SOURCE[0]),
        "`encoder_outputs` must be floating point numbers of shape ... shape=(7, 13)",
    ),
    "source batch": (
        d(source=np.zeros((3, 7, 13), "float32")),
        "`encoder_outputs` must have the batch size of the inputs, 2. ... shape=(3, 7, 13)",
    ),
    "padding mask shape": (
        d(padding_mask=np.ones((2, 6), bool)),
        "`padding_mask` must have the shape (batch_size, length), ... Received: shape=(2, 6)",
    ),
    "padding mask additive": (
        d(padding_mask=np.full((2, 5), ADDITIVE)),
        "`padding_mask` must be True or 1 for ... Received: values from -1000000000.0 to",
    ),
    "source mask shape": (
        d(encoder_padding_mask=np.ones((2, 5), bool)),
        "`encoder_padding_mask` must have the shape ... Received: shape=(2, 5)",
    ),
    "source mask additive": (
        d(encoder_padding_mask=np.full((2, 7), ADDITIVE)),
        "`encoder_padding_mask` must be True or 1 for ... Received: values from -1000000000.0",
    ),
    "step x int": (
        step(x=np.ones((2, 2, 15), int)),
        "`inputs` must be floating point numbers. ... Received: dtype=int",
    ),
    "step batch": (
        step(x=X[:1, :2]),
        "`inputs` must have one target for each of the 2 targets of the memory. ... (1, 2, 15)",
    ),
    "step start float": (
        step(start_index=1.5),
        "`start_index` must be a single integer. ... Received: start_index=1.5",
    ),
    "step start vector": (
        step(start_index=np.array([1, 2])),
        "`start_index` must be a single integer. ... Received: start_index=",
    ),
    "step start str": (
        step(start_index="1"),
        "`start_index` must be a single integer. ... Received: start_index=1",
    ),
    "step padding mask of the inputs": (
        step(padding_mask=np.ones((2, 2), bool)),
        "`padding_mask` must have the shape (batch_size, length), ... Received: shape=(2, 2)",
    ),
    "start source 2D": (
        start(source=SOURCE[0]),
        "`encoder_outputs` must be floating point numbers of shape ... shape=(7, 13)",
    ),
    "start source int": (
        start(source=np.ones((2, 7, 13), int)),
        "`encoder_outputs` must be floating point numbers of shape ... Received: dtype=int",
    ),
    "start source None": (
        start(source=None),
        "`encoder_outputs` must be floating point numbers of shape ... Received: NoneType",
    ),
    "start mask shape": (
        start(encoder_padding_mask=np.ones((2, 6), bool)),
        "`encoder_padding_mask` must have the shape ... Received: shape=(2, 6)",
    ),
    "start mask additive": (
        start(encoder_padding_mask=np.full((2, 7), ADDITIVE)),
        "`encoder_padding_mask` must be True or 1 for ... Received: values from -1000000000.0",
    ),
    "block dropout": (
        lambda: L.BiasedTransformerDecoder(23, 3, dropout=3),
        "`dropout` must be a number in [0, 1]. ... Received: dropout=3",
    ),
    "block epsilon": (
        lambda: L.BiasedTransformerDecoder(23, 3, layer_norm_epsilon=-1),
        "`layer_norm_epsilon` must be a positive, ... Received: layer_norm_epsilon=-1",
    ),
    "block attention str": (
        lambda: L.BiasedTransformerDecoder(23, 3, cross_attention="x"),
        "`cross_attention` must derive from `BiasedMultiHeadAttention`, ... cross_attention=x",
    ),
    "block heads": (
        lambda: L.BiasedTransformerDecoder(23, 3, cross_attention=L.BiasedMultiHeadAttention(5, 3)),
        "`num_heads` must be equal to `cross_attention.num_heads`. ... num_heads=3,",
    ),
    "block x 2D": (d(blk, x=X[0]), "expected ndim=3, found ndim=2"),
    "block source batch": (
        d(blk, source=np.zeros((3, 7, 13), "float32")),
        "`encoder_outputs` must have the batch size of the inputs, 2. ... shape=(3, 7, 13)",
    ),
    "block bias shape": (
        d(blk, attention_bias=np.zeros((1, 4, 5, 5), "float32")),
        "`attention_bias` must be broadcastable to the ... Received: shape=(1, 4, 5, 5)",
    ),
    "block cross bias shape": (
        d(blk, cross_attention_bias=np.zeros((1, 3, 5, 5), "float32")),
        "`attention_bias` must be broadcastable to the ... Received: shape=(1, 3, 5, 5)",
    ),
    "block bias list": (
        d(blk, cross_attention_bias=[[0.0]]),
        "`attention_bias` must be a tensor or a bias layer. ... Received: list",
    ),
    "block padding mask additive": (
        d(blk, padding_mask=np.full((2, 5), ADDITIVE)),
        "`padding_mask` must be True or 1 for ... Received: values from -1000000000.0 to",
    ),
    "block source mask shape": (
        d(blk, encoder_padding_mask=np.ones((2, 5), bool)),
        "`encoder_padding_mask` must have the shape ... Received: shape=(2, 5)",
    ),
    "block terms dict": (
        d(blk, score_terms={}),
        "`score_terms` must be a `keras_diet.layers.ScoreTerms`. ... Received: dict",
    ),
    "block cross terms dict": (
        d(blk, cross_score_terms={}),
        "`cross_score_terms` must be a `keras_diet.layers.ScoreTerms`. ... Received: dict",
    ),
    "block cross terms and mask": (
        d(blk, cross_score_terms=L.ScoreTerms(), encoder_padding_mask=np.ones((2, 7), bool)),
        "`cross_score_terms` replaces the arguments encoder_padding_mask. ... Received: both",
    ),
    "block terms mask": (
        d(blk, score_terms=L.ScoreTerms(padding_mask=np.ones((2, 6), bool))),
        "`padding_mask` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "block step batch": (
        step(blk, x=X[:1, :2]),
        "`inputs` must have one target for each of the 2 targets of the memory. ... (1, 2, 15)",
    ),
    "block step start float": (
        step(blk, start_index=1.5),
        "`start_index` must be a single integer. ... Received: start_index=1.5",
    ),
    "block step source mask shape": (
        step(blk, encoder_padding_mask=np.ones((2, 6), bool)),
        "`encoder_padding_mask` must have the shape ... Received: shape=(2, 6)",
    ),
    "block start source int": (
        start(blk, source=np.ones((2, 7, 13), int)),
        "`encoder_outputs` must be floating point numbers of shape ... Received: dtype=int",
    ),
    "input encoding start": (
        lambda: L.InputEncoding(9)(X, start_index=-1),
        "`start_index` must not be negative. ... Received: start_index=-1",
    ),
    "input encoding start float": (
        lambda: L.InputEncoding(9)(X, start_index=1.5),
        "`start_index` must be a single integer. ... Received: start_index=1.5",
    ),
    "input encoding end": (
        lambda: L.InputEncoding(9)(X, start_index=5),
        "The sequence is longer than `max_sequence_length` ... Received: length=10",
    ),
}


@cases(DECODERS)
def test_decoders(sent, message):
    assert_refused(sent, message)
