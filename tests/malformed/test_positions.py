"""Malformed positions, segments and arguments of bias layers."""

import numpy as np
from keras import ops

from keras_diet import layers as L
from tests.malformed.refusals import assert_refused, cases

X = np.random.default_rng(0).normal(size=(2, 7, 15)).astype("float32")
Y = np.random.default_rng(1).normal(size=(2, 5, 15)).astype("float32")


BIASES = {
    "abs rank 0": (
        lambda: L.AbsolutePositionBias(3, 9, 0),
        "`rank` must be a positive integer. ... Received: rank=0",
    ),
    "abs rank None": (
        lambda: L.AbsolutePositionBias(3, 9, None),
        "`rank` must be a positive integer. ... Received: rank=None",
    ),
    "abs len float": (
        lambda: L.AbsolutePositionBias(3, 9.0, 2),
        "`max_length` must be a positive integer. ... Received: max_length=9.0",
    ),
    "abs key_length 0": (
        lambda: L.AbsolutePositionBias(3, 9, 2, key_length=0),
        "`key_length` must be a positive integer. ... Received: key_length=0",
    ),
    "abs heads": (
        lambda: L.AbsolutePositionBias(-3, 9, 2),
        "`num_heads` must be a positive integer. ... Received: num_heads=-3",
    ),
    "abs share str": (
        lambda: L.AbsolutePositionBias(3, 9, 2, share_heads="yes"),
        "`share_heads` must be one of False, True. ... Received: share_heads='yes'",
    ),
    "abs too long": (
        lambda: L.AbsolutePositionBias(3, 5, 2)(X),
        "The query is longer than `max_length` ... Received: length=7, max_length=5",
    ),
    "abs start": (
        lambda: L.AbsolutePositionBias(3, 9, 2)(X, start_index=4),
        "The query is longer than `max_length` ... Received: length=11, max_length=9",
    ),
    "abs negative start": (
        lambda: L.AbsolutePositionBias(3, 9, 2)(X, start_index=-1),
        "`start_index` must not be negative. ... Received: start_index=-1",
    ),
    "abs key long": (
        lambda: L.AbsolutePositionBias(3, 9, 2, key_length=6)(X, X),
        "The key is longer than `key_length` allows. ... Received: length=7, key_length=6",
    ),
    "abs features start float": (
        lambda: L.AbsolutePositionBias(3, 9, 2).features(X, start_index=1.5),
        "`start_index` must be a single integer. ... Received: start_index=1.5",
    ),
    "abs start float": (
        lambda: L.AbsolutePositionBias(3, 9, 2)(X, start_index=1.5),
        "`start_index` must be a single integer. ... Received: start_index=1.5",
    ),
    "abs features negative": (
        lambda: L.AbsolutePositionBias(3, 9, 2).features(X, start_index=-1),
        "`start_index` must not be negative. ... Received: start_index=-1",
    ),
    "rel len 0": (
        lambda: L.RelativePositionBias(3, 0),
        "`max_length` must be a positive integer. ... Received: max_length=0",
    ),
    "rel too long": (
        lambda: L.RelativePositionBias(3, 5)(X),
        "The query is longer than `max_length` ... Received: length=7, max_length=5",
    ),
    "rel start array far": (
        lambda: L.RelativePositionBias(3, 9)(X, start_index=np.int64(5)),
        "The query is longer than `max_length` ... Received: length=12, max_length=9",
    ),
    "rel start tensor far": (
        lambda: L.RelativePositionBias(3, 9)(X, start_index=ops.convert_to_tensor(5)),
        "The query is longer than `max_length` ... Received: length=12, max_length=9",
    ),
    "rel start tensor negative": (
        lambda: L.RelativePositionBias(3, 9)(X, start_index=ops.convert_to_tensor(-2)),
        "`start_index` must not be negative. ... Received: start_index=-2",
    ),
    "rel start array 0d far": (
        lambda: L.RelativePositionBias(3, 9)(X, start_index=np.array(5)),
        "The query is longer than `max_length` ... Received: length=12, max_length=9",
    ),
    "rel start str": (
        lambda: L.RelativePositionBias(3, 9)(X, start_index="1"),
        "`start_index` must be a single integer. ... Received: start_index=1",
    ),
    "rel start None": (
        lambda: L.RelativePositionBias(3, 9)(X, start_index=None),
        "`start_index` must be a single integer. ... Received: start_index=None",
    ),
    "rel start True": (
        lambda: L.RelativePositionBias(3, 9)(X, start_index=True),
        "`start_index` must be a single integer. ... Received: start_index=True",
    ),
    "t5 buckets odd": (
        lambda: L.BucketedRelativePositionBias(3, num_buckets=7),
        "`num_buckets` must be at least ... Received: num_buckets=7, bidirectional=True",
    ),
    "t5 buckets 2": (
        lambda: L.BucketedRelativePositionBias(3, num_buckets=2),
        "`num_buckets` must be at least ... Received: num_buckets=2, bidirectional=True",
    ),
    "t5 max_distance": (
        lambda: L.BucketedRelativePositionBias(3, max_distance=8),
        "`max_distance` must be above 8, ... Received: max_distance=8, num_buckets=32",
    ),
    "t5 start negative": (
        lambda: L.BucketedRelativePositionBias(3)(X, start_index=-1),
        "`start_index` must not be negative. ... Received: start_index=-1",
    ),
    "t5 start float": (
        lambda: L.BucketedRelativePositionBias(3)(X, start_index=0.5),
        "`start_index` must be a single integer. ... Received: start_index=0.5",
    ),
    "t5 bidirectional str": (
        lambda: L.BucketedRelativePositionBias(3, bidirectional="no"),
        "`bidirectional` must be one of False, True. ... Received: bidirectional='no'",
    ),
    "alibi heads 0": (
        lambda: L.AlibiPositionBias(0),
        "`num_heads` must be a positive integer. ... Received: num_heads=0",
    ),
    "alibi heads float": (
        lambda: L.AlibiPositionBias(2.5),
        "`num_heads` must be a positive integer. ... Received: num_heads=2.5",
    ),
    "alibi max 0": (
        lambda: L.AlibiPositionBias(3, 0),
        "`max_length` must be a positive integer. ... Received: max_length=0",
    ),
    "alibi start float": (
        lambda: L.AlibiPositionBias(3)(X, start_index=0.5),
        "`start_index` must be a single integer. ... Received: start_index=0.5",
    ),
    "kerple heads 0": (
        lambda: L.KerplePositionBias(0),
        "`num_heads` must be a positive integer. ... Received: num_heads=0",
    ),
    "kerple kernel": (
        lambda: L.KerplePositionBias(3, kernel="linear"),
        "`kernel` must be one of 'log', 'power'. ... Received: kernel='linear'",
    ),
    "kerple max 0": (
        lambda: L.KerplePositionBias(3, max_length=0),
        "`max_length` must be a positive integer. ... Received: max_length=0",
    ),
    "kerple start negative": (
        lambda: L.KerplePositionBias(3)(X, start_index=-1),
        "`start_index` must not be negative. ... Received: start_index=-1",
    ),
    "sandwich heads float": (
        lambda: L.SandwichPositionBias(2.5),
        "`num_heads` must be a positive integer. ... Received: num_heads=2.5",
    ),
    "sandwich dim odd": (
        lambda: L.SandwichPositionBias(3, position_dim=7),
        "`position_dim` must be even, ... Received: position_dim=7",
    ),
    "sandwich dim 0": (
        lambda: L.SandwichPositionBias(3, position_dim=0),
        "`position_dim` must be a positive integer. ... Received: position_dim=0",
    ),
    "sandwich start float": (
        lambda: L.SandwichPositionBias(3)(X, start_index=0.5),
        "`start_index` must be a single integer. ... Received: start_index=0.5",
    ),
    "fire heads 0": (
        lambda: L.FirePositionBias(0),
        "`num_heads` must be a positive integer. ... Received: num_heads=0",
    ),
    "fire hidden float": (
        lambda: L.FirePositionBias(3, hidden_dim=2.5),
        "`hidden_dim` must be a positive integer. ... Received: hidden_dim=2.5",
    ),
    "fire threshold 0": (
        lambda: L.FirePositionBias(3, threshold=0),
        "`threshold` must be a positive, finite number. ... Received: threshold=0",
    ),
    "fire start negative": (
        lambda: L.FirePositionBias(3)(X, start_index=-1),
        "`start_index` must not be negative. ... Received: start_index=-1",
    ),
    "untied rel args": (
        lambda: L.UntiedPositionBias(3, 5, 9, 15, num_buckets=8),
        "`num_buckets` and `max_distance` ... Received: num_buckets=8, max_distance=None",
    ),
    "untied eps": (
        lambda: L.UntiedPositionBias(3, 5, 9, 15, layer_norm_epsilon=-1),
        "`layer_norm_epsilon` must be a positive, ... Received: layer_norm_epsilon=-1",
    ),
    "untied dim": (
        lambda: L.UntiedPositionBias(3, 5, 9, 0),
        "`position_dim` must be a positive integer. ... Received: position_dim=0",
    ),
    "untied too long": (
        lambda: L.UntiedPositionBias(3, 5, 5, 15)(X),
        "The query is longer than `max_length` ... Received: length=7, max_length=5",
    ),
    "untied eps str": (
        lambda: L.UntiedPositionBias(3, 5, 9, 15, layer_norm_epsilon="1e-3"),
        "`layer_norm_epsilon` must be a ... Received: layer_norm_epsilon='1e-3'",
    ),
    "segments num 0": (
        lambda: L.SegmentBias(3, 0),
        "`num_segments` must be a positive integer. ... Received: num_segments=0",
    ),
    "segments ids 2": (
        lambda: L.SegmentBias(3)(np.array([[0, 2]])),
        "`segment_ids` must be integers in [0, ... Received: ids from 0 to 2",
    ),
    "segments ids negative": (
        lambda: L.SegmentBias(3)(np.array([[0, -1]])),
        "`segment_ids` must be integers in [0, ... Received: ids from -1 to 0",
    ),
    "segments ids fractional": (
        lambda: L.SegmentBias(3)(np.array([[0, 0.5]])),
        "`segment_ids` must be integers in [0, ... Received: ids from 0.0 to 0.5",
    ),
    "segments key batch": (
        lambda: L.SegmentBias(3)(np.zeros((2, 7), int), np.zeros((3, 7), int)),
        "`key_segment_ids` must have the shape (batch_size, ... Received: shape=(3, 7)",
    ),
    "segments ids nan": (
        lambda: L.SegmentBias(3)(np.array([[0, np.nan]])),
        "`segment_ids` must be integers in [0, ... Received: ids from nan to nan",
    ),
    "segments key 3": (
        lambda: L.SegmentBias(3)(np.zeros((2, 7), int), np.full((2, 7), 3)),
        "`segment_ids` must be integers in [0, ... Received: ids from 3 to 3",
    ),
    "cached len": (
        lambda: L.CachedPositionBias(3, 0),
        "`max_length` must be a positive integer. ... Received: max_length=0",
    ),
    "input nothing": (
        lambda: L.InputEncoding(),
        "The layer has nothing to ... Received: None for all of `max_sequence_length`,",
    ),
    "input segments out of range": (
        lambda: L.InputEncoding(9, num_segments=2)(X, segment_ids=np.full((2, 7), 2)),
        "`segment_ids` must be integers in [0, ... Received: ids from 2 to 2",
    ),
    "input too long": (
        lambda: L.InputEncoding(5)(X),
        "The sequence is longer than ... Received: length=7, max_sequence_length=5",
    ),
    "input segments ignored": (
        lambda: L.InputEncoding(9)(X, segment_ids=np.zeros((2, 7), int)),
        "`segment_ids` would be ignored. ... Received: segment_ids with num_segments=None",
    ),
    "input segments shape": (
        lambda: L.InputEncoding(9, num_segments=2)(X, segment_ids=np.zeros((2, 6), int)),
        "`segment_ids` must have the shape (batch_size, ... Received: shape=(2, 6)",
    ),
    "input segments batch": (
        lambda: L.InputEncoding(9, num_segments=2)(X, segment_ids=np.zeros((3, 7), int)),
        "`segment_ids` must have the shape (batch_size, ... Received: shape=(3, 7)",
    ),
    "input pos str": (
        lambda: L.InputEncoding(position_embedding="sine"),
        "`position_embedding` must be a layer or ... Received: position_embedding='sine'",
    ),
    "input segments fractional": (
        lambda: L.InputEncoding(9, num_segments=2)(X, segment_ids=np.full((2, 7), 0.5)),
        "`segment_ids` must be integers in [0, ... Received: ids from 0.5 to 0.5",
    ),
    "input segments broadcast": (
        lambda: L.InputEncoding(9, num_segments=2)(X, segment_ids=np.zeros((1, 1), int)),
        "`segment_ids` must have the shape (batch_size, ... Received: shape=(1, 1)",
    ),
    "encoding sizes": (
        lambda: L.PositionEncoding(sharing_modes="none"),
        "`sharing_modes` must be a tuple of ... Received: sharing_modes='none' without a",
    ),
    "encoding bias": (
        lambda: L.PositionEncoding(bias="alibi"),
        "`sharing_modes` must be a tuple of ... Received: sharing_modes=() with a `bias`",
    ),
    "encoding sharing typo": (
        lambda: L.PositionEncoding(bias=lambda s, **k: None, sharing_modes=("layer",)),
        "`sharing_modes` must be a tuple ... Received: sharing_modes=('layer',) with a",
    ),
}


@cases(BIASES)
def test_biases(sent, message):
    assert_refused(sent, message)
