"""`DietEncoder` with custom bias layers."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet.layers import (
    AbsolutePositionBias,
)
from keras_diet.layers.attention import plan
from tests.helpers import assert_close, to_numpy
from tests.layers.diet_encoders import (
    BATCH,
    LENGTH,
    MAX_LENGTH,
    NUM_HEADS,
    NUM_LAYERS,
    PROJECTED,
    VALID,
    copy_weights,
    make_encoder,
    make_inputs,
)


class Slopes(keras.layers.Layer):
    """Scores `slope_h * (i - 2 j)` of query `i` and key `j`, which counts the calls of methods."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.num_calls = {"call": 0, "features": 0, "rows": 0}

    def build(self, query_shape, key_shape=None):
        self.slopes = self.add_weight(name="slopes", shape=(NUM_HEADS,))
        self.built = True

    def scores(self, query, key, start_index=0):
        i = ops.cast(ops.arange(ops.shape(query)[1]) + start_index, "float32")
        j = ops.cast(ops.arange(ops.shape(key)[1]), "float32")
        scores = ops.expand_dims(i, 1) - 2 * ops.expand_dims(j, 0)
        return ops.reshape(self.slopes, (1, NUM_HEADS, 1, 1)) * scores


class SlopesOfQuery(Slopes):
    """A bias layer with the smallest interface."""

    def call(self, query):
        self.num_calls["call"] += 1
        return self.scores(query, query)


class SlopesOfKey(Slopes):
    """A bias layer for keys that are not the queries."""

    def call(self, query, key):
        self.num_calls["call"] += 1
        return self.scores(query, key)


class SlopesAsFeatures(SlopesOfQuery):
    """A bias layer with scores of rank 2."""

    def features(self, query, key, start_index):
        self.num_calls["features"] += 1
        i = ops.cast(ops.arange(ops.shape(query)[1]) + start_index, "float32")
        query_features = ops.stack([i, ops.ones_like(i)], axis=-1)
        j = ops.cast(ops.arange(ops.shape(query if key is None else key)[1]), "float32")
        key_features = ops.stack([ops.ones_like(j), -2 * j], axis=-1)
        key_features = ops.reshape(key_features, (1, -1, 1, 2))
        slopes = ops.reshape(self.slopes, (1, 1, NUM_HEADS, 1))
        return ops.reshape(query_features, (1, -1, 1, 2)), key_features * slopes


class SlopesInRows(SlopesOfQuery):
    """A bias layer that returns the scores of blocks of queries."""

    def rows(self, query, key, start_index):
        self.num_calls["rows"] += 1
        return self.scores(query, key, start_index)


def added_scores(encoder, x):
    """What the bias adds to the scores of the first layer, minus its first column."""
    arguments = {"position_encoding": "none", "segment_encoding": "none"}
    plain = make_encoder(
        np.random.default_rng(3), **arguments, projection_dim=encoder.projection_dim
    )
    copy_weights(encoder, plain)
    biased, unbiased = (
        np.log(to_numpy(model(x, return_attention_scores=True)[1][0])) for model in (encoder, plain)
    )
    # Softmax is unique up to a constant for each query.
    return (biased - unbiased) - (biased - unbiased)[..., :1]


@pytest.mark.parametrize("projection_dim", [None, PROJECTED], ids=["tokens", "projected_keys"])
def test_bias_of_query_and_key(rng, register, projection_dim):
    kind = SlopesOfQuery if projection_dim is None else SlopesOfKey
    name = register(
        bias=lambda sizes, share_heads, **kwargs: kind(**kwargs),
        sharing_modes=("none",),
        allows_projection=True,
    )
    arguments = {"segment_encoding": "none", "projection_dim": projection_dim}
    encoder = make_encoder(rng, position_encoding=name, **arguments)
    x, _ = make_inputs(rng)
    slopes = to_numpy(encoder.position_biases[0].slopes).reshape(1, -1, 1, 1)
    keys = np.arange(projection_dim or LENGTH)
    expected = np.broadcast_to(-2.0 * slopes * keys, (BATCH, NUM_HEADS, LENGTH, len(keys)))
    assert_close(added_scores(encoder, x), expected, 1e-4)
    assert [bias.num_calls["call"] for bias in encoder.position_biases] == [1] * NUM_LAYERS


@pytest.mark.parametrize(
    "kind, implementation, method",
    [(SlopesAsFeatures, "features", "features"), (SlopesInRows, "blockwise", "rows")],
)
def test_bias_in_another_form(rng, monkeypatch, kind, implementation, method):
    monkeypatch.setattr(plan, "BLOCK_SIZE", 2)
    encoder = make_encoder(rng, position_encoding=kind(), attention_implementation=implementation)
    full = make_encoder(rng, position_encoding=SlopesOfQuery(), attention_implementation="full")
    full.set_weights(encoder.get_weights())
    x, segment_ids = make_inputs(rng)
    arguments = {"segment_ids": segment_ids, "padding_mask": VALID}
    (bias,) = encoder.position_biases
    bias.num_calls["call"] = 0
    assert_close(encoder(x, **arguments), full(x, **arguments))
    assert bias.num_calls["call"] == 0
    assert bias.num_calls[method] > 0
    # All layers share one bias.
    assert full.position_biases[0].num_calls["call"] == 1


class Doubled(AbsolutePositionBias):
    """Scores that the inherited features do not have."""

    def compute_scores(self, *args):
        return 2 * super().compute_scores(*args)


class DoubledCall(AbsolutePositionBias):
    """The same in `call`."""

    def call(self, *args, **kwargs):
        return 2 * super().call(*args, **kwargs)


class DoubledFeatures(Doubled):
    """The same with features."""

    def features(self, *args, **kwargs):
        query, key = AbsolutePositionBias.features(self, *args, **kwargs)
        return 2 * query, key


class Renamed(AbsolutePositionBias):
    """A subclass with the same scores."""


class Derived(Doubled):
    """A subclass of a class without features."""


def test_features_of_other_scores_are_not_inherited(rng):
    assert all(kind.features is None for kind in (Doubled, DoubledCall, Derived))
    assert Renamed.features is AbsolutePositionBias.features
    encoders = [
        make_encoder(rng, position_encoding=kind(NUM_HEADS, MAX_LENGTH, 2), **arguments)
        for kind, arguments in (
            (Doubled, {"attention_implementation": "blockwise"}),
            (DoubledCall, {}),
            (DoubledFeatures, {"attention_implementation": "features"}),
        )
    ]
    x, segment_ids = make_inputs(rng)
    expected = encoders[0](x, segment_ids=segment_ids)
    for encoder in encoders[1:]:
        encoder.set_weights(encoders[0].get_weights())
        assert_close(encoder(x, segment_ids=segment_ids), expected)
    with pytest.raises(ValueError, match="'features' needs a bias layer with `features`"):
        make_encoder(
            rng,
            position_encoding=Doubled(NUM_HEADS, MAX_LENGTH, 2),
            attention_implementation="features",
        )


def test_every_block_has_another_layer_without_sharing(rng):
    layer = AbsolutePositionBias(NUM_HEADS, MAX_LENGTH, rank=2)
    encoder = make_encoder(rng, position_encoding=layer, sharing="none")
    assert len({id(bias) for bias in encoder.position_biases}) == NUM_LAYERS
