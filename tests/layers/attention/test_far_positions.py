"""Scores that grow with the distance are as precise far from the diagonal as near it."""

import keras
import numpy as np
import pytest

from keras_diet import layers
from tests.helpers import once, to_numpy
from tests.layers.bias_layers import BIAS_LAYERS

NUM_HEADS, QUERIES, KEYS = 8, 5, 41
# T5's scores do not grow with the distance. `test_content_biases` has those that read the content.
LAYERS = [
    name
    for name, spec in BIAS_LAYERS.items()
    if spec.any_length and name[:2] != "t5" and not spec.reads_content
]


def outputs(name, dtype, start, is_cached=False):
    """The outputs of a kernel, and probabilities."""
    keras.utils.set_random_seed(4)
    bias = BIAS_LAYERS[name].layer(
        NUM_HEADS, **{**BIAS_LAYERS[name].sizes, "max_length": 700, "dtype": dtype}
    )
    bias.build()
    for weight, value in zip(bias.weights, (1.7, 0.83), strict=False):
        if name.startswith("kerple"):
            weight.assign(np.full(NUM_HEADS, value))
    bias = layers.cache_positions(bias) if is_cached else bias
    attention = layers.BiasedMultiHeadAttention(NUM_HEADS, 8, dtype=dtype)
    rng = np.random.default_rng(6)
    query, key = (rng.normal(size=(2, n, 64)).astype("float32") for n in (QUERIES, KEYS))
    options = {"attention_bias": bias, "start_index": start}
    _, probabilities = attention(query, key, return_attention_scores=True, **options)
    return to_numpy(attention(query, key, **options)), to_numpy(probabilities)


@pytest.mark.parametrize("name", ["alibi", *once(*(name for name in LAYERS if name != "alibi"))])
@pytest.mark.parametrize(
    "policy, is_cached", [("mixed_bfloat16", False), *once(("mixed_float16", True))]
)
def test_errors(name, is_cached, policy):
    def errors(start):
        """What half precision changes in outputs, and in the probabilities of a query."""
        exact, found = (outputs(name, each, start, is_cached) for each in ("float32", policy))
        of_outputs, of_probabilities = (np.abs(a - b) for a, b in zip(exact, found, strict=True))
        return of_outputs.max(), of_probabilities.sum(axis=-1).max()

    # Processors round products differently, near the diagonal and far from it.
    for far, near in zip(errors(650), errors(35), strict=True):
        assert far < 2 * near
