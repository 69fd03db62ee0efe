"""The table of all bias layers, and of their scores by the papers."""

import dataclasses
import functools
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
from tests.reference import of_head, row_of

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
        score: `score(bias, weights, head, i, j)` returns the score by the paper of a query at `i`
            and a key at `j`. If the layer reads the content, it also gets the hidden states of the
            query and of all keys.
        sizes: Arguments of the class. None has its default value.
        distance_only: Whether the layer says that its scores depend on the distance alone.
        any_length: Whether it has scores for any length, without a `max_length`.
        features: Whether it has features.
        max_keys: The largest number of keys.
        reads_content: Whether the scores depend on the hidden states.
        has_query: Whether the queries are among the keys.
    """

    layer: type
    score: Callable
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

sinusoids = functools.cache(reference.sinusoidal_positions)

# Each function returns the score of a query at `i` and a key at `j` for a head. A bias that reads
# the content also gets the hidden states of the query and of all keys.


def absolute(bias, weights, head, i, j):
    """`P_Q P_K^T` (equation 1 of Chen et al.)."""
    query = row_of(weights["query_embedding"], i)
    return of_head(query, head) @ of_head(row_of(weights["key_embedding"], j), head)


def relative(bias, weights, head, i, j):
    """`R_{i-j}` (equation 3 of Chen et al.). The middle row has the distance 0."""
    table = weights["relative_embedding"]
    return of_head(row_of(table, i - j + len(table) // 2), head)


def bucketed(bias, weights, head, i, j):
    """`b[bucket(j - i)]` (Raffel et al.)."""
    table, sizes = weights["bucket_embedding"], (bias.max_distance, bias.bidirectional)
    return of_head(row_of(table, reference.bucket_of_distance(j - i, len(table), *sizes)), head)


def untied(bias, weights, head, i, j):
    """`(p_i U_Q) (p_j U_K) / sqrt(2 d_h) + b_{j-i}`, and other scores of `[CLS]` (Ke et al.)."""
    assert ("cls_scores" in weights) == bias.untie_cls
    if bias.untie_cls and 0 in (i, j):
        return of_head(weights["cls_scores"][0 if i == 0 else 1], head)
    norm = weights["gamma"], weights["beta"], bias.layer_norm_epsilon
    query, key = (
        reference.layer_norm(row_of(weights["position_embedding"], at), *norm)
        @ of_head(weights[f"{name}_kernel"], head, axis=1)
        for name, at in (("query", i), ("key", j))
    )
    score = query @ key / np.sqrt(2 * len(query))
    return score + (bucketed(bias.relative_bias, weights, head, i, j) if bias.relative else 0.0)


def kerple(bias, weights, head, i, j):
    r1, r2, distance = of_head(weights["r1"], head), of_head(weights["r2"], head), abs(i - j)
    return -r1 * (np.log(1 + r2 * distance) if bias.kernel == "log" else float(distance) ** r2)


def sandwich(bias, weights, head, i, j):
    """`(p_i . p_j - p_i . p_i) / c_h` of sinusoidal positions `p` (Chi et al.)."""
    positions = sinusoids(max(i, j) + 1, bias.position_dim)
    return positions[i] @ (positions[j] - positions[i]) / (8 * (head + 1) / bias.num_heads)


def fire(bias, weights, head, i, j):
    """`f(psi(|i - j|) / psi(max(L, i, j)))` with one hidden layer (Li et al.)."""

    def psi(x):
        return np.log(abs(weights["c"]) * x + 1)

    x = psi(abs(i - j)) / psi(max(abs(weights["multiplier"]) * bias.threshold, i, j))
    hidden = np.maximum(x * weights["hidden_kernel"] + weights["hidden_bias"], 0)
    output = of_head(weights["output_kernel"], head, axis=1)
    return hidden @ output + of_head(weights["output_bias"], head)


def log_cpb(bias, weights, head, i, j):
    """`16 sigmoid(V relu(w x + b))` of the distances of all axes (Liu et al.).

    With columns, positions are `y (2 W - 1) + x`, and a distance tells `dy` and `dx`.
    """
    distances = np.array([i - j])
    if bias.num_columns is not None:
        period, columns = 2 * bias.num_columns - 1, range(1 - bias.num_columns, bias.num_columns)
        (column,) = [each for each in columns if (i - j - each) % period == 0]
        distances = np.array([(i - j - column) // period, column])
    inputs = np.sign(distances) * np.log2(1 + 8 * abs(distances) / bias.max_distance) / np.log2(8)
    hidden = np.maximum(inputs @ weights["hidden_kernel"] + weights["hidden_bias"], 0)
    return 16 / (1 + np.exp(-hidden @ of_head(weights["output_kernel"], head, axis=1)))


def query_relative(bias, weights, head, i, j, query, keys):
    """`(W_r x_i + b) . P[:, i - j]` for `|i - j| < max_distance`, else 0 (Inkling)."""
    smallest = 1 - bias.max_distance if bias.bidirectional else 0
    if not smallest <= i - j < bias.max_distance:
        return 0.0
    mixture = query @ of_head(weights["query_kernel"], head, axis=1)
    if bias.use_bias:
        mixture = mixture + of_head(weights["query_bias"], head)
    return mixture @ weights["curves"][i - j - smallest]


def forgetting(bias, weights, head, i, j, query, keys):
    """The sum of `log sigmoid(w . x_l + b)` over the tokens `l` between key and query (FoX).

    Keys after the query, which a causal mask excludes, have no large scores.
    """
    first, last = sorted((i, j))
    kernel = of_head(weights["gate_kernel"], head, axis=1)
    gates = keys[first + 1 : last + 1] @ kernel + of_head(weights["gate_bias"], head)
    return -np.sum(np.log(1 + np.exp(-gates))) if i >= j or bias.bidirectional else 0.0


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
        lambda bias, weights, head, i, j: -bias.slopes[head] * abs(i - j),
        **FAR,
    ),
    "sandwich": BiasSpec(layers.SandwichPositionBias, sandwich, {"position_dim": 10}, **FAR),
    "kerple_log": BiasSpec(layers.KerplePositionBias, kerple, **FAR),
    "kerple_power": BiasSpec(layers.KerplePositionBias, kerple, {"kernel": "power"}, **FAR),
    "fire": BiasSpec(
        *(layers.FirePositionBias, fire, {"hidden_dim": 5, "threshold": 4.5}),
        any_length=True,
    ),
    "log_cpb": BiasSpec(layers.LogCPBBias, log_cpb, NETWORK, **FAR),
    "log_cpb_of_a_grid": BiasSpec(layers.LogCPBBias, log_cpb, {**NETWORK, "num_columns": 2}, **FAR),
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
    "cached": BiasSpec(
        CachedPositionBias,
        lambda bias, weights, head, i, j: of_head(weights["scores"], head)[i, j],
        {"key_length": 7},
        max_keys=7,
    ),
    "custom": BiasSpec(
        Distances,
        lambda bias, weights, head, i, j: of_head(weights["slopes"], head).item() * (i - j),
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
    weights = {name: np.asarray(weight, "float64") for name, weight in weights.items()}
    score, key_length = SPEC_OF_LAYER[type(bias)].score, key_length or query_length
    states = states or (sequence(query_length, start), sequence(key_length))
    query, keys = (each.astype("float64") for each in states)
    batch_size = len(query) if bias.reads_content else 1
    scores = np.zeros((batch_size, bias.num_heads, query_length, key_length))
    for b, h, i, j in np.ndindex(scores.shape):
        content = (query[b, i], keys[b]) if bias.reads_content else ()
        scores[b, h, i, j] = score(bias, weights, h, start + i, j, *content)
    return scores


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
