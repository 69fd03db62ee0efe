"""The table of all bias layers, and of their scores by the papers."""

import dataclasses
import inspect
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_diet import layers
from keras_diet.layers.position.position_encoding import call_named
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

    def compute_scores(self, query_length, key_length, start_index):
        query = ops.arange(query_length) + start_index
        distance = ops.expand_dims(query, 1) - ops.expand_dims(ops.arange(key_length), 0)
        return ops.expand_dims(self.slopes * ops.cast(distance, self.compute_dtype), 0)


@dataclasses.dataclass(frozen=True)
class BiasSpec:
    """A row of the table: how to make a layer, its scores, and what it can do.

    Attributes:
        layer: The class.
        reference: `reference(bias, weights, query_length, key_length, start)` returns the scores
            by the paper, `(1, num_heads, query_length, key_length)`. If the layer reads the
            content, the lengths are the hidden states of queries and keys.
        sizes: Arguments of the class. None has its default value.
        distance_only: Whether the layer says that its scores depend on the distance alone.
        any_length: Whether it has scores for any length, without a `max_length`.
        features: Whether it has features.
        max_keys: The largest number of keys.
        reads_content: Whether the scores depend on the hidden states.
        has_query: Whether the queries are among the keys.
    """

    layer: type
    reference: Callable
    sizes: dict = dataclasses.field(default_factory=dict)
    distance_only: bool = False
    any_length: bool = False
    features: bool = False
    max_keys: int = MAX_LENGTH
    reads_content: bool = False
    has_query: bool = False

    def make(self, num_heads=NUM_HEADS, **kwargs):
        """A layer, by default for `NUM_HEADS` heads."""
        return self.layer(num_heads, **{"max_length": MAX_LENGTH, **self.sizes, **kwargs})

    def takes(self, argument):
        """Whether the class has an argument."""
        return argument in inspect.signature(self.layer).parameters


# === The papers ===


def of_pairs(score):
    """The reference for `score(bias, weights, head, i, j)` of a query at `i` and a key at `j`."""

    def scores(bias, weights, query_length, key_length, start):
        values = np.zeros((1, bias.num_heads, query_length, key_length))
        for h, i, j in np.ndindex(values.shape[1:]):
            values[0, h, i, j] = score(bias, weights, h, start + i, j)
        return values

    return scores


def of_head(weight, head):
    """The value of a weight for a head. Shared heads have one value."""
    return weight.reshape(-1)[head % weight.size]


def absolute(bias, weights, query_length, key_length, start):
    embeddings = weights["query_embedding"], weights["key_embedding"]
    return reference.absolute_position_bias(
        *embeddings, query_length, key_length, start, bias.num_heads
    )


def relative(bias, weights, query_length, key_length, start):
    return reference.relative_position_bias(
        weights["relative_embedding"], query_length, key_length, start, bias.num_heads
    )


def bucketed(bias, weights, query_length, key_length, start):
    return reference.bucketed_relative_position_bias(
        *(weights["bucket_embedding"], query_length, key_length, bias.max_distance),
        *(bias.bidirectional, start, bias.num_heads),
    )


def untied(bias, weights, query_length, key_length, start):
    assert ("cls_scores" in weights) == bias.untie_cls
    lengths, of_bins = (query_length, key_length), None
    if bias.relative:
        of_bins = bucketed(bias.relative_bias, weights, *lengths, start)
    named = {f"position_norm_{name}": weights[name] for name in ("gamma", "beta")}
    return reference.untied_position_bias(
        {**weights, **named}, *lengths, of_bins, start, bias.num_heads, bias.layer_norm_epsilon
    )


def cached(bias, weights, query_length, key_length, start):
    scores = weights["scores"][None, :, start : start + query_length, :key_length]
    return np.broadcast_to(scores, (1, bias.num_heads, query_length, key_length))


def kerple(bias, weights, head, i, j):
    r1, r2, distance = of_head(weights["r1"], head), of_head(weights["r2"], head), abs(i - j)
    return -r1 * (np.log(1 + r2 * distance) if bias.kernel == "log" else float(distance) ** r2)


def sandwich(bias, weights, query_length, key_length, start):
    size = bias.position_dim
    positions = reference.sinusoidal_positions(start + query_length + key_length, size)

    def score(bias, weights, head, i, j):
        return (positions[i] @ positions[j] - size / 2) / (8 * (head + 1) / bias.num_heads)

    return of_pairs(score)(bias, weights, query_length, key_length, start)


def fire(bias, weights, head, i, j):
    """`f(psi(|i - j|) / psi(max(L, i, j)))` with one hidden layer (Li et al.)."""

    def psi(x):
        return np.log(abs(weights["c"]) * x + 1)

    x = psi(abs(i - j)) / psi(max(abs(weights["multiplier"]) * bias.threshold, i, j))
    hidden = np.maximum(x * weights["hidden_kernel"] + weights["hidden_bias"], 0)
    head = 0 if bias.share_heads else head
    return hidden @ weights["output_kernel"][:, head] + weights["output_bias"][head]


def log_cpb(bias, weights, head, i, j):
    """With columns, positions are `y (2 W - 1) + x`, and a distance tells `dy` and `dx`."""
    distances = [i - j]
    if bias.num_columns is not None:
        period, columns = 2 * bias.num_columns - 1, range(1 - bias.num_columns, bias.num_columns)
        (column,) = [each for each in columns if (i - j - each) % period == 0]
        distances = [(i - j - column) // period, column]
    return reference.log_cpb(distances, weights, bias.max_distance, head)


def query_relative(bias, weights, query, key, start):
    return reference.query_relative_position_bias(
        query, key.shape[1], weights, bias.max_distance, bias.bidirectional, start, bias.num_heads
    )


def forgetting(bias, weights, query, key, start):
    scores = reference.forgetting_position_bias(
        key, query.shape[1], weights, bias.bidirectional, start, bias.num_heads
    )
    # Keys after the query, which a causal mask excludes, have no large scores.
    return np.minimum(scores, 0)


# === The table ===

FAR = {"distance_only": True, "any_length": True}
BINS = {"num_buckets": 6, "max_distance": 5}
CAUSAL = {"num_buckets": 14, "max_distance": 11, "bidirectional": False}
UNTIED = {"key_dim": 2, "position_dim": 7, "layer_norm_epsilon": 1e-3}
UNTIED_BINS = {**UNTIED, **BINS, "relative": True}
PROJECTED = {"rank": 2, "key_length": 13}
NETWORK = {"hidden_dim": 5, "max_distance": 6}
CURVES = {"rank": 4, "max_distance": 5, "use_bias": True}
CURVES_BEFORE = {"rank": 2, "max_distance": 6, "bidirectional": False}
BIAS_LAYERS = {
    "absolute": BiasSpec(layers.AbsolutePositionBias, absolute, {"rank": 5}, features=True),
    "absolute_of_projected_keys": BiasSpec(
        layers.AbsolutePositionBias, absolute, PROJECTED, features=True, max_keys=13
    ),
    "relative": BiasSpec(layers.RelativePositionBias, relative, distance_only=True),
    "t5": BiasSpec(layers.BucketedRelativePositionBias, bucketed, BINS, **FAR),
    "t5_causal": BiasSpec(layers.BucketedRelativePositionBias, bucketed, CAUSAL, **FAR),
    "tupe_abs": BiasSpec(layers.UntiedPositionBias, untied, UNTIED),
    "tupe_rel": BiasSpec(layers.UntiedPositionBias, untied, UNTIED_BINS),
    "tupe_tied": BiasSpec(layers.UntiedPositionBias, untied, {**UNTIED_BINS, "untie_cls": False}),
    "alibi": BiasSpec(
        layers.AlibiPositionBias,
        of_pairs(lambda bias, weights, head, i, j: -bias.slopes[head] * abs(i - j)),
        **FAR,
    ),
    "sandwich": BiasSpec(layers.SandwichPositionBias, sandwich, {"position_dim": 10}, **FAR),
    "kerple_log": BiasSpec(layers.KerplePositionBias, of_pairs(kerple), **FAR),
    "kerple_power": BiasSpec(
        layers.KerplePositionBias, of_pairs(kerple), {"kernel": "power"}, **FAR
    ),
    "fire": BiasSpec(
        *(layers.FirePositionBias, of_pairs(fire), {"hidden_dim": 5, "threshold": 4.5}),
        any_length=True,
    ),
    "log_cpb": BiasSpec(layers.LogCPBBias, of_pairs(log_cpb), NETWORK, **FAR),
    "log_cpb_of_a_grid": BiasSpec(
        layers.LogCPBBias, of_pairs(log_cpb), {**NETWORK, "num_columns": 2}, **FAR
    ),
    "query_relative": BiasSpec(
        *(layers.QueryRelativePositionBias, query_relative, CURVES), reads_content=True, **FAR
    ),
    "query_relative_causal": BiasSpec(
        *(layers.QueryRelativePositionBias, query_relative, CURVES_BEFORE),
        **{"reads_content": True, **FAR},
    ),
    "forgetting": BiasSpec(
        *(layers.ForgettingPositionBias, forgetting),
        **{"reads_content": True, "has_query": True, "features": True, **FAR},
    ),
    "forgetting_both": BiasSpec(
        *(layers.ForgettingPositionBias, forgetting, {"bidirectional": True}),
        **{"reads_content": True, "has_query": True, **FAR},
    ),
    "cached": BiasSpec(CachedPositionBias, cached, {"key_length": 7}, max_keys=7),
    "custom": BiasSpec(
        Distances,
        of_pairs(lambda bias, weights, head, i, j: of_head(weights["slopes"], head) * (i - j)),
    ),
}
SPEC_OF_LAYER = {spec.layer: spec for spec in BIAS_LAYERS.values()}


def make_bias(name, rng, **kwargs):
    """A built layer with random weights, inside of the limits of their constraints."""
    bias = BIAS_LAYERS[name].make(**kwargs)
    bias.build((2, MAX_LENGTH, 5))
    for weight in randomize(bias, rng, scale=0.6).weights:
        if name.startswith("kerple") or weight.name in ("c", "multiplier"):
            weight.assign(rng.uniform(0.5, 1.5, size=weight.shape))
    return bias


STATES = np.random.default_rng(5).normal(size=(2, 500, 5)).astype("float32")


def sequence(length, start=0):
    """A query or key of a length. Most layers read nothing else of it."""
    return STATES[:, start : start + length]


def weights_of(bias):
    """The weights of a layer by name, inside of the limits of their constraints."""
    limited = {w.name: w if w.constraint is None else w.constraint(w.value) for w in bias.weights}
    return {name: to_numpy(weight) for name, weight in limited.items()}


def expected_scores(bias, query_length, key_length=None, start=0, weights=None, states=None):
    """The scores of a bias layer by its paper, `(1 or B, H, T, S)`."""
    weights = weights_of(bias) if weights is None else weights
    inputs = query_length, key_length or query_length
    if bias.reads_content:
        inputs = states or (sequence(query_length, start), sequence(inputs[1]))
    return SPEC_OF_LAYER[type(bias)].reference(bias, weights, *inputs, start)


def for_states(bias, query_length, key_length=None):
    """The same for an attention layer: scores, or a function of the states of query and value."""
    if not bias.reads_content:
        return expected_scores(bias, query_length, key_length)
    return lambda *states: expected_scores(bias, *(x.shape[1] for x in states), states=states)


def is_distance_only(encoding):
    """Whether the bias of a `PositionEncoding` depends on the distance alone."""
    return encoding.bias is not None and spec_of(encoding).distance_only


def reads_content(encoding):
    """Whether the bias of a `PositionEncoding` depends on the hidden states."""
    return encoding.bias is not None and spec_of(encoding).reads_content


def spec_of(encoding):
    """The row of the table of the bias of a `PositionEncoding`."""
    sizes = {"num_heads": 2, "key_dim": 4, "max_length": 5, "is_causal": False}
    return SPEC_OF_LAYER[type(call_named(encoding.bias, sizes))]
