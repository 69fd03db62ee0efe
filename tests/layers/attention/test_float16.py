"""Products that are infinite in float16, in programs that other tests run in float32."""

import numpy as np
import pytest

from keras_diet.layers import BiasedMultiHeadAttention, RelativeMultiHeadAttention
from tests.helpers import assert_close, to_numpy

LENGTH, HEAD_DIM = 3, 4
dtypes = pytest.mark.parametrize("dtype", ["float16", "mixed_float16"])


def with_identities(attention, *shape):
    """The layer with projections that change nothing. Inputs of 300 have products of 180,000."""
    attention.build(shape, shape)
    for dense in (attention.query_dense, attention.key_dense, attention.value_dense):
        dense.kernel.assign(np.eye(HEAD_DIM)[:, None])
    return attention, np.full(shape, 300.0, "float16")


@dtypes
@pytest.mark.parametrize("attention_axes", [2, (1, 2)], ids=str)
def test_several_sequence_axes(dtype, attention_axes):
    attention = BiasedMultiHeadAttention(1, HEAD_DIM, attention_axes=attention_axes, dtype=dtype)
    attention, x = with_identities(attention, 2, 5, LENGTH, HEAD_DIM)
    _, scores = attention(x, x, return_attention_scores=True)
    num_keys = LENGTH if attention_axes == 2 else 5 * LENGTH
    assert_close(scores, np.full(scores.shape, 1 / num_keys), 1e-3)


@dtypes
def test_vectors_of_distances(dtype):
    attention = RelativeMultiHeadAttention(1, HEAD_DIM, max_distance=7, dtype=dtype)
    attention, x = with_identities(attention, 2, LENGTH, HEAD_DIM)
    attention.key_embedding.assign(np.full(attention.key_embedding.shape, 300.0))
    biases = attention.distance_scores(attention.query_dense(x), attention.key_dense(x))
    assert_close(to_numpy(biases) / 180_000, np.ones((2, 1, LENGTH, LENGTH)), 1e-3)
    _, scores = attention(x, x, return_attention_scores=True)
    assert_close(scores, np.full(scores.shape, 1 / LENGTH), 1e-3)
