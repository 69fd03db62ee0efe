import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_diet.layers.position.relative_shift import (
    distances_to_keys,
    keys_to_distances,
    scores_of_distances,
)
from tests.helpers import assert_close, normal, to_numpy

# JAX and TensorFlow cut query lengths from 32 into blocks if 16 divides them: here into blocks of
# 2 and 3 queries, and into blocks of blocks. They do not cut 17, 31 and 33.
LONG = [(32, 32), (33, 5), (48, 50), (512, 3)]


def by_key(scores, query_length, key_length):
    """Column 0 holds the distance `-(T - 1)`, from the last query to the first key."""
    expected = np.zeros((*scores.shape[:-1], key_length), scores.dtype)
    for i, j in np.ndindex(query_length, key_length):
        expected[..., i, j] = scores[..., i, j - i + query_length - 1]
    return expected


@pytest.mark.any_backend
@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    outer=st.sampled_from([(), (2,), (2, 3)]),
    query_length=st.integers(1, 40),
    key_length=st.integers(1, 40),
)
def test_any_lengths(outer, query_length, key_length):
    rng = np.random.default_rng(query_length * 41 + key_length)
    distances = normal(rng, *outer, query_length, query_length + key_length - 1)
    keys = normal(rng, *outer, query_length, key_length)
    lengths = (query_length, key_length)
    forward = distances_to_keys(ops.convert_to_tensor(distances), *lengths)
    assert_close(forward, by_key(distances, *lengths), 0)
    back = keys_to_distances(ops.convert_to_tensor(keys), *lengths)
    assert_close(by_key(to_numpy(back), *lengths), keys, 0)
    assert np.count_nonzero(to_numpy(back)) == keys.size


@pytest.mark.parametrize("query_length, key_length", [(3, 7), (1, 1), *LONG])
def test_scores_of_distances(rng, query_length, key_length):
    values = normal(rng, query_length + key_length - 1, 3)
    scores = to_numpy(scores_of_distances(ops.convert_to_tensor(values), query_length, key_length))
    assert scores.shape == (1, 3, query_length, key_length)
    for h, i, j in np.ndindex(scores.shape[1:]):
        assert scores[0, h, i, j] == values[j - i + query_length - 1, h]
