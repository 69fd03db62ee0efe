"""The table of all bias layers that read positions only, and their scores by the references."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_diet import layers
from keras_diet.layers.transformer.cached_positions import CachedPositionBias
from tests import reference
from tests.helpers import randomize, to_numpy

NUM_HEADS, MAX_LENGTH = 3, 11


@keras.saving.register_keras_serializable("keras_diet_tests")
class Distances(layers.PositionBias):
    """A custom position bias: a learned slope per head."""

    def build(self, query_shape=None, key_shape=None):
        shape = (self.num_score_heads, 1, 1)
        self.slopes = self.add_weight(name="slopes", shape=shape, initializer=self.initializer)
        self.built = True

    def compute_scores(self, query_length, key_length, start_index):
        query = ops.arange(query_length) + start_index
        distance = ops.expand_dims(query, 1) - ops.expand_dims(ops.arange(key_length), 0)
        return ops.expand_dims(self.slopes * ops.cast(distance, self.compute_dtype), 0)


@dataclasses.dataclass(frozen=True)
class BiasSpec:
    """A row of the table: how to make a layer, and what it can do.

    Attributes:
        make: Function of more arguments. No argument that it sets has its default value.
        arguments: Names of the arguments of all bias layers that this one takes.
        features: Whether it has features.
        max_keys: The largest number of keys.
    """

    make: Callable
    arguments: tuple = ("share_heads", "max_length", "initializer")
    features: bool = False
    max_keys: int = MAX_LENGTH


def of(bias_class, *sizes, **fixed):
    """A function that makes a layer for `NUM_HEADS` heads."""
    return lambda **kwargs: bias_class(NUM_HEADS, *sizes, **{**fixed, **kwargs})


BINS = {"num_buckets": 6, "max_distance": 5}
FREE = {"max_length": MAX_LENGTH}
NO_INITIALIZER = ("share_heads", "max_length")
untied = {"key_dim": 2, **FREE, "position_dim": 7, "layer_norm_epsilon": 1e-3}
BIAS_LAYERS = {
    "absolute": BiasSpec(of(layers.AbsolutePositionBias, **FREE, rank=5), features=True),
    "absolute_of_projected_keys": BiasSpec(
        of(layers.AbsolutePositionBias, **FREE, rank=2, key_length=13), features=True, max_keys=13
    ),
    "relative": BiasSpec(of(layers.RelativePositionBias, **FREE)),
    "t5": BiasSpec(of(layers.BucketedRelativePositionBias, **BINS, **FREE)),
    "t5_causal": BiasSpec(
        of(layers.BucketedRelativePositionBias, 14, 11, bidirectional=False, **FREE)
    ),
    "tupe_abs": BiasSpec(of(layers.UntiedPositionBias, **untied)),
    "tupe_rel": BiasSpec(of(layers.UntiedPositionBias, **untied, relative=True, **BINS)),
    "tupe_tied": BiasSpec(
        of(layers.UntiedPositionBias, **untied, relative=True, **BINS, untie_cls=False)
    ),
    "alibi": BiasSpec(of(layers.AlibiPositionBias, **FREE), ("max_length",)),
    "sandwich": BiasSpec(of(layers.SandwichPositionBias, position_dim=10, **FREE), ("max_length",)),
    "kerple_log": BiasSpec(of(layers.KerplePositionBias, **FREE), NO_INITIALIZER),
    "kerple_power": BiasSpec(of(layers.KerplePositionBias, kernel="power", **FREE), NO_INITIALIZER),
    "fire": BiasSpec(
        of(layers.FirePositionBias, hidden_dim=5, threshold=4.5, **FREE), NO_INITIALIZER
    ),
    "cached": BiasSpec(of(CachedPositionBias, **FREE, key_length=7), NO_INITIALIZER, max_keys=7),
    "custom": BiasSpec(of(Distances, **FREE)),
}


def make_bias(name, rng, **kwargs):
    """A built layer with random weights, inside of the limits of their constraints."""
    bias = BIAS_LAYERS[name].make(**kwargs)
    bias.build()
    for weight in randomize(bias, rng, scale=0.6).weights:
        if name.startswith("kerple") or weight.name in ("c", "multiplier"):
            weight.assign(rng.uniform(0.5, 1.5, size=weight.shape))
    return bias


def sequence(length):
    """A query or key of a length. Nothing else of it is read."""
    return np.zeros((2, length, 5), "float32")


def weights_of(bias):
    """The weights of a layer by name."""
    return {weight.name: to_numpy(weight) for weight in bias.weights}


def expected_scores(bias, query_length, key_length=None, start=0, weights=None, num_heads=None):
    """The scores of a bias layer by its paper, `(1, H, T, S)`."""
    key_length = key_length or query_length
    if weights is None:
        weights = weights_of(bias)
        if isinstance(bias, layers.KerplePositionBias):
            # The layer moves weights outside of their limits to the limits.
            largest = np.inf if bias.kernel == "log" else 2.0
            limits = {"r1": np.inf, "r2": largest}
            weights = {name: np.clip(weights[name], 0.01, limits[name]) for name in limits}
    num_heads = num_heads or bias.num_heads
    shape = (1, num_heads, query_length, key_length)
    lengths = (query_length, key_length)
    if isinstance(bias, layers.AbsolutePositionBias):
        return reference.absolute_position_bias(
            weights["query_embedding"], weights["key_embedding"], *lengths, start, num_heads
        )
    if isinstance(bias, layers.RelativePositionBias):
        return reference.relative_position_bias(
            weights["relative_embedding"], *lengths, start, num_heads
        )
    if isinstance(bias, layers.BucketedRelativePositionBias):
        return reference.bucketed_relative_position_bias(
            *(weights["bucket_embedding"], *lengths, bias.max_distance),
            *(bias.bidirectional, start, num_heads),
        )
    if isinstance(bias, layers.UntiedPositionBias):
        assert ("cls_scores" in weights) == bias.untie_cls
        relative = None
        if bias.relative:
            of_bins = {"bucket_embedding": weights["bucket_embedding"]}
            relative = expected_scores(bias.relative_bias, *lengths, start, of_bins, num_heads)
        named = {f"position_norm_{name}": weights[name] for name in ("gamma", "beta")}
        return reference.untied_position_bias(
            {**weights, **named}, *lengths, relative, start, num_heads, bias.layer_norm_epsilon
        )
    scores = np.zeros(shape)
    if isinstance(bias, CachedPositionBias):
        return scores + weights["scores"][None, :, start : start + query_length, :key_length]
    if isinstance(bias, layers.SandwichPositionBias):
        positions = np.array(
            [
                [(np.sin, np.cos)[k % 2](p / 10_000 ** (k // 2 * 2 / bias.position_dim))]
                for p in range(start + query_length + key_length)
                for k in range(bias.position_dim)
            ]
        ).reshape(-1, bias.position_dim)
    for h, i, j in np.ndindex(shape[1:]):
        distance = start + i - j
        if isinstance(bias, Distances):
            scores[0, h, i, j] = np.broadcast_to(weights["slopes"].ravel(), num_heads)[h] * distance
        elif isinstance(bias, layers.AlibiPositionBias):
            scores[0, h, i, j] = -bias.slopes[h] * abs(distance)
        elif isinstance(bias, layers.SandwichPositionBias):
            product = positions[start + i] @ positions[j] - bias.position_dim / 2
            scores[0, h, i, j] = product / (8 * (h + 1) / num_heads)
        elif isinstance(bias, layers.KerplePositionBias):
            r1, r2 = (np.broadcast_to(weights[name], num_heads)[h] for name in ("r1", "r2"))
            is_log = bias.kernel == "log"
            of_distance = np.log(1 + r2 * abs(distance)) if is_log else float(abs(distance)) ** r2
            scores[0, h, i, j] = -r1 * of_distance
        else:
            scores[0, h, i, j] = fire_score(bias, weights, h, start + i, j)
    return scores


def fire_score(bias, weights, head, i, j):
    """`f(psi(|i - j|) / psi(max(L, i, j)))` with one hidden layer (Li et al.)."""

    def psi(x):
        return np.log(abs(weights["c"]) * x + 1)

    x = psi(abs(i - j)) / psi(max(abs(weights["multiplier"]) * bias.threshold, i, j))
    hidden = np.maximum(x * weights["hidden_kernel"] + weights["hidden_bias"], 0)
    head = 0 if bias.share_heads else head
    return hidden @ weights["output_kernel"][:, head] + weights["output_bias"][head]
